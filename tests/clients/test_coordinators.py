"""A client in the brokers' process asks for a coordinator, and then the coordinator."""

from __future__ import annotations

import pytest

from clients.bootstrap import BrokerFace
from replication.coordinator_kinds import CoordinatorKind
from replication.coordinator_requests import FindCoordinatorRequest, FindCoordinatorResponse
from replication.coordinator_shard import CoordinatorType
from storage.errors import NotCoordinatorError
from tests.clients.memory_cluster import MemoryCluster
from tests.replication.list_shard import Add, Added, ListShard, Read

GROUP = CoordinatorType.GROUP


@pytest.fixture
def cluster() -> MemoryCluster:
    cluster = MemoryCluster()
    cluster.coordinators.kinds[GROUP] = CoordinatorKind(ListShard)
    return cluster


def found(face: BrokerFace, group_id: str) -> int:
    answers: list[FindCoordinatorResponse] = []
    face.find_coordinator(FindCoordinatorRequest(GROUP, (group_id,)), answers.append)
    return answers[0].coordinators[0].node_id


def test_the_broker_that_is_named_coordinates(cluster: MemoryCluster) -> None:
    brokers = cluster.brokers()
    assert found(brokers[1], "my-group") == -1
    partitions = cluster.create_topic(GROUP.topic, 3)
    cluster.elect(partitions[2], 2)
    assert (found(brokers[1], "a"), found(brokers[1], "hello")) == (1, 1)
    assert found(brokers[1], "b") == 2
    answers: list[object] = []
    for broker_id in (1, 2):
        brokers[broker_id].coordinator(GROUP, "b", Add("x"), answers.append)
    assert isinstance(answers[0], NotCoordinatorError)
    assert answers[1] == Added(0, "x", 0)
    brokers[2].coordinator(GROUP, 2, Read(), answers.append)
    assert answers[2] == ("x",)
    brokers[1].every_coordinator(GROUP, Read(), answers.append)
    assert answers[3] == [(), ()]
