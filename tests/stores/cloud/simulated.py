"""A simulated cloud from the outside: it is started before a server, changed, and asked what it was asked.

I/O: a process (`relay`), and its control port.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from tests.stores.cloud.faults import CloudFault, FaultRule
from tests.stores.servers import StoreServer, free_port, versity_server, wait_until_it_listens

TIMEOUT_S = 60
ENDPOINTS = ("AWS_ENDPOINT_URL", "AZURE_STORAGE_ENDPOINT")
"""The variables of a server's environment that hold its address."""


@dataclass(frozen=True)
class CloudCounts:
    """What a simulated cloud was asked since the last reset; times in ms by kind of request.

    requests    by prefix and kind
    faults      requests that met one, by its name; `APPLIED_LATE`: late ones that the server has got
    slower      requests for which the server behind took longer than what was drawn
    """

    requests: Mapping[str, Mapping[str, int]]
    statuses: Mapping[str, int]
    faults: Mapping[str, int]
    p50_ms: Mapping[str, float]
    p99_ms: Mapping[str, float]
    least_ms: Mapping[str, float]
    sent_bytes: int
    received_bytes: int
    throttled: int
    slower: int

    @property
    def by_kind(self) -> Counter[str]:
        """The requests of all prefixes."""
        found = Counter[str]()
        for of_prefix in self.requests.values():
            found.update(of_prefix)
        return found

    @property
    def total(self) -> int:
        return self.by_kind.total()


class SimulatedCloud:
    """A running one. `url` stands for the server's own."""

    def __init__(self, url: str, control_port: int) -> None:
        self.url = url
        self._socket = socket.create_connection(("127.0.0.1", control_port), timeout=TIMEOUT_S)
        self._file = self._socket.makefile("rwb")

    def counts(self) -> CloudCounts:
        """What was asked since the last reset."""
        return CloudCounts(**self._order("counts"))

    def reset(self) -> None:
        """Count from now on."""
        self._order("reset")

    def fault(self, fault: CloudFault, *kinds: str, **more: Any) -> None:
        """Add a rule of faults; by default the next request of these kinds meets it."""
        self._order("fault", **FaultRule(fault, frozenset(kinds), **more).to_json())

    def no_faults(self) -> None:
        """Remove the rules, and release what is late."""
        self._order("no faults")

    def release(self) -> None:
        """Requests that are late are applied now."""
        self._order("release")

    def profile(self, name: str) -> None:
        """Times and rates from now on. RuntimeError names the profiles there are."""
        self._order("profile", name=name)

    def rates(self, writes_per_s: float, reads_per_s: float) -> None:
        """What each prefix takes from now on, instead of what the profile says; 0: without a bound."""
        self._order("rates", writes_per_s=writes_per_s, reads_per_s=reads_per_s)

    def clock_off(self, off_s: float) -> None:
        """Answers name times that are so much later from now on."""
        self._order("clock", off_s=off_s)

    def wait_until(self, holds: Callable[[CloudCounts], bool]) -> CloudCounts:
        """The first counts of which something holds. RuntimeError after a minute."""
        end_s = time.monotonic() + TIMEOUT_S
        while not holds(found := self.counts()):
            if time.monotonic() > end_s:
                raise RuntimeError(f"it does not hold after {TIMEOUT_S} s: {found}")
            time.sleep(0.01)
        return found

    def close(self) -> None:
        self._file.close()
        self._socket.close()

    def _order(self, do: str, **more: object) -> dict[str, Any]:
        self._file.write(json.dumps({"do": do, **more}).encode() + b"\n")
        self._file.flush()
        answer: dict[str, Any] = json.loads(self._file.readline())
        if not answer.pop("is_done"):
            raise RuntimeError(answer["error"])
        return answer


@contextmanager
def simulated_cloud(
    server_url: str, profile: str = "fast", *, seed: int = 0, prefix_depth: int = 0
) -> Iterator[SimulatedCloud]:
    """A cloud before the server at this URL.

    profile       of `profiles.toml`, or a constant time of all requests, as `25ms`
    prefix_depth  folders of a key by which requests are counted and throttled; 0: the bucket as a whole
    """
    port, control_port, server = free_port(), free_port(), urlsplit(server_url)
    ports = [str(port), str(control_port), str(server.port)]
    more = ["--profile", profile, "--seed", str(seed), "--prefix-depth", str(prefix_depth)]
    process = subprocess.Popen([sys.executable, "-m", "tests.stores.cloud.relay", *ports, *more])
    try:
        wait_until_it_listens(process, ("127.0.0.1", port))
        cloud = SimulatedCloud(server._replace(netloc=f"127.0.0.1:{port}").geturl(), control_port)
        try:
            yield cloud
        finally:
            cloud.close()
    finally:
        process.terminate()
        process.wait(30)


@contextmanager
def simulated_bucket(seed: int, profile: str = "0ms") -> Iterator[tuple[SimulatedCloud, str]]:
    """A bucket of versitygw as far as this profile, and an empty folder in it. Clients of this process, and of those
    that it starts, find it by the environment."""
    with versity_server() as server:
        name, url = endpoint_of(server)
        with simulated_cloud(url, profile, seed=seed) as cloud:
            changed = {**server.environment, name: cloud.url}
            before = {key: os.environ.get(key) for key in changed}
            os.environ.update(changed)
            try:
                yield cloud, server.new_root()
            finally:
                for key, value in before.items():
                    if value is None:
                        del os.environ[key]
                    else:
                        os.environ[key] = value


def endpoint_of(server: StoreServer) -> tuple[str, str]:
    """The variable that holds a server's address, and the address."""
    return next((name, server.environment[name]) for name in ENDPOINTS if name in server.environment)
