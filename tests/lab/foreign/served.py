"""A cluster for clients that others wrote: in processes of its own, on free ports of this machine, in a new folder.

In a `with` block. It comes in two forms: three processes of `jobs.broker`, or one of `jobs.cluster` with three brokers.
"""

from __future__ import annotations

import random
import shutil
import socket
import sys
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from enum import StrEnum
from functools import partial
from pathlib import Path
from struct import pack
from types import TracebackType
from typing import Self

from stratalog.wire.api_keys import ApiKey
from stratalog.wire.messages.frames import decode_response, encode_request
from stratalog.wire.messages.schema import request_type
from tests.domains import give_domain
from tests.lab.real.harness.broker_processes import BROKERS, BrokerProcess, ServerProcess
from tests.waiting import wait_until

HOST = "127.0.0.1"
SETTINGS = {
    "broker.session.timeout.ms": 3_000,
    "broker.heartbeat.interval.ms": 500,
    "replica.lag.time.max.ms": 3_000,
    "offsets.topic.num.partitions": 6,
    "transaction.state.log.num.partitions": 6,
    "group.initial.rebalance.delay.ms": 0,
}
"""What makes tests short: few coordinators to start, and a killed broker missed early."""
METADATA_VERSION = 1
CLUSTER_STARTED = "Running."
READY_S, ANSWER_S = 90, 5
FIRST_PORT, END_OF_PORTS = 10_000, 30_000
"""Ports below those that connections get by themselves: a killed broker's ports stay free until it is back."""


class Form(StrEnum):
    """How the brokers are spread over processes."""

    BROKERS = "brokers"
    CLUSTER = "cluster"


