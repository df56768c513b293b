"""Reading changes nothing on the disk."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from storage.local_store import LocalStore
from storage.quiet_open import open_quietly

LONG_AGO_NS = 1_000_000_000_000_000_000


def written_since_it_was_read(path: Path) -> None:
    """What makes `relatime` note the next access."""
    status = path.stat()
    os.utime(path, ns=(LONG_AGO_NS, status.st_mtime_ns))


READS: dict[str, Callable[[LocalStore], object]] = {
    "get": lambda store: store.get("object"),
    "get_range": lambda store: store.get_range("object", 1, 2),
    "get_register": lambda store: store.get_register("object"),
}


@pytest.mark.parametrize("read", READS.values(), ids=READS.keys())
def test_a_read_leaves_the_time_of_the_last_access(tmp_path: Path, read: Callable[[LocalStore], object]) -> None:
    store = LocalStore(str(tmp_path))
    store.put_register("object", b"value")
    written_since_it_was_read(tmp_path / "object")
    assert read(store)
    assert (tmp_path / "object").stat().st_atime_ns == LONG_AGO_NS


@pytest.fixture
def public_folder() -> Iterator[Path]:
    """Where other users can look."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_what_another_user_owns_is_read_all_the_same(public_folder: Path) -> None:
    (public_folder / "theirs").write_bytes(b"value")
    os.seteuid(65_534)
    try:
        descriptor = open_quietly(str(public_folder / "theirs"))
    finally:
        os.seteuid(0)
    assert os.read(descriptor, 10) == b"value"
    os.close(descriptor)


def test_what_may_not_be_read_or_is_absent_is_said_as_ever(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        open_quietly(str(tmp_path / "absent"))
