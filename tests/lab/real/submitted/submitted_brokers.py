"""Three brokers, each an application of its own on a standalone Spark cluster (`spark-submit jobs/broker.py`).

I/O: processes; the roots, which are folders or on an S3 server.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from pathlib import Path

from stratalog.server.remote.remote_cluster import RemoteCluster
from stratalog.storage.objects.opened import open_store
from tests.lab.real.harness.broker_processes import BROKERS, BrokerProcess
from tests.lab.real.processes.python_workers import running
from tests.lab.real.processes.standalone_spark import StandaloneSpark
from tests.waiting import wait_until

EXECUTOR_CORES, EXECUTORS = 2, 2
RESOURCES = {"spark.cores.max": str(EXECUTOR_CORES * EXECUTORS), "spark.executor.cores": str(EXECUTOR_CORES)}
"""An executor on each of two workers, with a slot for a fetch session and one for what comes after it."""
SUBMIT_WAIT_S = 240
"""Time for a broker to start: its JVM, its executors and their look at all roots."""
WORKER_CORES, WORKER_MEMORY = EXECUTOR_CORES * len(BROKERS), "2g"


class SubmittedBrokers(RemoteCluster):
    """The cluster of these brokers, for clients of other processes, with the calls that the demo makes of its cluster.

    url          the parent of all roots; `folder` itself where they are local
    environment  of drivers and executors: where the object store is
    """

    def __init__(
        self,
        folder: Path,
        url: str,
        spark: StandaloneSpark,
        settings: Mapping[str, object],
        environment: Mapping[str, str],
    ) -> None:
        of_executors = {f"spark.executorEnv.{name}": value for name, value in environment.items()}
        self.folder = folder
        self.url = url
        self.environment = environment
        self.applications = {i: spark.application(RESOURCES | of_executors) for i in BROKERS}
        variables = ("env", *(f"{name}={value}" for name, value in environment.items()))
        self.processes = {
            i: BrokerProcess(
                folder,
                i,
                {**settings, "log.dirs": f"{url}/broker-{i}", "stratalog.metadata.root": f"{url}/metadata"},
                "spark",
                (*variables, *application.launcher),
            )
            for i, application in self.applications.items()
        }
        try:
            for process in self.processes.values():  # one after the other: a start takes all processors
                process.start()
                process.await_started(SUBMIT_WAIT_S)
        except BaseException:
            self._kill_all()
            raise
        super().__init__(f"{url}/metadata")

    def await_sessions_on_both(self) -> None:
        """Wait until fetch sessions of each broker run on two executors."""
        for application in self.applications.values():
            application.await_tasks_on(EXECUTORS)

    def kill(self, broker_id: int) -> None:
        self.processes[broker_id].kill()

    def restart(self, broker_id: int) -> None:
        self.processes[broker_id].start()
        self.processes[broker_id].await_started(SUBMIT_WAIT_S)

    def stop(self) -> None:
        """Stop all in order. What lies on an object store is copied to `folder` then, where a reader compares it."""
        drivers = {i: running("jobs/broker.py", process.pid) for i, process in self.processes.items()}
        for pids in drivers.values():
            for pid in pids:
                os.kill(pid, signal.SIGTERM)
        for process in self.processes.values():
            wait_until(lambda: not process.is_running, f"the end of {process.name}")  # noqa: B023
        if self.url != str(self.folder):
            for broker_id in BROKERS:
                download(f"{self.url}/broker-{broker_id}", self.folder / f"broker-{broker_id}")

    def close(self) -> None:
        self._kill_all()
        super().close()

    def _kill_all(self) -> None:
        for process in self.processes.values():
            if process.is_running:
                process.kill()


def download(url: str, folder: Path) -> None:
    """Copy all objects below a root to a folder."""
    store = open_store(url)
    for each in store.list(""):
        path = folder / each.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(store.get(each.path))
