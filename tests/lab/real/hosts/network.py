"""Hosts of a network on one machine: each a network namespace with an address, joined by a switch; links that are cut.

I/O: `ip netns`, as root. A cut is silent, as a broken cable is: packets go to a hardware address that nobody has, so
connections hang until their own deadlines, and nothing is refused. A cut drops packets in one direction; that is
enough to stop a TCP connection, which needs both.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count, islice
from types import MappingProxyType

SWITCH, PREFIX, BITS = "switch", "10.77.0", 24
NOBODY = "02:00:00:00:00:ff"
"""A hardware address that no host has."""
INSIDE = "STRATALOG_LAB_HOST"
"""Set in the environment of a process that `run_in` has started, to its host's namespace."""
NO_MORE: Mapping[str, int] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Host:
    """A network namespace, named `<network>-<name>`. A host may have several addresses, and each can be cut alone. The
    connections that it opens have the first one as their source."""

    namespace: str
    addresses: tuple[str, ...]

    @property
    def address(self) -> str:
        return self.addresses[0]

    @property
    def launcher(self) -> tuple[str, ...]:
        """The words to put before a command, so that it runs in this namespace."""
        return ("ip", "netns", "exec", self.namespace)


class Network:
    """The hosts of a run by name, and the cuts between them. Their addresses are 10.77.0.1 and so on."""

    def __init__(self, name: str, hosts: Sequence[str], addresses_of: Mapping[str, int] = NO_MORE) -> None:
        """`name`: of at most five letters; networks of one name are not there at a time. `addresses_of`: the number of
        addresses of hosts that have several."""
        self.name = name
        self.hosts: dict[str, Host] = {}
        numbers = count(1)
        for each in hosts:
            taken = islice(numbers, addresses_of.get(each, 1))
            self.hosts[each] = Host(f"{name}-{each}", tuple(f"{PREFIX}.{number}" for number in taken))

    def __getitem__(self, name: str) -> Host:
        return self.hosts[name]

    def cut(self, name: str, addresses: Iterable[str]) -> None:
        """Drop all packets from this host to these addresses, until `mend`."""
        for address in addresses:
            _ip(*self._neighbour("replace", name, address), "lladdr", NOBODY, "nud", "permanent")

    def mend(self, name: str, addresses: Iterable[str]) -> None:
        """Undo `cut`: packets from this host to these addresses are delivered again."""
        for address in addresses:
            _ip(*self._neighbour("del", name, address))

    def _neighbour(self, verb: str, name: str, address: str) -> list[str]:
        return ["-n", self[name].namespace, "neigh", verb, address, "dev", "eth0"]


@contextmanager
def built(network: Network) -> Iterator[None]:
    """Make the namespaces and links of a network for the block, and delete them after it. Needs root."""
    switch = f"{network.name}-{SWITCH}"
    try:
        _ip("netns", "add", switch)
        _ip("-n", switch, "link", "add", "br0", "type", "bridge")
        _ip("-n", switch, "link", "set", "br0", "up")
        for number, host in enumerate(network.hosts.values(), 1):
            _join(host, switch, f"{network.name}{number}")
        yield
    finally:
        for namespace in (*(host.namespace for host in network.hosts.values()), switch):
            _ip("netns", "del", namespace, is_checked=False)


def _join(host: Host, switch: str, link: str) -> None:
    _ip("netns", "add", host.namespace)
    _ip("link", "add", link, "type", "veth", "peer", "name", f"{link}p")
    _ip("link", "set", f"{link}p", "netns", switch)
    _ip("-n", switch, "link", "set", f"{link}p", "master", "br0", "up")
    _ip("link", "set", link, "netns", host.namespace)
    _ip("-n", host.namespace, "link", "set", link, "name", "eth0")
    for address in host.addresses:
        _ip("-n", host.namespace, "addr", "add", f"{address}/{BITS}", "dev", "eth0")
    for device in ("lo", "eth0"):
        _ip("-n", host.namespace, "link", "set", device, "up")


def run_in(host: Host, module: str, arguments: Sequence[str]) -> int:
    """Run a module of the project on a host; its exit code."""
    command = [*host.launcher, sys.executable, "-m", module, *arguments]
    return subprocess.run(command, env={**os.environ, INSIDE: host.namespace}, check=False).returncode


def _ip(*words: str, is_checked: bool = True) -> None:
    found = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if is_checked and found.returncode:
        raise RuntimeError(f"ip {' '.join(words)}: {found.stderr.strip()}")
