"""The metadata root is lost and restored from an older backup: real brokers continue with all acknowledged records."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from stratalog.clients.admin.admin import Admin
from stratalog.clients.consumer.consumer import Consumer
from stratalog.clients.producer.producer import Producer
from stratalog.jobs.replicas.metadata import backup, main, restore
from stratalog.jobs.replicas.replica_verification import main as verify_replicas
from stratalog.replication.metadata.backup.backup import decode_backup
from stratalog.replication.stores import DeltaStores
from stratalog.server.cluster import Cluster
from stratalog.storage.clock import RandomIds, SystemClock
from stratalog.storage.errors import CorruptMessageError, InvalidRequestError, KafkaStorageError
from stratalog.storage.log.partition_log import PartitionLog
from stratalog.storage.log.state import SEALED_EPOCH
from stratalog.storage.records import TopicPartition
from stratalog.storage.topic_config import LogConfig
from tests.domains import only_in_roots
from tests.waiting import wait_until

SETTINGS = {
    "broker.session.timeout.ms": 1_500,
    "broker.heartbeat.interval.ms": 300,
    "replica.lag.time.max.ms": 2_000,
    "default.replication.factor": 3,
}
LOOK_MS = 700
"""A wait longer than two heartbeats of these brokers."""
OLD, NEW = TopicPartition("old", 0), TopicPartition("new", 0)


def start(path: Path, further: Mapping[str, object] | None = None) -> Cluster:
    return Cluster.start(path, fetcher="thread", config={**SETTINGS, **(further or {})})


def send(cluster: Cluster, topic: str, count: int, prefix: str) -> list[bytes]:
    """Send values, acknowledged by all in-sync replicas; returns them."""
    values = [f"{prefix}-{number}".encode() for number in range(count)]
    with Producer(cluster, acks="all") as producer:
        for future in [producer.send(topic, value, partition=0) for value in values]:
            future.result(30)
    return values


def read(cluster: Cluster, place: TopicPartition, count: int) -> list[bytes]:
    with Consumer(cluster, auto_offset_reset="earliest") as consumer:
        consumer.assign([place])
        found: list[bytes] = []
        wait_until(lambda: bool(found.extend(r.value or b"" for r in consumer.poll(100))) or len(found) >= count, "all")
        return found


def restored(path: Path, *flags: str, look_ms: int = 0) -> None:
    given = main.parse(["restore", "--root", str(path / "metadata"), "--input", str(path / "backup"), *flags])
    restore(given, look_ms)


@pytest.mark.slow
def test_brokers_continue_after_an_older_metadata_log_was_restored(
    cluster_root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """After the backup another leader acknowledges alone, a topic is created, and the whole cluster is killed."""
    only_in_roots("topics that are not in the backup are found")
    with start(cluster_root) as cluster:
        admin = Admin(cluster)
        admin.create_topic("old", min_insync_replicas=1, retention_ms=-1)
        acked = send(cluster, "old", 20, "before")
        backup(cluster.root, str(cluster_root / "backup"))
        first = admin.describe_topics(["old"])["old"].partitions[0].leader
        cluster.kill(first)
        acked += send(cluster, "old", 20, "second leader")
        others = sorted(cluster.brokers())
        leader = admin.describe_topics(["old"])["old"].partitions[0].leader
        last = next(broker for broker in others if broker != leader)
        cluster.kill(last)
        wait_until(lambda: admin.describe_topics(["old"])["old"].partitions[0].isr == (leader,), "the last in sync")
        acked += send(cluster, "old", 20, "alone")
        cluster.restart(first)
        cluster.restart(last)
        admin.create_topic("new")
        acked_new = send(cluster, "new", 10, "new")
        before = admin.describe_topics()
        with pytest.raises(InvalidRequestError, match="holds __cluster_metadata-0"):
            restored(cluster_root)
        for broker in sorted(cluster.brokers()):
            cluster.kill(broker)
    shutil.rmtree(cluster_root / "metadata")

    restored(cluster_root, "--dry-run")
    assert not (cluster_root / "metadata").exists()
    restored(cluster_root)
    lines = capsys.readouterr().out.splitlines()
    assert (
        lines[-2] == "topic new is not in the backup: taken in from its tables on brokers 1,2,3, with default configs"
    )
    assert lines[-1].startswith("Restored cluster ")

    with start(cluster_root) as cluster:
        assert read(cluster, OLD, len(acked)) == acked
        assert read(cluster, NEW, len(acked_new)) == acked_new
        acked += send(cluster, "old", 10, "after")
        assert read(cluster, OLD, len(acked)) == acked
        admin = Admin(cluster)
        after = admin.describe_topics()
        for name in ("old", "new"):
            assert after[name].topic_id == before[name].topic_id
            assert after[name].partitions[0].leader_epoch > before[name].partitions[0].leader_epoch
        assert after["old"].configs["retention.ms"] == "-1"
        wait_until(lambda: all(len(t.partitions[0].isr) == 3 for t in admin.describe_topics().values()), "whole ISRs")
        assert verify_replicas(["--root", cluster.root, "--once"]) == 0


def test_brokers_keep_copies_by_which_a_lost_metadata_root_is_restored(
    cluster_root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nobody has taken a backup; one broker's root is named."""
    with start(cluster_root, {"stratalog.metadata.backup.interval.ms": 200}) as cluster:
        admin = Admin(cluster)
        admin.create_topic("old", retention_ms=-1)
        acked = send(cluster, "old", 20, "acked")
        topic_id = admin.describe_topics()["old"].topic_id
        wait_until(lambda: "old" in copied_topics(cluster_root / "broker-2"), "a copy with the topic")
        for broker in sorted(cluster.brokers()):
            cluster.kill(broker)
    shutil.rmtree(cluster_root / "metadata")

    given = main.parse(
        ["restore", "--root", str(cluster_root / "metadata"), "--broker-root", str(cluster_root / "broker-2")]
    )
    restore(given, 0)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"The newest copy is in {cluster_root / 'broker-'}")
    assert lines[-1].endswith("the roots of brokers 1,2,3.")
    with start(cluster_root) as cluster:
        assert read(cluster, OLD, len(acked)) == acked
        described = Admin(cluster).describe_topics()["old"]
        assert (described.topic_id, described.configs["retention.ms"]) == (topic_id, "-1")


