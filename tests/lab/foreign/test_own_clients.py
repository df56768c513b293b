"""Our own clients and tools from other processes than the brokers': a plain Python process, and one with Spark."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.foreign.served import Form, Served
from tests.lab.real.harness.broker_processes import ENVIRONMENT

pytestmark = pytest.mark.slow

CLIENTS = """
import sys
from stratalog import Admin, ClusterView, Consumer, GroupAdmin, LiveGroups, Producer, RemoteCluster, stratalog_session

root, mode, transport = sys.argv[1:]
through = {"stratalog.transport": transport}
spark = stratalog_session("clients") if mode == "spark" else None
topic = f"from-{mode}-{transport}" if transport != "auto" else f"from-{mode}"
Admin(root).create_topic(topic, 3, 3)
with RemoteCluster(root, through) as cluster:
    with Producer(cluster) as producer:
        sent = [producer.send(topic, b"%d" % number) for number in range(60)]
        assert len({future.result(60).offset for future in sent}) > 1
    with Producer(root) as producer:  # through the leaders' inboxes
        producer.send(topic, b"60").result(60)
    with Producer(root, {"transactional.id": topic, **through}) as producer:
        producer.init_transactions(60)
        for is_commit in (True, False):
            producer.begin_transaction()
            producer.send(topic, b"61")
            producer.commit_transaction(60) if is_commit else producer.abort_transaction(60)
    for protocol in ("classic", "consumer"):
        own = {"group.id": f"{protocol}-{mode}", "group.protocol": protocol, **through}
        read = {"auto.offset.reset": "earliest", "isolation.level": "read_committed"}
        with Consumer(root, {**own, **read}) as consumer:
            consumer.subscribe([topic])
            values = []
            while len(values) < 62:
                values += [int(record.value) for record in consumer.poll(1_000)]
            consumer.commit_sync()
        assert sorted(values) == list(range(62)), values
    view = ClusterView(root)
    groups = GroupAdmin(LiveGroups(cluster, view.clock, 30_000), view)
    assert {each.group_id for each in groups.list_groups()} >= {f"classic-{mode}", f"consumer-{mode}"}
if spark is not None:
    rows = spark.read.format("stratalog").option("stratalog.root", root).option("subscribe", topic)
    assert rows.load().count() >= 62
    spark.stop()
print("all read")
"""
TOOLS = (
    "topics --describe --topic from-python",
    "get-offsets --topic from-python",
    "groups --describe --group classic-python",
    "groups --reset-offsets --group classic-python --topic from-python --to-earliest --execute",
    "groups --delete-offsets --group classic-python --topic from-python:0",
    "groups --delete --group consumer-python",
    "consume --topic from-python --group console --from-beginning --max-messages 20",
    "transactions describe --transactional-id from-python",
    "transactions find-hanging --broker-id 1",
)


@pytest.fixture(scope="module", params=[Form.BROKERS, pytest.param(Form.CLUSTER, marks=pytest.mark.long)])
def served(request: pytest.FixtureRequest) -> Iterator[Served]:
    with Served(request.param) as made:
        yield made


def run(folder: Path, *command: str) -> str:
    """The output of a Python process; AssertionError when it fails."""
    environment = {**ENVIRONMENT, "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert done.returncode == 0, f"{command}: {done.stdout[-2_000:]}{done.stderr[-4_000:]}"
    return done.stdout


@pytest.mark.parametrize(
    ("mode", "transport"),
    [
        ("python", "auto"),
        ("python", "inbox"),
        pytest.param("spark", "auto", marks=pytest.mark.spark),
        pytest.param("spark", "inbox", marks=[pytest.mark.spark, pytest.mark.long]),
    ],
)
def test_clients_of_another_process(served: Served, mode: str, transport: str, tmp_path: Path) -> None:
    assert "all read" in run(tmp_path, "-c", CLIENTS, served.metadata_root, mode, transport)


def test_tools_of_another_process(served: Served, tmp_path: Path) -> None:
    root = ("--root", served.metadata_root)
    if "from-python" not in run(tmp_path, "-m", "stratalog", "topics", *root, "--list"):
        run(tmp_path, "-c", CLIENTS, served.metadata_root, "python", "auto")
    for tool in TOOLS:
        name, *flags = tool.split()
        run(tmp_path, "-m", "stratalog", name, *root, *flags)
