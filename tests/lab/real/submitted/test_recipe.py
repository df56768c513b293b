"""The commands of docs/operate.md for machines without the package, run as they stand there.

The Python of drivers and executors is one into which nothing is installed.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from stratalog.clients.admin.admin import Admin
from stratalog.clients.producer.producer import Producer
from stratalog.server.admin.admin import NewTopic
from tests.docs.pages import Page
from tests.lab.real.harness.broker_processes import BROKERS, PROJECT, ClusterWatch, ServerProcess
from tests.lab.real.harness.parties import replicas_are_equal
from tests.lab.real.processes.standalone_spark import ENVIRONMENT, StandaloneSpark
from tests.lab.real.submitted.submitted_brokers import SUBMIT_WAIT_S, WORKER_CORES

PAGE = Path("docs/operate.md")
PYTHON = Path(sys.base_prefix) / "bin" / "python3"
IN_PLACE_OF = {"make wheel": f"python3 -m pip wheel --quiet --no-deps --wheel-dir dist {PROJECT}"}
"""`make wheel` writes into the checkout."""
TOPIC = "orders"
MEMORY = f"{len(BROKERS)}g"
"""Memory of a worker, for an executor of each broker: the commands leave `spark.executor.memory` at Spark's 1 GiB."""

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.spark, pytest.mark.timeout(900)]


def recipe(mark: str) -> str:
    """The shell block of the page that contains this."""
    page = Page(PAGE, (PROJECT / PAGE).read_text(encoding="utf-8"))
    (text,) = (block.text for block in page.blocks if mark in block.text)
    return text


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder as a checkout's, in which the packages are packed."""
    for name in ("jobs", "conf"):
        (tmp_path / name).symlink_to(PROJECT / name)
    commands = recipe("tar -czf packages.tar.gz")
    for command, instead in IN_PLACE_OF.items():
        assert command in commands
        commands = commands.replace(command, instead)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment["PATH"] = f"{PYTHON.parent}:{environment['PATH']}"
    subprocess.run(["bash", "-ec", commands], cwd=tmp_path, env=environment, check=True, timeout=400)
    return tmp_path


@pytest.fixture
def brokers(folder: Path, standalone: StandaloneSpark) -> Iterator[dict[int, ServerProcess]]:
    """Three brokers, each by the page's command."""
    made = {}
    for broker_id in BROKERS:
        command = recipe("--archives").replace("spark://master:7077", standalone.url)
        command = command.replace("s3://lake", str(folder)).replace("broker.id=1", f"broker.id={broker_id}")
        command = command.replace("broker-1", f"broker-{broker_id}")
        inside = (*ENVIRONMENT, f"PYSPARK_PYTHON={PYTHON}", "env", "-C", str(folder), "bash", "-c", command)
        made[broker_id] = ServerProcess(f"broker {broker_id}", inside, folder / f"broker-{broker_id}.out")
    try:
        for process in made.values():
            process.start()
            process.await_started(SUBMIT_WAIT_S)
        yield made
    finally:
        for process in made.values():
            if process.is_running:
                process.kill()


@pytest.fixture
def standalone(tmp_path: Path) -> Iterator[StandaloneSpark]:
    with StandaloneSpark(tmp_path / "spark", cores=WORKER_CORES, memory=MEMORY) as running:
        yield running


def test_brokers_run_from_an_archive(folder: Path, brokers: dict[int, ServerProcess]) -> None:
    assert subprocess.run([PYTHON, "-c", "import stratalog"], cwd=folder, check=False, capture_output=True).returncode
    root = str(folder / "metadata")
    Admin(root).create_topics([NewTopic(TOPIC, 3, 3, {"min.insync.replicas": 3})])
    ClusterWatch(root, TOPIC).await_in_sync()
    assert all("follower fetch by spark" in process.output() for process in brokers.values())
    with Producer(root, acks="all") as producer:
        sent = [producer.send(TOPIC, f"order {i}", key=str(i)) for i in range(30)]
        assert all(each.result(60).offset >= 0 for each in sent)
    assert replicas_are_equal(folder, TOPIC, BROKERS, 3)
