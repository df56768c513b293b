"""The file system that a bench's data lies on: one with a journal, which users have, or memory.

I/O: a sparse file, mkfs.ext4, mount and umount, as root; /proc and /sys.

A disk's own peculiarities (an ext4 without a journal, `discard` at each deletion, a network volume) decide more about
a latency than either side does. So both sides' data go to an ext4 with mkfs's defaults in a file that is mounted as a
loop device. Where that is not allowed they go to a tmpfs, else to the temporary folder; the report says which.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

VOLUME_GIB, FREE_GIB_MIN = 24, 12
"""The volume's size, and the free space that its sparse file needs at least [GiB]."""

JOURNALED = ("xfs", "btrfs")
SHARED_MEMORY = Path("/dev/shm")


@contextmanager
def data_folder() -> Iterator[Path]:
    """A folder for one run, also the temporary folder of this process and of those that it starts."""
    given = Path(tempfile.mkdtemp(prefix="stratalog-bench-"))
    volume = given / "volume"
    try:
        if has_journal(given) or kind_of(given) == "tmpfs":
            folder = given / "data"
        elif _mount(given / "volume.ext4", volume):
            folder = volume / "data"
        elif _free_gib(SHARED_MEMORY) >= FREE_GIB_MIN:
            folder = Path(tempfile.mkdtemp(prefix="stratalog-bench-", dir=SHARED_MEMORY))
        else:
            folder = given / "data"
        folder.mkdir(exist_ok=True)
        with _temporary_folder(folder):
            yield folder
        shutil.rmtree(folder, ignore_errors=True)
    finally:
        if os.path.ismount(volume):
            subprocess.run(["umount", "--lazy", volume], check=False)
        shutil.rmtree(given, ignore_errors=True)


def described(folder: Path) -> str:
    """The file system below `folder`, e.g. `ext4 with a journal on loop0 (a file on vda)`."""
    device, kind = _mounted(folder)
    name = Path(device).name
    backing = Path(f"/sys/block/{name}/loop/backing_file")
    under = f" (a file on {Path(_mounted(Path(_text(backing)).parent)[0]).name})" if backing.exists() else ""
    journal = (" with a journal" if has_journal(folder) else " without a journal") if kind == "ext4" else ""
    return f"{kind}{journal} on {name}{under}"


def has_journal(folder: Path) -> bool:
    """Whether the folder's file system journals its metadata."""
    device, kind = _mounted(folder)
    return kind in JOURNALED or (kind == "ext4" and any(Path("/proc/fs/jbd2").glob(f"{Path(device).name}-*")))


def kind_of(folder: Path) -> str:
    """The file system's type, as `mount` prints it."""
    return _mounted(folder)[1]


def _mounted(folder: Path) -> tuple[str, str]:
    """Device and type of the file system that holds the folder."""
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()]
    inside = [mount for mount in mounts if folder.resolve().is_relative_to(mount[1])]
    device, _, kind = max(inside, key=lambda mount: len(mount[1]))[:3]
    return device, kind


def _mount(image: Path, target: Path) -> bool:
    """Mount an ext4 with mkfs's defaults in a new sparse file; False and no trace where that is not allowed."""
    if os.geteuid() != 0 or _free_gib(image.parent) < FREE_GIB_MIN:
        return False
    target.mkdir()
    with image.open("wb") as file:
        file.truncate(VOLUME_GIB << 30)
    commands = (["mkfs.ext4", "-q", "-F", str(image)], ["mount", "-o", "loop", str(image), str(target)])
    with suppress(OSError, subprocess.CalledProcessError):
        for command in commands:
            subprocess.run(command, check=True, capture_output=True)
        return True
    image.unlink()
    return False


@contextmanager
def _temporary_folder(folder: Path) -> Iterator[None]:
    before = os.environ.get("TMPDIR")
    os.environ["TMPDIR"] = tempfile.tempdir = str(folder)
    try:
        yield
    finally:
        tempfile.tempdir = None
        del os.environ["TMPDIR"]
        if before is not None:
            os.environ["TMPDIR"] = before


def _free_gib(folder: Path) -> float:
    return shutil.disk_usage(folder).free / 2**30 if folder.is_dir() else 0.0


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8").strip()
