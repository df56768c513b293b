"""Produce requests and responses as plain values. Pure.

Clients in the broker's process call it with these; the Kafka endpoint is an adapter over them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from stratalog.storage.errors import StratalogError
from stratalog.storage.log.append import HandedFiles
from stratalog.storage.records import IdentifiedPartition, NewRecordBatch, TopicPartition

ACKS_NONE, ACKS_LEADER, ACKS_ALL = 0, 1, -1
NO_TIME = -1


@dataclass(frozen=True, slots=True)
class SentBatch:
    """A batch as its producer's bytes, of which only the header was decoded.

    read  decodes the records of all batches of one commit at once, which takes little more than for one: returns the
          content of each, in order, or the error that refuses it
    """

    data: bytes | memoryview
    producer_id: int
    producer_epoch: int
    attributes: int
    read: Callable[[Sequence[SentBatch]], Sequence[NewRecordBatch | StratalogError]]
    verified_offset: int = -1
    verified_leader_epoch: int = -1

    @property
    def size_bytes(self) -> int:
        return len(self.data)


@dataclass(frozen=True, slots=True)
class ProduceRequest:
    """One batch for one partition, which a later topic of that name refuses with UNKNOWN_TOPIC_ID.

    acks                   0, 1 or -1 (all); `timeout_ms` bounds the wait for acks=all
    expected_leader_epoch  the only leader epoch for the append: FENCED_LEADER_EPOCH under a newer one,
                           UNKNOWN_LEADER_EPOCH under an older one. None: any
    transactional_id       of a transactional batch, for a leader in another process, which asks the transaction's
                           coordinator itself
    sender                 the connection that it came by: senders take turns in the leader's queue. "": this process
    """

    partition: IdentifiedPartition
    batch: NewRecordBatch | SentBatch
    acks: int = ACKS_ALL
    timeout_ms: int = 30_000
    expected_leader_epoch: int | None = None
    transactional_id: str | None = None
    sender: str = ""

    @property
    def topic_partition(self) -> TopicPartition:
        return self.partition.topic_partition


@dataclass(frozen=True, slots=True)
class HandOverRequest:
    """Data files that a Spark sink has put into the leader's table directory.

    A batch of the sink that is committed already is answered with success and not written again.
    """

    partition: IdentifiedPartition
    handed: HandedFiles
    acks: int = ACKS_ALL
    timeout_ms: int = 30_000
    sender: str = ""

    @property
    def topic_partition(self) -> TopicPartition:
        return self.partition.topic_partition


@dataclass(frozen=True, slots=True)
class ProduceResponse:
    """`error` None: stored as offsets `[base_offset, last_offset]`; `duplicate`: it was stored before.

    append_time_ms    the time that the broker gave the records, of a topic with LogAppendTime, else -1
    log_start_offset  of the leader's log right after the append, or beside a refusal; -1 if it is not known
    """

    partition: IdentifiedPartition
    base_offset: int = -1
    last_offset: int = -1
    leader_epoch: int = -1
    duplicate: bool = False
    error: StratalogError | None = None
    append_time_ms: int = NO_TIME
    log_start_offset: int = -1

    @property
    def topic_partition(self) -> TopicPartition:
        return self.partition.topic_partition
