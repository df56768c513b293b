"""Disks whose power can be cut, for a test: each is a FUSE mount of the process `disk_server`.

I/O: that process, mount points, loop devices where the kernel passes syncfs(2) on only for block devices.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.lab.real.power.fuse_mount import detach
from tests.lab.real.power.volatile_disk import CutResult, Rules

PROJECT = Path(__file__).parents[4]
DEVICE_BYTES = 1 << 20


def why_not() -> str:
    """The reason why no disk can be mounted here; empty when one can."""
    if os.geteuid() != 0:
        return "FUSE mounts need root"
    if not os.path.exists("/dev/fuse"):
        return "there is no /dev/fuse"
    if shutil.which("losetup") is None:
        return "losetup is not installed"
    return ""


class Disks:
    """`disks.mount("broker-1", path)`; at the end of a `with` block all are unmounted."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._paths: dict[str, str] = {}
        self._devices: dict[str, str] = {}
        self._serial = 0
        self._folder = Path(tempfile.mkdtemp(prefix="power-devices-"))
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.lab.real.power.disk_server"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=PROJECT, start_new_session=True,
            env={**os.environ, "PYTHONPATH": str(PROJECT)},
        )  # fmt: skip

    def mount(self, name: str, path: Path) -> Path:
        """An empty disk. OSError."""
        path.mkdir(parents=True, exist_ok=True)
        self._new_device(name)
        self._paths[name] = str(path)
        self._tell("mount", name, path=str(path), device=self._devices[name], rules=asdict(self._rules))
        return path

    def cut(self, name: str, seed: int) -> CutResult:
        """Drop what is not durable. Until `restore` every call on the disk fails with ENOTCONN."""
        return CutResult(**self._tell("cut", name, seed=seed))

    def restore(self, name: str) -> None:
        """Mount what the cut left. On another device: while a process has a file of the aborted mount open, mount(2) of
        the same device would succeed and give the aborted file system again."""
        before = self._devices[name]
        self._new_device(name)
        self._tell("restore", name, device=self._devices[name])
        _release([before])

    def dump(self, name: str, folder: Path, prefix: str = "") -> None:
        """Copy the files below `prefix`: the present content, without power that which the cut left."""
        self._tell("dump", name, folder=str(folder), prefix=prefix)

    def pause(self) -> None:
        """No disk answers from now on: calls to them wait, uninterruptibly, until `resume`."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def stats(self, name: str) -> dict[str, int]:
        return self._tell("stats", name)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for path in self._paths.values():
            detach(path)
        _release(self._devices.values())
        shutil.rmtree(self._folder, ignore_errors=True)

    def _new_device(self, name: str) -> None:
        self._serial += 1
        self._devices[name] = _loop_device(self._folder / f"{name}.{self._serial}")

    def _tell(self, do: str, name: str, **more: object) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"do": do, "name": name, **more}).encode() + b"\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise OSError(f"the process of the disks ended with exit code {self._process.wait()} at {do} {name}")
        return json.loads(line)


def _loop_device(file: Path) -> str:
    with file.open("wb") as made:
        made.truncate(DEVICE_BYTES)
    done = subprocess.run(["losetup", "--find", "--show", str(file)], check=True, capture_output=True, text=True)
    return done.stdout.strip()


def _release(devices: Iterable[str]) -> None:
    for device in devices:
        subprocess.run(["losetup", "--detach", device], check=False, capture_output=True)
