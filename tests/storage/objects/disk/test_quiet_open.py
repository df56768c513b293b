"""Reading changes nothing on the disk."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stratalog.storage.objects.disk.new_file import open_quietly
from stratalog.storage.objects.local import LocalStore

LONG_AGO_NS = 1_000_000_000_000_000_000
NOBODY = 65_534
SYSTEM_FILE = "/etc/passwd"


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
def not_root() -> Iterator[None]:
    """As any user, whom the system's files do not belong to."""
    before = os.geteuid()
    os.seteuid(before or NOBODY)
    yield
    os.seteuid(before)


@pytest.mark.usefixtures("not_root")
def test_what_belongs_to_another_user_is_read_all_the_same() -> None:
    descriptor = open_quietly(SYSTEM_FILE)
    assert os.read(descriptor, 1)
    os.close(descriptor)


def test_what_may_not_be_read_or_is_absent_is_said_as_ever(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        open_quietly(str(tmp_path / "absent"))
