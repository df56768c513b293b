"""Defaults of topics' configs that brokers are given: clients, tools, metrics and the controller act by them, too."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from stratalog import Admin, Cluster, ClusterView, Producer
from stratalog.clients.spark.source.gaps import explained_end
from stratalog.clients.typed_tables.config import TypedTableConfig, WriteMode, write_mode
from stratalog.jobs.topics.configs import main as configs_tool
from stratalog.jobs.topics.topics import main as topics_tool
from stratalog.replication.metadata.storage_domains import DOMAIN_CONFIG
from stratalog.server.process import broker_host
from stratalog.storage.errors import InvalidRecordError, RecordTooLargeError
from stratalog.storage.log.cleaner_checkpoint import CleanerCheckpoint
from stratalog.storage.records import TopicPartition
from stratalog.storage.topic_config import LONG_MAX
from tests import domains
from tests.waiting import wait_until

GIVEN = {
    "log.cleanup.policy": "compact",
    "message.max.bytes": 2_000,
    "min.insync.replicas": 2,
    "log.retention.hours": 2,
}
T0 = TopicPartition("t", 0)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster.start(tmp_path_factory.mktemp("cluster"), brokers=2, config=GIVEN, fetcher="thread") as started:
        Admin(started).create_topic("t", 1, 2)
        yield started


@pytest.mark.parametrize("by_hand_over", [False, True])
def test_a_producer_is_refused_what_brokers_refuse(cluster: Cluster, by_hand_over: bool) -> None:
    with Producer(cluster.root if by_hand_over else cluster) as producer:
        with pytest.raises(InvalidRecordError):
            producer.send("t", b"without a key").result(30)
        with pytest.raises(RecordTooLargeError):
            producer.send("t", b"x" * 5_000, key=b"k").result(30)
        assert producer.send("t", b"x", key=b"k").result(30).offset >= 0


def test_clients_know_what_compaction_removed(cluster: Cluster) -> None:
    view = ClusterView(cluster.root)
    view.refresh()
    assert explained_end(T0, view.image.topic_config("t"), CleanerCheckpoint(), {}) == LONG_MAX
    mode = write_mode(TypedTableConfig(value_format="json"), view.topic_config("t").cleanup_policy)
    assert mode is WriteMode.UPSERT


def test_tools_and_the_admin_client_show_what_is_in_force(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    in_force = {each.name: each.value for each in Admin(cluster.root).describe_configs("t")}
    shown = {"retention.ms": "7200000", "max.message.bytes": "2000", "min.insync.replicas": "2"}
    assert shown.items() <= in_force.items()
    assert configs_tool(["--root", cluster.root, "--describe", "--topic", "t", "--all"]) == 0
    printed = capsys.readouterr().out
    assert "  retention.ms=7200000 sensitive=false synonyms={STATIC_BROKER_CONFIG:log.retention.ms=7200000, " in printed
    assert topics_tool(["--root", cluster.root, "--describe", "--topic", "t"]) == 0
    assert "min.insync.replicas=2" in capsys.readouterr().out


def test_a_default_that_is_altered_holds_at_once_and_until_it_is_removed(cluster: Cluster) -> None:
    admin = Admin(cluster.root)
    with Producer(cluster) as producer:
        admin.alter_cluster_configs({"message.max.bytes": 9_000})
        wait_until(lambda: accepts(producer, b"x" * 5_000))
        admin.alter_cluster_configs({"message.max.bytes": None})
        wait_until(lambda: not accepts(producer, b"x" * 5_000))


def accepts(producer: Producer, value: bytes) -> bool:
    try:
        producer.send("t", value, key=b"k").result(30)
    except RecordTooLargeError:
        return False
    return True


def test_what_stands_in_topics_toml_is_known_to_clients(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    edited = tmp_path / "topics.toml"
    edited.write_text('cleanup.policy = "compact"\nsegment.files.max = 7\n')
    monkeypatch.setattr(broker_host, "TOPICS_TOML", edited)
    with Cluster.start(tmp_path / "cluster", brokers=1, fetcher="thread") as started:
        Admin(started).create_topic("t", 1, 1)
        view = ClusterView(started.root)
        view.refresh()
        placed = {DOMAIN_CONFIG: domains.NAME} if domains.IS_ON else {}
        assert view.topic_config("t").overrides == {"cleanup.policy": "compact", "segment.files.max": "7", **placed}
        with Producer(started.root) as producer, pytest.raises(InvalidRecordError):
            producer.send("t", b"without a key").result(30)
