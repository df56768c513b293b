"""Cluster images for the decision tests, and the checks every decision must pass. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import TypeVar

from stratalog.replication.controller.brokers import OfflineReplica
from stratalog.replication.metadata.image import ClusterImage, Result
from stratalog.replication.metadata.records import (
    NO_LEADER,
    ConfigRecord,
    ControllerRecord,
    FenceBrokerRecord,
    MetadataRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
    record_from_json,
    record_to_json,
)
from stratalog.replication.metadata.state_changes import check_transitions
from stratalog.storage.records import TopicPartition

TOPIC = "orders"
CONTROLLER_EPOCH = 3
T = TypeVar("T")


def partition(
    replicas: Sequence[int],
    leader: int,
    isr: Sequence[int],
    *,
    number: int = 0,
    leader_epoch: int = 5,
    partition_epoch: int = 9,
    controller_epoch: int = CONTROLLER_EPOCH,
    elr: Sequence[int] = (),
    last_known_elr: Sequence[int] = (),
) -> PartitionRecord:
    state = PartitionRecord(
        TOPIC, number, tuple(replicas), leader, leader_epoch, tuple(isr), partition_epoch, controller_epoch
    )
    return replace(state, elr=tuple(elr), last_known_elr=tuple(last_known_elr))


def registered(roots: Mapping[int, str]) -> ClusterImage:
    """Brokers by id, with these roots."""
    return ClusterImage().fold(*(RegisterBrokerRecord(i, i, f"run-{i}", root) for i, root in roots.items()))


class GrowingImage(ClusterImage):
    """A cluster as decisions find it one after the other: `commit` makes it the image after a decision."""

    __slots__ = ()

    @staticmethod
    def of(image: ClusterImage) -> GrowingImage:
        growing = GrowingImage()
        growing.becomes(image)
        return growing

    def becomes(self, image: ClusterImage) -> None:
        for each in fields(image):
            object.__setattr__(self, each.name, getattr(image, each.name))

    def fold(self, *records: MetadataRecord) -> GrowingImage:
        return GrowingImage.of(ClusterImage.fold(self, *records))


def image_of(
    brokers: Sequence[int],
    *partitions: PartitionRecord,
    fenced: Mapping[int, bool] | None = None,
    racks: Mapping[int, str] | None = None,
    min_isr: int | None = None,
) -> GrowingImage:
    """Broker i has broker epoch 10 + i, root /data/i, incarnation `run-i`. `fenced` maps the fenced ones to clean."""
    image = GrowingImage()
    image = image.fold(ControllerRecord(brokers[0] if brokers else NO_LEADER, CONTROLLER_EPOCH))
    for i in brokers:
        image = image.fold(RegisterBrokerRecord(i, 10 + i, f"run-{i}", f"/data/{i}", rack=(racks or {}).get(i)))
    for i, clean in (fenced or {}).items():
        image = image.fold(FenceBrokerRecord(i, 10 + i, clean=clean))
    if partitions:
        image = image.fold(TopicRecord(TOPIC, "id-orders"))
    if min_isr is not None:
        image = image.fold(ConfigRecord(TOPIC, "min.insync.replicas", str(min_isr)))
    for state in partitions:
        image = image.fold(state)
    return image


def broker_epochs_of(image: ClusterImage) -> dict[int, int]:
    """The present registrations, as a leader knows those whose progress it reads."""
    return {broker_id: broker.broker_epoch for broker_id, broker in image.brokers.items()}


def offline(image: ClusterImage, *topic_partitions: TopicPartition, absent: bool = False) -> list[OfflineReplica]:
    """A leader's report, which it judged under the present states."""
    return [
        OfflineReplica(image.identified(tp), image.partition(tp).partition_epoch, absent) for tp in topic_partitions
    ]


def commit(image: GrowingImage, result: Result[T]) -> T:
    """Fold a decision in as the metadata log would, through its JSON, and check promises 9 to 11 on what changed."""
    before = dict(image.partitions)
    check_transitions(image, result.records)
    image.becomes(image.fold(*(record_from_json(record_to_json(record)[1]) for record in result.records)))
    for record in result.records:
        if isinstance(record, PartitionRecord):
            check_partition(before.get(record.topic_partition), record)
    assert len({r.key for r in result.records}) == len(result.records), "one record for each object in one commit"
    return result.response


def check_partition(before: PartitionRecord | None, after: PartitionRecord) -> None:
    assert after.isr, "the ISR is never empty"
    assert set(after.isr) <= set(after.replicas)
    assert after.leader in (NO_LEADER, *after.isr)
    assert set(after.elr) <= set(after.replicas) - set(after.isr)
    if before is None:
        return
    assert after.partition_epoch == before.partition_epoch + 1
    assert after.leader_epoch >= before.leader_epoch
    if after.leader_epoch == before.leader_epoch:
        assert after.leader == before.leader, "one leader per epoch"
        return
    if after.unclean == before.unclean:
        # A reassignment ends with the leader's last addition: the added replicas may lead and stay in the ISR.
        added = set(before.adding) if not after.adding else set()
        eligible = {*before.isr, *before.elr} if not after.domain else set(after.replicas)  # all have one table there
        assert after.leader in (NO_LEADER, *eligible, *added), "a clean leader holds every acknowledged record"
        assert set(after.isr) <= {*eligible, *added}, "only the epoch's leader adds to the ISR"
        assert set(after.elr) <= {*eligible, *added}, "no broker becomes eligible"
    else:
        assert after.isr == (after.leader,)


def state(image: ClusterImage, number: int = 0) -> PartitionRecord:
    return image.partition(TopicPartition(TOPIC, number))


def brief(state: PartitionRecord) -> tuple[int, tuple[int, ...], int]:
    """`(leader, isr, leader_epoch)`"""
    return state.leader, state.isr, state.leader_epoch
