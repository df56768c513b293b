"""What a broker does to its replicas when the metadata log changes."""

from __future__ import annotations

from stratalog.replication.broker.hosted_replicas import BrokerIdentity, BrokerSetup, HostedReplicas
from stratalog.replication.config import BrokerConfig
from stratalog.replication.leader.purgatory import ProducePurgatory
from stratalog.replication.metadata.image import ClusterImage
from stratalog.replication.metadata.records import ConfigRecord, PartitionRecord, TopicRecord
from stratalog.storage.records import TopicPartition
from tests.replication.memory_stores import METADATA_ROOT, MemoryStores
from tests.storage.logs import append, idempotent, started

TP = TopicPartition("t", 0)
STATE = PartitionRecord("t", 0, (1, 2), 1, 0, (1, 2), partition_epoch=0, controller_epoch=1)
IMAGE = ClusterImage().fold(TopicRecord("t", "id"), STATE)


def leading_replica(config: BrokerConfig | None = None) -> HostedReplicas:
    """Broker 1 just after it became the leader of partition 0."""
    setup = BrokerSetup(BrokerIdentity(1, "root"), config or BrokerConfig(), METADATA_ROOT)
    hosted = HostedReplicas(setup, MemoryStores().ports(), ProducePurgatory(), lambda: IMAGE)
    hosted.apply(TP, IMAGE, 0)
    return hosted


def test_a_config_that_comes_with_an_isr_change_is_applied() -> None:
    hosted = leading_replica()
    changed = STATE.changed(isr=(1,), bump_leader_epoch=False)
    image = IMAGE.fold(ConfigRecord("t", "min.insync.replicas", "2"), changed)
    hosted.apply(TP, image, 1)
    leader = hosted.leaders[TP]
    assert leader.state.isr == (1,)
    assert (leader.config.min_insync_replicas, leader.log.config.min_insync_replicas) == (2, 2)


def test_a_producer_is_forgotten_after_the_time_that_the_broker_is_set_to() -> None:
    hosted = leading_replica(BrokerConfig(producer_id_expiration_ms=100_000))
    log = hosted.leaders[TP].log
    log.exists_or_create("id")
    started(log, 0)
    append(log, idempotent("a", sequence=0, producer_id=7), now_ms=1_000_000)
    append(log, idempotent("b", sequence=0, producer_id=8), now_ms=1_500_000)
    assert set(log.producers.producers) == {7, 8}, "it is looked for every ten minutes"
    append(log, idempotent("c", sequence=1, producer_id=8), now_ms=1_600_000)
    assert set(log.producers.producers) == {8}
