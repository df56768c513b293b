"""Replicas are verified while records are produced, files are merged and a leader dies: no false alarm, and a flipped
bit is found."""

from __future__ import annotations

from pathlib import Path

import pytest

from stratalog.clients.admin.admin import Admin
from stratalog.clients.admin.replica_comparison import UnmatchedRecord
from stratalog.clients.admin.replica_verification import PartitionVerified, ReplicaVerification
from stratalog.server.admin.admin import NewTopic
from stratalog.server.cluster import Cluster
from stratalog.server.view.cluster_view import ClusterView
from stratalog.storage.clock import RandomIds, SystemClock
from stratalog.storage.delta.delta_table import DeltaLogTable
from stratalog.storage.log.partition_log import PartitionLog
from stratalog.storage.objects.opened import open_store
from stratalog.storage.records import TopicPartition
from stratalog.storage.topic_config import LogConfig
from tests.clients.admin.test_replica_verification import one_other_bit
from tests.lab.real.harness.history import ACK, History, assert_clean
from tests.lab.real.harness.parties import Writer
from tests.waiting import wait_until

SETTINGS = {
    "broker.session.timeout.ms": 1_500,
    "broker.heartbeat.interval.ms": 300,
    "replica.lag.time.max.ms": 2_000,
    "stratalog.upkeep.interval.ms": 50,
}
PARTITIONS = 2
TP = TopicPartition("t", 0)


@pytest.mark.slow
def test_no_false_alarm_while_the_cluster_works_and_a_flipped_bit_is_found(tmp_path: Path) -> None:
    history = History(tmp_path / "history.jsonl")
    with Cluster.start(tmp_path / "cluster", fetcher="thread", config=SETTINGS) as cluster:
        Admin(cluster).create_topics([NewTopic("t", PARTITIONS, 3, {"segment.files.max": 40})])
        view = ClusterView(cluster.root)
        verification = ReplicaVerification(view, view.partitions("t"), fetch_bytes=10_000)

        def passed(at_least: int) -> bool:
            """Make a pass; True when every partition has been verified to this number of records."""
            seen = list(verification.run())
            assert [finding for each in seen for finding in each.findings] == []
            return all(each.offset >= at_least for each in seen)

        with Writer(cluster, "t", history, "w", pause_s=0.001):
            wait_until(lambda: passed(150), "150 records of each partition")
            leader = view.leader(TP)
            cluster.kill(leader)
            wait_until(lambda: view.refresh() and view.leader(TP) not in (leader, -1), "another leader")
            enough = history.counts[ACK] + 200
            wait_until(lambda: history.counts[ACK] > enough, "200 more acknowledgements")
            cluster.restart(leader)
            sent = max(each.offset for each in verification.run()) + 100
            wait_until(lambda: passed(sent), "all replicas to be verified again")
    assert_clean(history.events())
    flip_and_find(cluster)


def flip_and_find(cluster: Cluster) -> None:
    """While the brokers are down, one bit of one record of one replica is flipped, with right checksums."""
    root = str(cluster.path / "broker-3")
    log = PartitionLog(DeltaLogTable(open_store(root), "t-0", RandomIds()), LogConfig(), SystemClock(), RandomIds())
    log.refresh()
    one_other_bit(log, 123)
    verified = run_once(cluster)[TP]
    found = {finding for finding in verified.findings if isinstance(finding, UnmatchedRecord)}
    assert len(found) == len(verified.findings)
    assert {finding.offset for finding in found} == {123}
    assert all(3 in (finding.first_replica, finding.second_replica) for finding in found)


def run_once(cluster: Cluster) -> dict[TopicPartition, PartitionVerified]:
    view = ClusterView(cluster.root)
    return {each.topic_partition: each for each in ReplicaVerification(view, view.partitions("t")).run()}