def copied_topics(root: Path) -> set[str]:
    """The topics of the newest copy in a broker's root; none where there is no copy."""
    copies = sorted((root / "metadata-backup").glob("*.jsonl"))
    return set(decode_backup(copies[-1].read_text()).image().topic_ids) if copies else set()


def test_a_sealed_table_does_not_lead_after_a_restore(cluster_root: Path) -> None:
    """A broker left the assignment after the backup, sealed its table, and died before it deleted that."""
    with start(cluster_root) as cluster:
        Admin(cluster).create_topic("old", min_insync_replicas=1)
        acked = send(cluster, "old", 20, "acked")
        backup(cluster.root, str(cluster_root / "backup"))
        for broker in sorted(cluster.brokers()):
            cluster.kill(broker)
    shutil.rmtree(cluster_root / "metadata")
    stores = DeltaStores(RandomIds())
    sealed = PartitionLog(stores.table(str(cluster_root / "broker-3"), OLD), LogConfig(), SystemClock(), RandomIds())
    sealed.start_epoch(SEALED_EPOCH, as_leader=False)
    restored(cluster_root)
    with start(cluster_root) as cluster:
        assert read(cluster, OLD, len(acked)) == acked
        wait_until(lambda: len(Admin(cluster).describe_topics()["old"].partitions[0].isr) == 3, "a whole ISR")
        assert verify_replicas(["--root", cluster.root, "--once"]) == 0


def test_a_running_broker_is_noticed(cluster_root: Path) -> None:
    with start(cluster_root) as cluster:
        backup(cluster.root, str(cluster_root / "backup"))
        flags = ["restore", "--root", str(cluster_root / "other"), "--input", str(cluster_root / "backup")]
        given = main.parse(flags)
        with pytest.raises(KafkaStorageError, match=r"broker \d runs on .*: stop all brokers first"):
            restore(given, LOOK_MS)
        assert not (cluster_root / "other").exists()


def test_what_cannot_be_read_is_named_and_refused(cluster_root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with start(cluster_root) as cluster:
        Admin(cluster).create_topic("old")
        backup(cluster.root, str(cluster_root / "backup"))
    shutil.rmtree(cluster_root / "metadata")
    (cluster_root / "broker-2").rename(cluster_root / "moved")
    flags = ["restore", "--root", str(cluster_root / "metadata"), "--input", str(cluster_root / "backup")]
    assert main(flags) == 1
    assert "Nothing was restored" in capsys.readouterr().err
    assert not (cluster_root / "metadata").exists()
    restored(cluster_root, "--broker-root", str(cluster_root / "moved"))
    assert Admin(str(cluster_root / "metadata")).describe_cluster().brokers[1].root == str(cluster_root / "moved")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["restore"], 'Missing required argument "[root]"'),
        (["backup", "--root", "x"], 'Missing required argument "[output]"'),
        (["restore", "--root", "x"], "Nothing to restore from: give --input, or --broker-root"),
        (["backup", "--root", "x", "--output", "y", "--input", "z"], 'Option "[input]" can\'t be used with "backup"'),
        (["backup", "--root", "x", "--output", "y", "--dry-run"], 'go with "restore"'),
        (["restore", "--root", "x", "--input", "nowhere"], "nowhere cannot be read"),
        (["copy"], "invalid choice"),
    ],
)
def test_flags_that_cannot_be(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 1
    assert message in capsys.readouterr().err


def test_a_file_that_is_no_backup_is_refused(tmp_path: Path) -> None:
    (tmp_path / "backup").write_text("{}\n{}\n")
    with pytest.raises(CorruptMessageError, match="not a whole metadata backup"):
        restored(tmp_path)
