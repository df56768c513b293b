"""The statements that the SQL page begins with, in the console and in Spark: the same rows.

    python -m tests.lab.console.statements

I/O: a cluster on disk, the console's engine, a Spark session. Exit code 1 for a difference.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from stratalog.clients.admin.admin import Admin
from stratalog.clients.admin.groups import GroupAdmin, LiveGroups
from stratalog.clients.console.asker import Asker
from stratalog.clients.console.sql.sql import EXAMPLES, sql_answer
from stratalog.clients.producer.producer import Producer
from stratalog.clients.records import OffsetAndMetadata
from stratalog.clients.spark.sql.cluster_views import create_cluster_views
from stratalog.clients.spark.sql.committed_view import create_committed_view
from stratalog.jobs.command.opened import OpenedCluster
from stratalog.replication.metadata.acls import Principal
from stratalog.replication.spark.session import stratalog_session
from stratalog.server.cluster import Cluster
from stratalog.server.view.cluster_view import ClusterView
from stratalog.storage.clock import SystemClock
from stratalog.storage.records import TopicPartition

SETTINGS = {"offsets.topic.num.partitions": 2}
STATEMENTS = (
    *EXAMPLES,
    "SELECT topic, partition, leader, isr FROM partitions",
    (
        "SELECT o.partition, count(*) AS records, min(o.offset) AS first FROM orders o JOIN leader_epochs e "
        "ON e.topic = o.topic AND e.partition = o.partition AND e.leader_epoch = o.leaderEpoch GROUP BY o.partition"
    ),
)


def fill(cluster: Cluster) -> ClusterView:
    """Records, and groups that are behind."""
    view = ClusterView(cluster)
    Admin(cluster).create_topic("orders", 3, 2)
    with Producer(cluster) as producer:
        for n in range(300):
            producer.send("orders", key=str(n), value=f"order {n}", partition=n % 3)
    groups = GroupAdmin(LiveGroups(cluster, SystemClock(), 20_000), view)
    for number, group in enumerate(("billing", "shipping")):
        offsets = {TopicPartition("orders", each): OffsetAndMetadata(10 * number) for each in range(3)}
        groups.alter_offsets(group, offsets)
    view.refresh()
    return view


def run(folder: Path) -> list[str]:
    """What differs."""
    findings = []
    with Cluster.start(str(folder / "cluster"), 3, fetcher="thread", config=SETTINGS) as cluster:
        view = fill(cluster)
        asker = Asker(OpenedCluster(view, Admin(cluster, view=view), {}), Principal(), None, int(time.time() * 1_000))
        spark = stratalog_session("stratalog-statements", log_dir=folder)
        create_cluster_views(spark, cluster.root)
        create_committed_view(spark, cluster.root, "orders", "orders")
        for each in STATEMENTS:
            rows = sorted(repr([plain(value) for value in row]) for row in spark.sql(each).collect())
            ours = sorted(repr([plain(value) for value in row]) for row in sql_answer(asker, each, 1_000).rows)
            print(f"{len(ours)} rows, {len(rows)} in Spark: {each}")
            if rows != ours:
                findings.append(f"{each}: {ours[:3]} is {rows[:3]} in Spark")
        spark.stop()
    return findings


def plain(value: object) -> object:
    """Lists of either engine are the same."""
    return [plain(each) for each in value] if isinstance(value, list | tuple) else value


def main() -> int:
    """The exit code."""
    with tempfile.TemporaryDirectory(prefix="statements-") as folder:
        findings = run(Path(folder))
    print("\n".join(findings))
    print(f"{len(STATEMENTS)} statements, {len(findings)} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
