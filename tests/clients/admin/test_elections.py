"""The admin client asks for elections, and tells what is left of deleted topics; the topics tool shows it."""

from __future__ import annotations

import pytest

from stratalog.clients.admin.admin import Admin
from stratalog.jobs.topics.topics import TopicCommand, main
from stratalog.replication.controller.election.preferred_leaders import ElectionType
from stratalog.replication.metadata.records import FenceBrokerRecord
from stratalog.replication.metadata.states import ReplicaState
from stratalog.server.view.cluster_view import ClusterView
from stratalog.storage.errors import UnknownTopicOrPartitionError
from stratalog.storage.records import TopicPartition
from stratalog.wire.api_keys import ApiKey
from tests.clients.kafka_client import KafkaClient, code
from tests.clients.memory_cluster import ROOT, MemoryCluster

INVALID_REQUEST, BROKER_ID_NOT_REGISTERED = 42, 102
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def cluster() -> MemoryCluster:
    made = MemoryCluster()
    made.create_topic("t", 2)
    return made


def admin_of(cluster: MemoryCluster) -> Admin:
    return Admin(ROOT, view=ClusterView(ROOT, stores=cluster.stores, timeout_ms=20))


def test_leaders_are_elected_and_every_partition_has_its_answer(cluster: MemoryCluster) -> None:
    cluster.elect(T1, 2)
    admin = admin_of(cluster)
    answers = admin.elect_leaders(ElectionType.PREFERRED, [T0, T1, TopicPartition("t", 2)])
    assert [error and error.name for error in answers.values()] == [
        "ELECTION_NOT_NEEDED", None, "UNKNOWN_TOPIC_OR_PARTITION",
    ]  # fmt: skip
    assert cluster.state(T1).leader == 1
    assert admin.elect_leaders(ElectionType.PREFERRED) == {}
    assert admin.elect_leaders(ElectionType.UNCLEAN) == {}


def test_a_broker_that_was_stopped_for_good_is_forgotten(cluster: MemoryCluster) -> None:
    """After its replicas were moved, by the admin client and by Kafka's `kafka-cluster.sh unregister`."""
    cluster.commit(FenceBrokerRecord(3, 3))
    with KafkaClient(cluster, stores=cluster.stores) as client:
        assert code(client.ask(ApiKey.UNREGISTER_BROKER, 0, {"broker_id": 3})) == INVALID_REQUEST
        admin_of(cluster).delete_topics(["t"])
        answers = [client.ask(ApiKey.UNREGISTER_BROKER, 0, {"broker_id": 3}) for _ in range(2)]
    assert [code(each) for each in answers] == [0, BROKER_ID_NOT_REGISTERED]
    assert answers[1].error_message == "Broker ID 3 is not currently registered."
    assert [each.broker_id for each in admin_of(cluster).describe_cluster().brokers] == [1, 2]


def describe(cluster: MemoryCluster, *flags: str, capsys: pytest.CaptureFixture[str]) -> str:
    view = ClusterView(ROOT, stores=cluster.stores, timeout_ms=20)
    TopicCommand(main.parse(["--describe", *flags]), Admin(ROOT, view=view)).describe()
    return capsys.readouterr().out


def test_a_deleted_topic_is_shown_while_a_broker_has_replicas_of_it(
    cluster: MemoryCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.commit(FenceBrokerRecord(3, 3))
    admin = admin_of(cluster)
    admin.delete_topics(["t"])
    (deletion,) = admin.list_topic_deletions()
    started, ineligible = ReplicaState.DELETION_STARTED, ReplicaState.DELETION_INELIGIBLE
    assert (deletion.topic, deletion.replica_states) == ("t", {1: started, 2: started, 3: ineligible})
    assert admin.list_topics() == []
    shown = "\tPartitionCount: 2\tMarkedForDeletion: true\tReplicas: 1:ReplicaDeletionStarted"
    assert shown in describe(cluster, capsys=capsys)
    assert shown in describe(cluster, "--topic", "t", capsys=capsys)
    assert describe(cluster, "--topic", "t", "--unavailable-partitions", "--if-exists", capsys=capsys) == ""
    with pytest.raises(UnknownTopicOrPartitionError):
        describe(cluster, "--topic", "other", capsys=capsys)
