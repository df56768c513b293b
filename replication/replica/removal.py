"""Deleting a replica that is no longer assigned to its broker, while fetch sessions may still be at work on it.

I/O: through the replica's table. A broker's loop deletes, its fetch sessions copy, often in other processes: a session
that sleeps may wake after the deletion, and one that is ahead may work for a later assignment of the same partition.
So the table is sealed first: a commit states an epoch after which there is none. From then on every session is fenced
and publishes nothing, those of a later assignment too; they wait until the table is gone and make a new one. If a
later assignment has begun to write before the seal, the table is its, and stays.

A broker deletes what it holds of removed topics, and says that it has.

I/O: the tables below the broker's root, and the metadata log. Most are gone already, dropped when the broker heard of
the removal or when it started (`hosted_replicas`); this finds the rest, and reports.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from typing import NamedTuple

from stratalog.replication.controller.topic_deletion import deletions_on, replicas_deleted, replicas_to_delete
from stratalog.replication.metadata.log import MetadataLog
from stratalog.replication.stores import Stores
from stratalog.storage.clock import Clock, Ids
from stratalog.storage.delta.table import Conflict, LogTable
from stratalog.storage.errors import (
    CorruptMessageError,
    KafkaStorageError,
    StaleBrokerEpochError,
    StoreError,
    StoreUnavailableError,
    UnknownTopicOrPartitionError,
)
from stratalog.storage.log.partition_log import PartitionLog
from stratalog.storage.log.state import SEALED_EPOCH
from stratalog.storage.topic_config import LogConfig

SEAL_TRIES = 20


class Leaving(NamedTuple):
    """A replica that is not assigned any more: of which topic, and as of which leader epoch that was known."""

    topic_id: str
    epoch: int


def seal(table: LogTable, leaving: Leaving, clock: Clock, ids: Ids) -> bool:
    """Seal the table of a replica that left the assignment; True when it may be deleted.

    False, and nothing is done, when the table shows a later epoch or is of another topic of this name: it is that of a
    later assignment, as newer metadata says. An absent, unreadable or sealed table may be deleted as it is.
    StoreUnavailableError: to be tried again.
    """
    # Nobody can write to a table that nobody can read.
    return _asked(table, lambda log: _seal(log, leaving), clock, ids, if_absent=True, if_unreadable=True)


def is_sealed(table: LogTable, clock: Clock, ids: Ids, *, if_unreadable: bool = False) -> bool:
    """Whether this table is to be deleted; `if_unreadable` is the answer for one that nobody can read."""
    return _asked(table, lambda log: log.leader_epoch == SEALED_EPOCH, clock, ids, if_unreadable=if_unreadable)


def is_of_topic(table: LogTable, topic_ids: Collection[str], clock: Clock, ids: Ids) -> bool:
    """Whether the table is of one of these topics, and not already of another one of the name. An unreadable one is."""
    return _asked(table, lambda log: log.topic_id in topic_ids, clock, ids, if_unreadable=True)


def _asked(
    table: LogTable,
    question: Callable[[PartitionLog], bool],
    clock: Clock,
    ids: Ids,
    *,
    if_absent: bool = False,
    if_unreadable: bool,
) -> bool:
    """The answer of the newest fold of a table. StoreError when the store is away: that says nothing of the table."""
    log = PartitionLog(table, LogConfig(), clock, ids)
    try:
        log.refresh()
        return question(log)
    except UnknownTopicOrPartitionError:
        return if_absent
    except StoreError:
        raise
    except (CorruptMessageError, KafkaStorageError):
        return if_unreadable


def delete_leftover(table: LogTable, leftover_id: str, clock: Clock, ids: Ids) -> bool:
    """Delete a table that is of the topic `leftover_id`; False when it is not any more, or when somebody else has that
    to do.

    The id is that of a table that was folded before a look at the metadata said that this topic is deleted: whatever
    else may stand here by now is of a newer topic. Several sessions may meet a leftover. One of them seals it, and that
    one deletes it: who only looked, and then slept, would delete the table that took its place.
    """
    log = PartitionLog(table, LogConfig(), clock, ids)
    try:
        log.refresh()
        if log.topic_id != leftover_id or log.leader_epoch == SEALED_EPOCH:
            return False
        if isinstance(log.start_epoch(SEALED_EPOCH, as_leader=False), Conflict):
            return False
    except UnknownTopicOrPartitionError:
        return False
    if not is_sealed(table, clock, ids):
        return False
    table.drop()
    return True


def _seal(log: PartitionLog, leaving: Leaving) -> bool:
    """Of a log that was just folded."""
    for _ in range(SEAL_TRIES):
        if log.leader_epoch == SEALED_EPOCH:
            return True
        if log.leader_epoch > leaving.epoch or log.topic_id != leaving.topic_id:
            return False
        if not isinstance(log.start_epoch(SEALED_EPOCH, as_leader=False), Conflict):
            return True
        log.refresh()
    raise StoreUnavailableError(f"{log.name}: lost the race to seal the table {SEAL_TRIES} times")


_LOG = logging.getLogger("stratalog.state.change")


class ReplicaDeletions:
    """One broker's part in the deletion of topics. What fails is tried again by the next `step`."""

    def __init__(
        self, broker_id: int, root: str, stores: Stores, metadata: MetadataLog, clock: Clock, ids: Ids
    ) -> None:
        self._broker_id = broker_id
        self._root = root
        self._stores = stores
        self._metadata = metadata
        self._clock = clock
        self._ids = ids

    def step(self, broker_epoch: int) -> bool:
        """Delete and report what the metadata, as folded so far, asks for; True when there was something. A table that
        is already of a newer topic of the name, of which the metadata does not tell yet, stays.

        To be called after the broker stopped its replicas of removed topics. Raises StoreError. If the registration is
        over by now, the next one reports.
        """
        waiting = deletions_on(self._metadata.image, self._broker_id)
        if not waiting:
            return False
        topics = {deletion.topic for deletion in waiting}
        topic_ids = [deletion.topic_id for deletion in waiting]
        held = self._stores.replicas(self._root)
        for topic_partition in replicas_to_delete(self._metadata.image, self._broker_id, topics, held):
            table = self._stores.table(self._root, topic_partition)
            if is_of_topic(table, topic_ids, self._clock, self._ids):
                table.drop()
                _LOG.info("[Broker %d] deleted replica %s of a removed topic", self._broker_id, topic_partition)
        try:
            self._metadata.propose(lambda image: replicas_deleted(image, self._broker_id, broker_epoch, topic_ids))
        except StaleBrokerEpochError as reason:
            _LOG.info("[Broker %d] %s", self._broker_id, reason)
        return True
