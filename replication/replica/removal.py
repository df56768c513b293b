"""Deletion of a replica whose broker or topic has lost it, while fetch sessions may still work on it.

I/O: the tables below the broker's root, and the metadata log. A broker's loop deletes and its fetch sessions copy,
often in other processes: a session that sleeps may wake after the deletion, and one that is ahead may work for a later
assignment of the same partition. So the table is sealed first: a commit shows an epoch after which there is none. From
then on every session is fenced and publishes nothing, those of a later assignment too; they wait until the table is
gone and make a new one. A table that a later assignment has written before the seal stays.

Replicas of removed topics are dropped when the broker applies the removal or starts (`broker.hosted_replicas`);
`ReplicaDeletions` drops the rest and reports the topic's end to the metadata log.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from typing import NamedTuple

from stratalog.replication.controller.topic_deletion import deletions_on, replicas_deleted, replicas_to_delete
from stratalog.replication.metadata.log import MetadataLog
from stratalog.replication.metadata.records import TopicDeletionRecord
from stratalog.replication.metadata.storage_domains import domain_of, topic_root
from stratalog.replication.stores import Ports
from stratalog.storage import errors
from stratalog.storage.clock import Clock, Ids
from stratalog.storage.delta.table import Conflict, LogTable
from stratalog.storage.errors import StoreError
from stratalog.storage.log.partition_log import PartitionLog
from stratalog.storage.log.state import SEALED_EPOCH
from stratalog.storage.log_lines import line_logger
from stratalog.storage.records import TopicPartition
from stratalog.storage.topic_config import LogConfig

_LOG = line_logger("stratalog.state.change")

SEAL_TRIES = 20


class Leaving(NamedTuple):
    """A replica that is not assigned any more, to be sealed: its topic, and the leader epoch in which it left."""

    topic_id: str
    epoch: int


class Sealed(NamedTuple):
    """A table that shows its end, to be deleted at `delete_ms`."""

    delete_ms: int


def seal(table: LogTable, leaving: Leaving, clock: Clock, ids: Ids) -> bool:
    """Seal the table of a replica that left the assignment; True when it may be deleted.

    False, without a commit, when the table shows a later epoch or is of another topic of this name: it belongs to a
    later assignment. An absent, unreadable or sealed table may be deleted as it is: nothing can write to a table that
    cannot be read. Raises StoreUnavailableError: retry.
    """
    return _of_newest(table, lambda log: _seal(log, leaving), clock, ids, if_absent=True, if_unreadable=True)


def is_sealed(table: LogTable, clock: Clock, ids: Ids, *, if_unreadable: bool = False) -> bool:
    """Whether this table is to be deleted; `if_unreadable` is the answer for one that cannot be read."""
    return _of_newest(table, lambda log: log.leader_epoch == SEALED_EPOCH, clock, ids, if_unreadable=if_unreadable)


def has_ended(table: LogTable, clock: Clock, ids: Ids) -> bool:
    """Whether nothing can write to this table: it is sealed, absent, or cannot be read."""
    return _of_newest(
        table, lambda log: log.leader_epoch == SEALED_EPOCH, clock, ids, if_absent=True, if_unreadable=True
    )


def has_begun(table: LogTable, clock: Clock, ids: Ids) -> bool:
    """Whether a leader epoch ever began in this table, or it cannot be read: so it is not one that was just made."""
    return _of_newest(table, lambda log: 0 <= log.leader_epoch < SEALED_EPOCH, clock, ids, if_unreadable=True)


def is_of_topic(table: LogTable, topic_ids: Collection[str], clock: Clock, ids: Ids) -> bool:
    """Whether the table is of one of these topics, not of a newer one of the name. True for an unreadable table."""
    return _of_newest(table, lambda log: log.topic_id in topic_ids, clock, ids, if_unreadable=True)


def _of_newest(
    table: LogTable,
    question: Callable[[PartitionLog], bool],
    clock: Clock,
    ids: Ids,
    *,
    if_absent: bool = False,
    if_unreadable: bool,
) -> bool:
    """Whether the newest fold of a table is so. Raises StoreError when the store is away."""
    log = PartitionLog(table, LogConfig(), clock, ids)
    try:
        log.refresh()
        return question(log)
    except errors.UnknownTopicOrPartitionError:
        return if_absent
    except StoreError:
        raise
    except (errors.CorruptMessageError, errors.KafkaStorageError):
        return if_unreadable


def delete_stray(table: LogTable, topic_id: str, clock: Clock, ids: Ids) -> bool:
    """Delete a table of the deleted topic `topic_id`; False when it is not of that topic any more, or when another
    session deletes it.

    The caller folded the table, and then read in the metadata that its topic is deleted: another table that stands here
    by now is of a newer topic. Several sessions may find the same stray. The one whose seal is committed deletes it;
    another one, which read the table and then slept, would delete the table that took its place.
    """
    log = PartitionLog(table, LogConfig(), clock, ids)
    try:
        log.refresh()
        if log.topic_id != topic_id or log.leader_epoch == SEALED_EPOCH:
            return False
        if isinstance(log.start_epoch(SEALED_EPOCH, as_leader=False), Conflict):
            return False
    except errors.UnknownTopicOrPartitionError:
        return False
    return table.drop(lambda: is_sealed(table, clock, ids))


def delete_unknown(table: LogTable, clock: Clock, ids: Ids) -> bool:
    """Delete a table of a topic that there is no more; False when another process deletes it. One that is absent,
    cannot be read, or is sealed already is deleted as it is: nothing can write to it."""
    log = PartitionLog(table, LogConfig(), clock, ids)
    try:
        log.refresh()
        if log.leader_epoch != SEALED_EPOCH:
            return delete_stray(table, log.topic_id, clock, ids)
    except StoreError:
        raise
    except (errors.UnknownTopicOrPartitionError, errors.CorruptMessageError, errors.KafkaStorageError):
        pass
    return table.drop(lambda: has_ended(table, clock, ids))


def _seal(log: PartitionLog, leaving: Leaving) -> bool:
    """`seal`, of a log that was just folded."""
    for _ in range(SEAL_TRIES):
        if log.leader_epoch == SEALED_EPOCH:
            return True
        if log.leader_epoch > leaving.epoch or log.topic_id != leaving.topic_id:
            return False
        if not isinstance(log.start_epoch(SEALED_EPOCH, as_leader=False), Conflict):
            return True
        log.refresh()
    raise errors.StoreUnavailableError(f"{log.name}: lost the race to seal the table {SEAL_TRIES} times")


class ReplicaDeletions:
    """One broker's part in the deletion of topics. The next `step` retries what fails.

    In a storage domain each of the topic's brokers deletes all that is there of it: after the last one, which has
    stopped its replicas before, nobody writes there.
    """

    def __init__(self, broker_id: int, root: str, ports: Ports, metadata: MetadataLog) -> None:
        self._broker_id = broker_id
        self._root = root
        self._ports = ports
        self._metadata = metadata

    def step(self, broker_epoch: int) -> bool:
        """Delete and report what the metadata, as folded so far, asks for; True when there was something. A table
        of a newer topic of the name, which the metadata does not show yet, stays.

        The broker calls it after it has stopped its replicas of removed topics. Raises StoreError. If the registration
        is over, the next one reports.
        """
        waiting = deletions_on(self._metadata.image, self._broker_id)
        if not waiting:
            return False
        topics = {deletion.topic for deletion in waiting}
        topic_ids = [deletion.topic_id for deletion in waiting]
        held = self._ports.stores.replicas(self._root)
        for topic_partition in replicas_to_delete(self._metadata.image, self._broker_id, topics, held):
            table = self._ports.stores.table(self._root, topic_partition)
            if table.drop(partial(is_of_topic, table, topic_ids, self._ports.clock, self._ports.ids)):
                _LOG.info("[Broker %d] deleted replica %s of a removed topic", self._broker_id, topic_partition)
        for deletion in waiting:
            self._delete_in_domains(deletion)
        try:
            self._metadata.propose(lambda image: replicas_deleted(image, self._broker_id, broker_epoch, topic_ids))
        except errors.StaleBrokerEpochError as reason:
            _LOG.info("[Broker %d] %s", self._broker_id, reason)
        return True

    def _delete_in_domains(self, deletion: TopicDeletionRecord) -> None:
        """Delete the topic's tables in storage domains. The folder has the topic's id: nobody makes it again."""
        for name in deletion.domains:
            domain = domain_of(self._metadata.image, name)
            for partition in range(deletion.partitions):
                topic_partition = TopicPartition(deletion.topic, partition)
                table = self._ports.stores.table(topic_root(domain, deletion.topic, deletion.topic_id), topic_partition)
                table.drop()
            _LOG.info("[Broker %d] deleted topic %s of id %s in the storage domain %s",
                      self._broker_id, deletion.topic, deletion.topic_id, name)  # fmt: skip
