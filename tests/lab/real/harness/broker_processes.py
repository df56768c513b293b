"""Brokers in processes of their own (`python -m stratalog.jobs.broker`), to be started, paused, killed and stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from stratalog.replication.metadata.records import PartitionRecord
from stratalog.server.view.cluster_view import ClusterView
from tests.domains import give_domain
from tests.waiting import wait_until

PROJECT = Path(__file__).parents[4]
OWN_ENVIRONMENT = {"PYTHONPATH": str(PROJECT), "PYTHONUNBUFFERED": "1"}
ENVIRONMENT = {**os.environ, **OWN_ENVIRONMENT}
STARTED = "Started."
START_WAIT_S, STOP_WAIT_S = 90, 60
BROKERS = (1, 2, 3)
LAUNCHER = (sys.executable, "-m", "stratalog.jobs.broker")


class ServerProcess:
    """A server's process, or none: `start` it (again). Signals go to its process group: to Spark's JVM as well.
    In a `with` block it is started, and killed at the end."""

    def __init__(self, name: str, command: Sequence[str], output_file: Path, started: str = STARTED) -> None:
        """`started`: what it prints once it serves."""
        self.name = name
        self.output_file = output_file
        self.is_paused = False
        self._command = command
        self._started = started
        self._process: subprocess.Popen[bytes] | None = None
        self._output_begin = 0

    @property
    def is_running(self) -> bool:
        """There is a process, paused or not."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start a process; `await_started` waits until it serves."""
        assert not self.is_running
        self.output_file.parent.mkdir(parents=True, exist_ok=True)
        with self.output_file.open("ab") as output:
            self._output_begin = output.tell()
            self._process = subprocess.Popen(
                self._command,
                stdout=output,
                stderr=output,
                cwd=PROJECT,
                env={**os.environ, **OWN_ENVIRONMENT},  # a store's server may have been started meanwhile
                start_new_session=True,
            )
        self.is_paused = False

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def has_started(self) -> bool:
        return self._started in self.output()

    def await_started(self, timeout_s: float = START_WAIT_S) -> None:
        wait_until(lambda: self.has_started or not self.is_running, self.name, timeout_s)
        assert self.has_started, self.output()

    def output(self) -> str:
        """The text that the newest process printed."""
        with self.output_file.open("rb") as output:
            output.seek(self._output_begin)
            return output.read().decode(errors="replace")

    def kill(self) -> None:
        self._signal(signal.SIGKILL)
        assert self._process is not None
        self._process.wait(STOP_WAIT_S)
        self.is_paused = False

    def pause(self) -> None:
        self._signal(signal.SIGSTOP)
        self.is_paused = True

    def resume(self) -> None:
        self._signal(signal.SIGCONT)
        self.is_paused = False

    def restore(self) -> None:
        """Resume it if it is paused, start it if it ended."""
        if self.is_paused:
            self.resume()
        elif not self.is_running:
            self.start()

    def stop(self) -> int:
        """SIGTERM to the server itself; its exit code."""
        assert self._process is not None
        self._process.terminate()
        return self._process.wait(STOP_WAIT_S)

    def __enter__(self) -> Self:
        self.start()
        self.await_started()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        if self.is_running:
            self.kill()

    def wait(self, timeout_s: float = START_WAIT_S) -> int:
        """Wait until it ends by itself; its exit code."""
        assert self._process is not None
        return self._process.wait(timeout_s)

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        with suppress(ProcessLookupError):  # it ended by itself
            os.killpg(self._process.pid, number)


class BrokerProcess(ServerProcess):
    """One broker's process; it serves once it is part of the cluster."""

    def __init__(
        self,
        folder: Path,
        broker_id: int,
        settings: Mapping[str, object],
        fetcher: str,
        launcher: Sequence[str] = LAUNCHER,
    ) -> None:
        self.broker_id = broker_id
        self.root = folder / f"broker-{broker_id}"
        own = {"broker.id": broker_id, "log.dirs": self.root, "stratalog.metadata.root": folder / "metadata"}
        overrides = [f"--override={name}={value}" for name, value in {**own, **settings}.items()]
        command = [*launcher, "--fetcher", fetcher, *overrides]
        super().__init__(f"broker {broker_id}", command, folder / f"broker-{broker_id}.out")


class BrokerProcesses:
    """The brokers of one cluster, each a process, below one folder. At the end of a `with` block all are killed."""

    def __init__(
        self,
        folder: Path,
        settings: Mapping[str, object] | None = None,
        fetcher: str = "thread",
        broker_ids: tuple[int, ...] = BROKERS,
        launcher: Sequence[str] = LAUNCHER,
    ) -> None:
        self.folder = folder
        self.metadata_root = str(folder / "metadata")
        self.by_id = {i: BrokerProcess(folder, i, settings or {}, fetcher, launcher) for i in broker_ids}

    def __getitem__(self, broker_id: int) -> BrokerProcess:
        return self.by_id[broker_id]

    def start(self) -> Self:
        """Start all at once, as after a power cut; returns when all are part of the cluster."""
        give_domain(self.metadata_root)
        for broker in self.by_id.values():
            broker.start()
        for broker in self.by_id.values():
            broker.await_started()
        return self

    def restore(self) -> None:
        """Resume paused brokers, start those that ended."""
        for broker in self.by_id.values():
            broker.restore()

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.kill()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.kill()

    def kill(self) -> None:
        """Kill all that run."""
        for broker in self.by_id.values():
            if broker.is_running:
                broker.kill()


class ClusterWatch:
    """The metadata log, folded by this process."""

    def __init__(self, metadata_root: str, topic: str) -> None:
        self._view = ClusterView(metadata_root)
        self._topic = topic

    def controller(self) -> int:
        self._view.refresh()
        return self._view.image.controller_id

    def leaders(self) -> list[int]:
        """The leader of each partition, in order."""
        return [state.leader for state in self._states()]

    def leader_epochs(self) -> int:
        """How often a partition's leader epoch went up, over all partitions."""
        return sum(state.leader_epoch for state in self._states())

    def is_in_sync(self) -> bool:
        """Every replica is in its ISR, and every partition has a leader."""
        return all(set(state.isr) == set(state.replicas) and state.leader in state.isr for state in self._states())

    def await_in_sync(self, timeout_s: float = 120) -> float:
        """Wait for it; how many seconds it took."""
        begun = time.monotonic()
        wait_until(self.is_in_sync, "all replicas in sync", timeout_s)
        return time.monotonic() - begun

    def _states(self) -> list[PartitionRecord]:
        self._view.refresh()
        image = self._view.image
        return [image.partition(tp) for tp in sorted(image.partitions_of(self._topic))]
