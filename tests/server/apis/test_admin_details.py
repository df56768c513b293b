"""Details that Kafka's tools and clients rely on."""

from __future__ import annotations

import pytest

from stratalog.replication.metadata.records import FenceBrokerRecord
from stratalog.wire.api_keys import ApiKey
from tests.clients.kafka_client import ClosedError, KafkaClient, code
from tests.clients.memory_cluster import MemoryCluster


def test_a_live_broker_is_told_as_the_controller(client: KafkaClient, cluster: MemoryCluster) -> None:
    def told() -> set[int]:
        answers = [
            client.ask(ApiKey.METADATA, 12, {"topics": []}, broker=2),
            client.ask(ApiKey.DESCRIBE_CLUSTER, 1, broker=2),
        ]
        return {answer.controller_id for answer in answers}

    assert cluster.metadata.image.controller_id == -1
    assert told() == {2}
    cluster.commit(FenceBrokerRecord(2, 2))
    assert told() == {1}


@pytest.mark.parametrize("version", [1, 4, 5, 10])
def test_a_leader_that_has_not_started_is_not_the_leader_yet(
    client: KafkaClient, cluster: MemoryCluster, version: int
) -> None:
    cluster.create_topic("new", started=False)
    asked = {"topics": [{"name": "new", "partitions": [{"partition_index": 0, "timestamp": -1}]}], "replica_id": -1}
    assert code(client.ask(ApiKey.LIST_OFFSETS, version, asked).topics[0].partitions[0]) == 6


def test_init_producer_id_ends_at_version_5(client: KafkaClient) -> None:
    assert code(client.ask(ApiKey.INIT_PRODUCER_ID, 5, {"transactional_id": None})) == 0
    with pytest.raises(ClosedError, match="versions 0 to 5"):
        client.ask(ApiKey.INIT_PRODUCER_ID, 6, {"transactional_id": None})
