"""A standalone Spark cluster: a master and workers, each a process group of its own, and applications on it."""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.request import urlopen

import pyspark

from tests.lab.real.harness.broker_processes import PROJECT, ServerProcess
from tests.lab.real.processes.python_workers import running
from tests.waiting import wait_until

BIN = Path(sys.executable).parent
ENVIRONMENT = ("env", f"SPARK_HOME={Path(pyspark.__file__).parent}", f"PATH={BIN}:{os.environ['PATH']}")
LOOPBACK = "127.0.0.1"
MASTER = "org.apache.spark.deploy.master.Master"
WORKER = "org.apache.spark.deploy.worker.Worker"
EXECUTOR = "CoarseGrainedExecutorBackend"
SUBMITTED_SETTINGS = {
    "spark.pyspark.python": sys.executable,
    "spark.executor.memory": "512m",
    "spark.driver.host": LOOPBACK,
    "spark.ui.showConsoleProgress": "false",
}
"""The settings of an application on this cluster."""


def free_port(host: str = LOOPBACK) -> int:
    with socket.socket() as listener:
        listener.bind((host, 0))
        return int(listener.getsockname()[1])


@dataclass(frozen=True)
class Machine:
    """Where a worker runs: `prefix` is put before its command, as `unshare` is."""

    host: str = LOOPBACK
    prefix: tuple[str, ...] = ()


class Application:
    """An application to be submitted to the cluster: `launcher` is the command before the flags of `jobs/broker.py`."""

    def __init__(self, url: str, host: str, settings: Mapping[str, str]) -> None:
        self._ui = f"{host}:{(port := free_port(host))}"
        given = SUBMITTED_SETTINGS | {
            "spark.driver.host": host,
            "spark.driver.bindAddress": host,
            "spark.ui.enabled": "true",
            "spark.ui.port": str(port),
            **settings,
        }
        flags = [each for name, value in given.items() for each in ("--conf", f"{name}={value}")]
        submit = ("env", f"SPARK_CONF_DIR={PROJECT / 'conf'}", str(BIN / "spark-submit"), "--master", url)
        self.launcher = (*ENVIRONMENT, *submit, *flags, "jobs/broker.py")

    def executors(self) -> list[dict[str, Any]]:
        """Its executors, as its web interface describes them, without the driver."""
        base = f"http://{self._ui}/api/v1/applications"
        with urlopen(base, timeout=10) as answer:
            (application,) = json.load(answer)
        with urlopen(f"{base}/{application['id']}/executors", timeout=10) as answer:
            return [each for each in json.load(answer) if each["id"] != "driver"]

    def await_tasks_on(self, executors: int, timeout_s: float = 120) -> None:
        """Wait until tasks run on so many executors at once. An interface that does not answer in time is asked
        again."""

        def have_tasks() -> int:
            try:
                return sum(each["activeTasks"] > 0 for each in self.executors())
            except TimeoutError:
                return 0

        wait_until(
            lambda: have_tasks() >= executors,
            f"tasks on {executors} executors",
            timeout_s,
            pause_s=0.2,
        )


class StandaloneSpark:
    """A master and workers of so many cores each; ends with the `with` block. A worker's executors are in its process
    group: killed with it, as with its machine."""

    def __init__(
        self,
        folder: Path,
        machines: Sequence[Machine] = (Machine(), Machine()),
        cores: int = 2,
        memory: str = "1g",
        host: str = LOOPBACK,
    ) -> None:
        """`host`: where the master and the drivers are."""
        port = free_port(host)
        self.host = host
        self.url = f"spark://{host}:{port}"
        spark_class = (*ENVIRONMENT, str(BIN / "spark-class"))
        master = (*spark_class, MASTER, "--host", host, "--webui-port", "0", "--port", str(port))
        self.master = ServerProcess("master", master, folder / "master.out", "I have been elected leader")
        resources = ("--webui-port", "0", "--cores", str(cores), "--memory", memory, "--work-dir")
        self.workers = [
            ServerProcess(
                f"worker {number}",
                (
                    *(*machine.prefix, *spark_class, WORKER, "--host", machine.host),
                    *(*resources, str(folder / f"worker-{number}"), self.url),
                ),
                folder / f"worker-{number}.out",
                "Successfully registered with master",
            )
            for number, machine in enumerate(machines)
        ]

    def __enter__(self) -> Self:
        try:
            for process in (self.master, *self.workers):
                process.start()
                process.await_started()
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.kill()

    def kill(self) -> None:
        """Kill all that run."""
        for process in (*self.workers, self.master):
            if process.is_running:
                process.kill()

    def application(self, settings: Mapping[str, str] | None = None) -> Application:
        """A new application; the settings are over `SUBMITTED_SETTINGS`."""
        return Application(self.url, self.host, settings or {})

    def executor_processes(self) -> list[int]:
        """The process ids of the executors of all applications."""
        return [pid for worker in self.workers if worker.is_running for pid in running(EXECUTOR, worker.pid)]