class Served:
    """A cluster of brokers 1 to 3; `bootstrap` is its `bootstrap.servers`. `with Served(Form.BROKERS) as served:`

    listeners  protocols of further listeners by name; `bootstrap_of` are their addresses
    keep      where logs are copied to when the block ends by an error, or `keep_logs` was called
    metrics   whether each broker's process serves metrics and health, at `metrics_port`
    """

    def __init__(
        self,
        form: Form,
        settings: Mapping[str, object] | None = None,
        *,
        fetcher: str = "thread",
        keep: Path | None = None,
        listeners: Mapping[str, str] | None = None,
        metrics: bool = False,
    ) -> None:
        self.form = form
        self._listeners = {"PLAINTEXT": "PLAINTEXT", **(listeners or {})}
        self.keep = keep
        self._has_metrics = metrics
        self._settings = {**SETTINGS, **(settings or {})}
        self._fetcher = fetcher
        self._ends = ExitStack()
        self._processes: dict[int, ServerProcess] = {}

    @property
    def bootstrap(self) -> str:
        """`bootstrap.servers`, every broker: host:port,..."""
        return ",".join(self.address(broker_id) for broker_id in BROKERS)

    def bootstrap_of(self, listener: str) -> str:
        """The same of another listener."""
        shift = len(BROKERS) * list(self._listeners).index(listener)
        return ",".join(f"{HOST}:{self._ports[broker_id] + shift}" for broker_id in BROKERS)

    def address(self, broker_id: int) -> str:
        """host:port of one broker."""
        return f"{HOST}:{self._ports[broker_id]}"

    def port(self, broker_id: int) -> int:
        return self._ports[broker_id]

    def metrics_port(self, broker_id: int) -> int:
        """Where a broker's process serves /metrics, /livez and the like."""
        return self._ports[broker_id] + len(BROKERS) * len(self._listeners)

    @property
    def metadata_root(self) -> str:
        return str(self.folder / "metadata")

    def process(self, broker_id: int) -> ServerProcess:
        """The process of a broker; in the form of one process, that of all."""
        return self._processes[broker_id]

    def __enter__(self) -> Self:
        self.folder = Path(self._ends.enter_context(tempfile.TemporaryDirectory(prefix="served-")))
        self._ports = dict(zip(BROKERS, free_ports(len(BROKERS) * (len(self._listeners) + 1)), strict=False))
        self._processes = self._made()
        give_domain(self.metadata_root)
        try:
            for each in self._distinct():
                each.start()
            self.await_ready()
        except BaseException:
            self._end(has_failed=True)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._end(has_failed=kind is not None)

    def await_ready(self, brokers: int = len(BROKERS)) -> None:
        """Return when each running process serves and each of its brokers answers Metadata with so many brokers."""
        for each in self._distinct():
            if each.is_running:
                each.await_started()
        for broker_id, process in self._processes.items():
            if process.is_running:
                what = f"{brokers} brokers in the Metadata response of broker {broker_id}"
                wait_until(partial(self._sees, broker_id, brokers), what, READY_S)

    def brokers_seen_by(self, broker_id: int) -> int:
        """How many brokers this broker's Metadata response names; 0 without an answer."""
        with suppress(OSError), socket.create_connection((HOST, self._ports[broker_id]), ANSWER_S) as connection:
            frame = encode_request(1, "served", {"topics": ()}, request_type(ApiKey.METADATA, METADATA_VERSION))
            connection.sendall(pack(">i", len(frame)) + frame)
            with connection.makefile("rb") as answers:
                size = int.from_bytes(answers.read(4), "big")
                answer = answers.read(size)
            if answer:
                return len(decode_response(answer, ApiKey.METADATA, METADATA_VERSION)[1].brokers)
        return 0

    def _sees(self, broker_id: int, brokers: int) -> bool:
        return self.brokers_seen_by(broker_id) == brokers

    def kill(self, broker_id: int) -> None:
        """SIGKILL to the process of a broker; in the form of one process, that ends every broker."""
        self._processes[broker_id].kill()

    def pause(self, broker_id: int) -> None:
        """SIGSTOP to the process of a broker."""
        self._processes[broker_id].pause()

    def resume(self, broker_id: int) -> None:
        """SIGCONT to the process of a broker."""
        self._processes[broker_id].resume()

    def restart(self, broker_id: int) -> None:
        """Start a broker's process again, at the ports it had, and wait until all running brokers are seen."""
        self._processes[broker_id].start()
        self.await_ready(sum(each.is_running for each in self._processes.values()))

    def stop(self) -> list[int]:
        """SIGTERM to every process; their exit codes."""
        return [each.stop() for each in self._distinct() if each.is_running]

    def log_files(self) -> list[Path]:
        """What the processes printed and logged."""
        return [*self.folder.glob("*.out"), *self.folder.glob("logs/*.log*"), *self.folder.glob("*/logs/*.log*")]

    def keep_logs(self) -> None:
        """Copy the output and the logs of all processes to `keep`."""
        if self.keep is None:
            return
        for file in self.log_files():
            target = self.keep / self.form / file.relative_to(self.folder)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, target)

    def _end(self, *, has_failed: bool) -> None:
        for each in self._distinct():
            if each.is_running:
                each.kill()
        if has_failed:
            self.keep_logs()
        self._ends.close()

    def _listening(self, first: int) -> dict[str, object]:
        """Of the broker whose first listener has this port; the others' follow in steps of the number of brokers."""
        ports = range(first, first + len(BROKERS) * len(self._listeners), len(BROKERS))
        found = (f"{name}://{HOST}:{port}" for name, port in zip(self._listeners, ports, strict=True))
        protocols = (f"{name}:{protocol}" for name, protocol in self._listeners.items())
        metrics = {"stratalog.metrics.port": first + len(BROKERS) * len(self._listeners)} if self._has_metrics else {}
        return {**metrics, "listeners": ",".join(found), "listener.security.protocol.map": ",".join(protocols)}

    def _distinct(self) -> list[ServerProcess]:
        return list(dict.fromkeys(self._processes.values()))

    def _made(self) -> dict[int, ServerProcess]:
        if self.form is Form.BROKERS:
            settings_by_id = {each: {**self._listening(port), **self._settings} for each, port in self._ports.items()}
            return {
                broker_id: BrokerProcess(self.folder, broker_id, settings, self._fetcher)
                for broker_id, settings in settings_by_id.items()
            }
        settings = {**self._listening(self._ports[1]), **self._settings}
        command = [sys.executable, "-m", "stratalog.jobs.cluster", "--path", str(self.folder)]
        command += ["--brokers", str(len(BROKERS)), "--fetcher", self._fetcher]
        command += [f"--override={name}={value}" for name, value in settings.items()]
        process = ServerProcess("cluster", command, self.folder / "cluster.out", CLUSTER_STARTED)
        return dict.fromkeys(BROKERS, process)


def free_ports(count: int) -> range:
    """Ports in a row that nobody listens at."""
    while True:
        first = random.randrange(FIRST_PORT, END_OF_PORTS - count)
        ports = range(first, first + count)
        if all(is_free(port) for port in ports):
            return ports


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True
