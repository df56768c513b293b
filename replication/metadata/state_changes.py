"""The transitions that metadata records make: a check before the commit, and the lines of state-change.log. Pure.

`check_transitions` checks a decision on the image that it was made from. The lines describe committed records, one by
one, each on the image before it.
Source: the messages of `ZkPartitionStateMachine` and `ZkReplicaStateMachine` of Kafka 3.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from stratalog.replication.metadata.image import ClusterImage
from stratalog.replication.metadata.records import (
    ControllerRecord,
    FenceBrokerRecord,
    MetadataRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicDeletionRecord,
    TopicRecord,
)
from stratalog.replication.metadata.states import (
    PartitionState,
    ReplicaState,
    illegal_partition_step,
    illegal_replica_step,
    partition_path,
    replica_path,
    state_of_deletion,
    state_of_partition,
    state_of_replica,
)
from stratalog.storage.errors import IllegalStateError
from stratalog.storage.log.state import SEALED_EPOCH
from stratalog.storage.records import TopicPartition


def check_transitions(image: ClusterImage, records: Iterable[MetadataRecord]) -> None:
    """IllegalStateError in Kafka's words unless the records of one decision on `image` are legal transitions.

    A leader elected for a partition whose topic was removed meanwhile: "Partition t-0 should be in one of
    NewPartition,OnlinePartition,OfflinePartition states before moving to OnlinePartition state. Instead it is in
    NonExistentPartition state".
    """
    check = _Check(image)
    for record in records:
        reason = check.illegal(record)
        if reason:
            raise IllegalStateError(reason)


def check_epochs(records: Iterable[MetadataRecord]) -> None:
    """IllegalStateError unless the epochs of partitions and controllers are such as a table may start.

    `SEALED_EPOCH` and all above are not: a broker deletes a table that shows the seal, and no later epoch starts there.
    """
    for record in records:
        match record:
            case PartitionRecord():
                epoch, what = record.leader_epoch, f"leader epoch {record.leader_epoch} of {record.topic_partition}"
            case ControllerRecord():
                epoch, what = record.controller_epoch, f"controller epoch {record.controller_epoch}"
            case _:
                continue
        if epoch >= SEALED_EPOCH:
            raise IllegalStateError(f"{what} is not below {SEALED_EPOCH}, the epoch of tables that are to be deleted")


class _Check:
    """Checks the records of one commit, one after the other."""

    def __init__(self, image: ClusterImage) -> None:
        self._image = image
        self._created: set[str] = set()
        self._removed: dict[str, RemoveTopicRecord] = {}
        self._moved: dict[TopicPartition, PartitionState] = {}

    def illegal(self, record: MetadataRecord) -> str:
        match record:
            case PartitionRecord():
                return self._move(record)
            case TopicRecord():
                self._created.add(record.name)
            case RemoveTopicRecord():
                return self._remove(record)
            case TopicDeletionRecord():
                return self._delete(record)
        return ""

    def _move(self, record: PartitionRecord) -> str:
        named, before = record.topic_partition, self._image.partitions.get(record.topic_partition)
        is_growth = record.partition_epoch == 0 and record.topic in self._image.topic_ids
        path = partition_path(before, record, is_creation=is_growth or record.topic in self._created)
        current = self._moved.get(named) or state_of_partition(before)
        self._moved[named] = path[-1]
        return illegal_partition_step(named, current, path)

    def _remove(self, record: RemoveTopicRecord) -> str:
        known = self._image.topic_ids.get(record.name)
        if known != record.topic_id:
            return f"Topic {record.name} with id {record.topic_id} should exist before its removal. Its id is {known}"
        self._removed[record.topic_id] = record
        for named in self._image.partitions_of(record.name):
            self._moved[named] = PartitionState.NON_EXISTENT
        return ""

    def _delete(self, record: TopicDeletionRecord) -> str:
        """Replicas are deleted after their topic is removed, by each broker once."""
        known = self._image.deletions.get(record.topic_id)
        if known is None and record.topic_id in self._removed:
            return ""
        left = () if known is None else known.brokers
        for broker_id in record.brokers:
            if broker_id not in left:
                path = (ReplicaState.DELETION_STARTED,)
                named = TopicPartition(record.topic, 0)
                return illegal_replica_step(named, broker_id, ReplicaState.NON_EXISTENT, path)
        return ""


def partition_lines(image: ClusterImage, record: MetadataRecord) -> Iterator[str]:
    """A line for each state that a partition moves to by `record`, as the controller writes it."""
    if isinstance(record, PartitionRecord):
        yield from _lines_of_partition(image.partitions.get(record.topic_partition), record)
    elif isinstance(record, RemoveTopicRecord):
        for named in image.partitions_of(record.name):
            yield from _lines_of_removal(named, image.partitions[named])
        yield from _lines_of_deletion(image, record.name, _replicas_of(image, record.name))
    elif isinstance(record, TopicDeletionRecord):
        known = image.deletions.get(record.topic_id)
        for broker_id in () if known is None else known.brokers:
            if known is not None and broker_id not in record.brokers:
                current = state_of_deletion(image, known, broker_id)
                yield from _steps(_replicas(record.topic, broker_id), current, ReplicaState.NON_EXISTENT)


def _lines_of_partition(before: PartitionRecord | None, record: PartitionRecord) -> Iterator[str]:
    current, named = state_of_partition(before), record.topic_partition
    for target in partition_path(before, record, is_creation=before is None):
        if target is PartitionState.NEW:
            assigned = ",".join(map(str, record.replicas))
            yield f"Changed partition {named} state from {current} to {target} with assigned replicas {assigned}"
        elif target is PartitionState.ONLINE:
            yield f"Changed partition {named} from {current} to {target} with state {record.state_json()}"
        else:
            yield f"Changed partition {named} state from {current} to {target}"
        current = target


def _lines_of_removal(named: TopicPartition, before: PartitionRecord) -> Iterator[str]:
    current = state_of_partition(before)
    for target in partition_path(before, None):
        yield f"Changed partition {named} state from {current} to {target}"
        current = target


def _replicas_of(image: ClusterImage, topic: str) -> list[int]:
    return sorted({replica for named in image.partitions_of(topic) for replica in image.partitions[named].replicas})


def _lines_of_deletion(image: ClusterImage, topic: str, broker_ids: Iterable[int]) -> Iterator[str]:
    for broker_id in broker_ids:
        is_live = image.is_live(broker_id)
        yield from _steps(_replicas(topic, broker_id), _assigned_state(is_live), _deletion_state(is_live))


def _assigned_state(is_live: bool) -> ReplicaState:
    return ReplicaState.ONLINE if is_live else ReplicaState.OFFLINE


def _deletion_state(is_live: bool) -> ReplicaState:
    return ReplicaState.DELETION_STARTED if is_live else ReplicaState.DELETION_INELIGIBLE


def _replicas(topic: str, broker_id: int) -> str:
    return f"the replicas of topic {topic} on broker {broker_id}"


def _steps(what: str, current: ReplicaState, target: ReplicaState) -> Iterator[str]:
    for step in replica_path(current, target):
        yield f"Changed state of {what} from {current} to {step}"
        current = step


def replica_lines(image: ClusterImage, record: MetadataRecord) -> Iterator[str]:
    """A line for each state that a replica moves to by `record`, except by a topic's removal (`partition_lines`).

    A broker that comes or goes moves all its replicas, so this goes through all partitions.
    """
    if isinstance(record, PartitionRecord):
        yield from _lines_of_assignment(image, record)
    elif isinstance(record, FenceBrokerRecord) and image.is_current(record.broker_id, record.broker_epoch):
        yield from _lines_of_broker(image, record.broker_id, is_live=False)
    elif isinstance(record, RegisterBrokerRecord) and not image.is_live(record.broker_id):
        yield from _lines_of_broker(image, record.broker_id, is_live=True)


def _lines_of_assignment(image: ClusterImage, record: PartitionRecord) -> Iterator[str]:
    named = record.topic_partition
    before = image.partitions.get(named)
    for broker_id in sorted({*record.replicas, *(before.replicas if before else ())}):
        target = ReplicaState.NON_EXISTENT
        if broker_id in record.replicas:
            target = _assigned_state(image.is_live(broker_id))
        current = state_of_replica(image, named, broker_id)
        yield from _steps(f"replica {broker_id} for partition {named}", current, target)


def _lines_of_broker(image: ClusterImage, broker_id: int, *, is_live: bool) -> Iterator[str]:
    """`is_live`: whether the broker is so after the record."""
    for named, state in image.partitions.items():
        if broker_id in state.replicas:
            current = state_of_replica(image, named, broker_id)
            yield from _steps(f"replica {broker_id} for partition {named}", current, _assigned_state(is_live))
    for deletion in image.deletions.values():
        if broker_id in deletion.brokers:
            current = state_of_deletion(image, deletion, broker_id)
            yield from _steps(_replicas(deletion.topic, broker_id), current, _deletion_state(is_live))
