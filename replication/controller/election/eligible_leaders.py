"""Eligible leader replicas: those outside the ISR that have every committed record (KIP-966). Pure.

While the ISR is smaller than `min.insync.replicas` no record is committed: the leader's high watermark stands still
(`Partition.is_under_min_isr`). So a replica that leaves such an ISR, or makes it such by leaving, has every committed
record as long as its log is whole, and may lead when the ISR is gone; with acks=all nothing is lost. Eligibility ends
with an unclean restart, with a damaged table, and for all replicas once the ISR is large enough again.

ISR {1,2,3}, `min.insync.replicas` 2: 3 leaves and may miss records that {1,2} commit. 2 leaves: ELR {2}. Broker 1 dies
and loses its disk: 2 leads, ISR {2}, ELR {1} until 1 registers again, uncleanly: then it is only a last known one.
Source: `PartitionChangeBuilder.populateTargetElr` of Kafka's KRaft controller.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from stratalog.replication.metadata.image import ClusterImage
from stratalog.replication.metadata.records import MetadataRecord, PartitionRecord

MIN_ISR_CONFIG = "min.insync.replicas"


def effective_min_isr(replicas: Collection[int], min_insync_replicas: int) -> int:
    """The number of in-sync replicas that a record needs to be committed, at most the number of replicas.

    >>> effective_min_isr((1, 2, 3), 2), effective_min_isr((1,), 2)
    (2, 1)
    """
    return min(min_insync_replicas, len(replicas))


def topic_min_isr(image: ClusterImage, topic: str) -> int:
    """The topic's `min.insync.replicas`, which is the same for all brokers."""
    return min_isr_of(image.topic_config(topic))


def min_isr_of(configs: Mapping[str, str]) -> int:
    """`min.insync.replicas` among the configs of a topic."""
    return int(configs.get(MIN_ISR_CONFIG, "1"))


def with_eligible_leaders(
    before: PartitionRecord, after: PartitionRecord, min_insync_replicas: int, lost: Collection[int] = ()
) -> PartitionRecord:
    """`after` with the ELR that follows from `before`, the state that it replaces.

    lost  brokers whose log of the partition may lack records from now on

    An unclean election ends all eligibility: the new leader may lack records of the others. In a storage domain each
    live replica may lead, so that nobody need be remembered.
    """
    is_large_enough = len(after.isr) >= effective_min_isr(after.replicas, min_insync_replicas)
    if is_large_enough or after.unclean != before.unclean or after.has_one_table:
        return replace(after, elr=(), last_known_elr=())
    stayed = [r for r in before.replicas if after.domain_of(r) == before.domain_of(r)]  # else the table is another
    candidates = tuple(r for r in dict.fromkeys((*before.elr, *before.isr)) if r in stayed)
    known = tuple(dict.fromkeys((*before.last_known_elr, *candidates)))
    gone = {r for broker_id in lost for r in before.sharing(broker_id)}
    return replace(after, elr=tuple(r for r in candidates if r not in gone), last_known_elr=known)


def update_eligible_leaders(
    image: ClusterImage, records: Iterable[MetadataRecord], lost: Collection[int] = ()
) -> tuple[MetadataRecord, ...]:
    """The records of a decision on `image`, each partition's with its ELR: see `with_eligible_leaders`."""

    def updated(record: MetadataRecord) -> MetadataRecord:
        before = image.partitions.get(record.topic_partition) if isinstance(record, PartitionRecord) else None
        if not isinstance(record, PartitionRecord) or before is None:
            return record
        return with_eligible_leaders(before, record, topic_min_isr(image, record.topic), lost)

    return tuple(updated(record) for record in records)


def end_eligibility(image: ClusterImage, topic: str) -> tuple[PartitionRecord, ...]:
    """The topic's partitions without ELR, where they have one.

    For the commit that lowers `min.insync.replicas`: after it the ISR alone may commit records that the others lack.
    """
    states = (image.partitions[named] for named in image.partitions_of(topic))
    return tuple(
        replace(state.changed(bump_leader_epoch=False), elr=(), last_known_elr=())
        for state in states
        if state.elr or state.last_known_elr
    )
