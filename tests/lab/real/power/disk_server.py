"""The process that holds the disks: `python -m tests.lab.real.power.disk_server`, one JSON command a line.

I/O: standard input and output, FUSE mounts. A mount must not be used by the process that serves it.
"""

from __future__ import annotations

import json
import os
import select
import sys
import time
from dataclasses import asdict
from typing import Any

from tests.lab.real.power.fuse_mount import FuseMount, detach, now_ms
from tests.lab.real.power.volatile_disk import Rules, VolatileDisk, tree_of

AGE_EVERY_S = 1.0


class DiskServer:
    """Disks by name. Without power a disk is not served and its mount answers ENOTCONN."""

    def __init__(self) -> None:
        self._mounts: dict[str, FuseMount] = {}
        self._dark: dict[str, tuple[VolatileDisk, FuseMount]] = {}
        self._devices: dict[str, str] = {}
        self._poll = select.poll()
        self._by_descriptor: dict[int, FuseMount] = {}

    def run(self) -> None:
        control = sys.stdin.fileno()
        self._poll.register(control, select.POLLIN)
        aged, waiting = time.monotonic(), b""
        while True:
            for descriptor, _ in self._poll.poll(200):
                if descriptor != control:
                    if descriptor in self._by_descriptor:
                        self._by_descriptor[descriptor].serve()
                    continue
                data = os.read(control, 65_536)
                if not data:
                    return
                *lines, waiting = (waiting + data).split(b"\n")
                for line in lines:
                    print(json.dumps(self._obey(json.loads(line))), flush=True)
            if time.monotonic() - aged > AGE_EVERY_S:
                aged = time.monotonic()
                for mount in self._mounts.values():
                    mount.disk.age(now_ms())

    def close(self) -> None:
        for mount in self._mounts.values():
            mount.abort()
            mount.unmount()
        for _, mount in self._dark.values():
            mount.unmount()

    def _obey(self, command: dict[str, Any]) -> dict[str, Any]:
        name = command["name"]
        match command["do"]:
            case "mount":
                self._devices[name] = command["device"]
                self._mount(name, command["path"], VolatileDisk(Rules(**command["rules"])))
            case "cut":
                mount = self._mounts.pop(name)
                self._poll.unregister(mount.descriptor)
                del self._by_descriptor[mount.descriptor]
                mount.abort()
                disk, result = mount.disk.after_cut(command["seed"])
                self._dark[name] = disk, mount
                return asdict(result)
            case "restore":
                disk, mount = self._dark.pop(name)
                mount.unmount()
                self._devices[name] = command["device"]
                self._mount(name, mount.path, disk)
            case "stats":
                mount = self._mounts[name]
                return {"requests": mount.requests, "inodes": len(mount.disk.inodes), "syncs": mount.disk.syncs,
                        "pending": sum(1 for _ in mount.disk.pending)}  # fmt: skip
            case "dump":
                disk = self._dark[name][0] if name in self._dark else self._mounts[name].disk
                for path, content in tree_of(disk, command["prefix"]):
                    os.makedirs(os.path.dirname(f"{command['folder']}/{path}"), exist_ok=True)
                    with open(f"{command['folder']}/{path}", "wb") as file:
                        file.write(content)
        return {}

    def _mount(self, name: str, path: str, disk: VolatileDisk) -> None:
        mount = self._mounts[name] = FuseMount(path, disk, self._devices[name])
        self._by_descriptor[mount.descriptor] = mount
        self._poll.register(mount.descriptor, select.POLLIN)


def main() -> int:
    server = DiskServer()
    try:
        server.run()
    finally:
        server.close()
    return 0


__all__ = ["DiskServer", "detach"]

if __name__ == "__main__":
    sys.exit(main())
