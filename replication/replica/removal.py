"""Deletion of a replica whose broker or topic has lost it, while fetch sessions may still work on it.

I/O: the tables below the broker's root, and the metadata log. A broker's loop deletes and its fetch sessions copy,
often in other processes: a session that sleeps may wake after the deletion, and one that is ahead may work for a later
assignment of the same partition. So the table is sealed first: a commit shows an epoch after which there is none. From
then on every session is fenced and publishes nothing, those of a later assignment too; they wait until the table is
gone and make a new one. A table that a later assignment has written before the seal stays.

Replicas of removed topics are dropped when the broker applies the removal or starts (`broker.hosted_replicas`);
`deletions` drops the rest and reports the topic's end to the metadata log.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import NamedTuple

from stratalog.storage import errors
from stratalog.storage.clock import Clock, Ids
from stratalog.storage.delta.table import Conflict, LogTable
from stratalog.storage.errors import StoreError
from stratalog.storage.log.partition_log import PartitionLog
from stratalog.storage.log.state import SEALED_EPOCH
from stratalog.storage.topic_config import LogConfig

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


def delete_unknown(table: LogTable, is_known: Callable[[str], bool], clock: Clock, ids: Ids) -> bool:
    """Delete a table of a topic that there is no more; False when another process deletes it, or when it is of a topic
    that there is: a process that slept finds the table that a later one has made. One that is absent, cannot be read,
    or is sealed already is deleted as it is: nothing can write to it.

    is_known  whether there is a topic of this id, by the newest metadata
    """
    log = PartitionLog(table, LogConfig(), clock, ids)
    try:
        log.refresh()
        if log.leader_epoch != SEALED_EPOCH:
            return not is_known(log.topic_id) and delete_stray(table, log.topic_id, clock, ids)
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
