"""A standalone Spark cluster on this machine: a master and workers, each a process group of its own."""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.request import urlopen

import pyspark

from tests.real.processes.broker_processes import PROJECT, ServerProcess
from tests.real.processes.python_workers import running
from tests.waiting import wait_until

BIN = Path(sys.executable).parent
ENVIRONMENT = ("env", f"SPARK_HOME={Path(pyspark.__file__).parent}", f"PATH={BIN}:{os.environ['PATH']}")
MASTER = "org.apache.spark.deploy.master.Master"
WORKER = "org.apache.spark.deploy.worker.Worker"
EXECUTOR = "CoarseGrainedExecutorBackend"
SUBMITTED_SETTINGS = {
    "spark.pyspark.python": sys.executable,
    "spark.executor.memory": "512m",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.showConsoleProgress": "false",
}
"""The settings of an application on this cluster."""


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


class StandaloneSpark:
    """A master and workers of so many cores each; ends with the `with` block. A worker's executors are in its process
    group: killed with it, as with its machine."""

    def __init__(self, folder: Path, workers: int = 2, cores: int = 2, prefix: Sequence[str] = ()) -> None:
        """`prefix`: put before the command of each worker, as `unshare` is."""
        self._port, self.ui_port = free_port(), free_port()
        self.url = f"spark://127.0.0.1:{self._port}"
        at = ("--host", "127.0.0.1", "--webui-port", "0")
        spark_class = (*ENVIRONMENT, str(BIN / "spark-class"))
        master = (*spark_class, MASTER, *at, "--port", str(self._port))
        self.master = ServerProcess("master", master, folder / "master.out", "I have been elected leader")
        worker = (*prefix, *spark_class, WORKER, *at, "--cores", str(cores), "--memory", "1g", "--work-dir")
        self.workers = [
            ServerProcess(
                f"worker {number}",
                (*worker, str(folder / f"worker-{number}"), self.url),
                folder / f"worker-{number}.out",
                "Successfully registered with master",
            )
            for number in range(workers)
        ]

    def __enter__(self) -> Self:
        for process in (self.master, *self.workers):
            process.start()
            process.await_started()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        for process in (*self.workers, self.master):
            if process.is_running:
                process.kill()

    @property
    def launcher(self) -> tuple[str, ...]:
        """A command before the flags of `jobs/broker.py`: spark-submit to this cluster."""
        settings = SUBMITTED_SETTINGS | {"spark.ui.enabled": "true", "spark.ui.port": str(self.ui_port)}
        flags = [each for name, value in settings.items() for each in ("--conf", f"{name}={value}")]
        submit = ("env", f"SPARK_CONF_DIR={PROJECT / 'conf'}", str(BIN / "spark-submit"), "--master", self.url)
        return (*ENVIRONMENT, *submit, *flags, "jobs/broker.py")

    def executor_processes(self) -> list[int]:
        """The process ids of the executors of all applications."""
        return [pid for worker in self.workers if worker.is_running for pid in running(EXECUTOR, worker.pid)]

    def executors(self) -> list[dict[str, Any]]:
        """The executors of the submitted application, as its web interface describes them, without the driver."""
        base = f"http://127.0.0.1:{self.ui_port}/api/v1/applications"
        with urlopen(base, timeout=10) as answer:
            (application,) = json.load(answer)
        with urlopen(f"{base}/{application['id']}/executors", timeout=10) as answer:
            return [each for each in json.load(answer) if each["id"] != "driver"]

    def await_tasks_on(self, executors: int, timeout_s: float = 120) -> None:
        """Wait until tasks run on so many executors at once."""
        wait_until(
            lambda: sum(each["activeTasks"] > 0 for each in self.executors()) >= executors,
            f"tasks on {executors} executors",
            timeout_s,
        )
