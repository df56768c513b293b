"""A file that gets its name when it is complete: no reader sees a part, and nothing is left of one that failed."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stratalog.storage.errors import StoreFullError, StoreUnavailableError
from stratalog.storage.objects.local import LocalStore


def files_below(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


def filling(root: Path, seen: list[list[str]], name: str = "t-0/s/1") -> Callable[[int], str]:
    """Writes `whole` in two pieces, notes what files there are in between, and names it by what it finds written."""

    def fill(descriptor: int) -> str:
        os.write(descriptor, b"wh")
        seen.append(files_below(root))
        os.write(descriptor, b"ole")
        return f"{name}.{os.pread(descriptor, 5, 0).decode()}"

    return fill


def test_a_filled_file_is_seen_whole_under_the_name_that_its_content_gives_it(tmp_path: Path) -> None:
    store, seen = LocalStore(str(tmp_path)), list[list[str]]()
    assert store.put_filled("t-0/s", filling(tmp_path, seen))
    assert seen == [[]]
    assert files_below(tmp_path) == ["t-0/s/1.whole"]
    assert store.get("t-0/s/1.whole") == b"whole"
    assert os.stat(tmp_path / "t-0/s/1.whole").st_mode & 0o777 == 0o644


@pytest.mark.parametrize(
    ("fault", "error"),
    [(errno.ENOSPC, StoreFullError), (errno.EDQUOT, StoreFullError), (errno.EIO, StoreUnavailableError)],
)
def test_nothing_is_left_of_a_file_that_could_not_be_filled(
    tmp_path: Path, fault: int, error: type[StoreUnavailableError]
) -> None:
    store = LocalStore(str(tmp_path))

    def fill(descriptor: int) -> str:
        os.write(descriptor, b"a part")
        raise OSError(fault, os.strerror(fault))

    with pytest.raises(error, match="t-0/s"):
        store.put_filled("t-0/s", fill)
    assert files_below(tmp_path) == []
    assert store.put_filled("t-0/s", filling(tmp_path, []))  # the disk still has unnamed files


def test_a_name_that_is_taken_is_not_replaced(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path))
    store.put("t-0/s/1.whole", b"older")
    with pytest.raises(StoreUnavailableError, match="exists"):
        store.put_filled("t-0/s", filling(tmp_path, []))
    assert store.get("t-0/s/1.whole") == b"older"


@pytest.mark.parametrize("fault", [errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL])
def test_a_disk_without_unnamed_files_fills_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: int) -> None:
    real, tries, seen = os.open, list[str](), list[list[str]]()

    def refuse(path: str, flags: int, mode: int = 0o777) -> int:
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            tries.append(path)
            raise OSError(fault, "no unnamed files")
        return real(path, flags, mode)

    store = LocalStore(str(tmp_path))
    monkeypatch.setattr(os, "open", refuse)
    assert [store.put_filled("t-0/s", filling(tmp_path, seen)) for _ in range(2)] == [False, False]
    assert (len(tries), seen, files_below(tmp_path)) == (1, [], [])


@pytest.mark.parametrize("fault", [errno.ENOENT, errno.EXDEV, errno.EPERM, errno.EACCES])
def test_a_machine_that_cannot_name_an_open_file_leaves_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: int
) -> None:
    def refuse(source: str, target: str, **options: Any) -> None:
        raise OSError(fault, "no /proc")

    store, seen = LocalStore(str(tmp_path)), list[list[str]]()
    monkeypatch.setattr(os, "link", refuse)
    assert [store.put_filled("t-0/s", filling(tmp_path, seen)) for _ in range(2)] == [False, False]
    assert (seen, files_below(tmp_path)) == ([[]], [])
