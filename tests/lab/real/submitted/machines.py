"""Network namespaces of this machine: each has an address, routes and sockets of its own, as another machine has.

I/O: `ip`, as root.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from tests.lab.real.processes.standalone_spark import LOOPBACK, Machine

SUBNET = "10.213.{0}.{1}"


def lacking() -> str:
    """Why there are no network namespaces here; "" when there are."""
    if shutil.which("ip") is None:
        return "no network namespaces here: they need iproute2"
    name = f"strata-try-{os.getpid()}"
    if _ip("netns", "add", name, check=False).returncode:
        return "no network namespaces here: they need root"
    _ip("netns", "delete", name)
    return ""


@contextmanager
def machines(count: int) -> Iterator[tuple[str, list[Machine]]]:
    """The address of this machine, and as many machines that reach it and each other; without root all are this one."""
    if lacking():
        yield LOOPBACK, [Machine()] * count
        return
    number = os.getpid() % 250
    bridge, here = f"strata-{number}", SUBNET.format(number, 1)
    names = [f"{bridge}-{index}" for index in range(count)]
    try:
        _ip("link", "add", bridge, "type", "bridge")
        _ip("address", "add", f"{here}/24", "dev", bridge)
        _ip("link", "set", bridge, "up")
        made = [_machine(name, bridge, SUBNET.format(number, index + 2)) for index, name in enumerate(names)]
        yield here, made
    finally:
        for name in names:
            _ip("link", "delete", name, check=False)  # a namespace goes later, when its last process is gone
            _ip("netns", "delete", name, check=False)
        _ip("link", "delete", bridge, check=False)


def _machine(name: str, bridge: str, address: str) -> Machine:
    """A namespace with a cable to the bridge."""
    inside = ("netns", "exec", name, "ip")
    _ip("netns", "add", name)
    _ip("link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", name)
    _ip("link", "set", name, "master", bridge, "up")
    _ip(*inside, "address", "add", f"{address}/24", "dev", "eth0")
    for device in ("lo", "eth0"):
        _ip(*inside, "link", "set", device, "up")
    return Machine(address, ("ip", "netns", "exec", name))


def _ip(*arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["ip", *arguments], check=check, capture_output=True, text=True)
