"""Deliberate bugs of what brokers remember of batches for fetches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from unittest.mock import patch

from stratalog.server.apis.fetch import partition_read
from stratalog.server.batches.batch_memory import BatchMemory, PublishedLog
from stratalog.server.view.marks import Watermarks
from stratalog.storage.log.state import NOTHING_REMOVED
from stratalog.storage.records import IdentifiedPartition, TopicPartition
from stratalog.wire.batches.headers import Buffer, EncodedBatch
from tests.simulation.cluster import QUICK_UPKEEP, Setting
from tests.simulation.mutations.mutation import Mutation, mix

RECREATED = Setting(endpoint=True, recreates=True, producers=4, pause_ms_max=30)
ERASED = Setting(endpoint=True, erases=True, upkeep=QUICK_UPKEEP)


@contextmanager
def batches_are_filed_by_name() -> Iterator[None]:
    """The memory knows logs by topic and partition, so batches of a deleted topic are given for the next one."""
    put, read = BatchMemory.put, BatchMemory.read

    def put_by_name(self: BatchMemory, log: IdentifiedPartition, offset: int, epoch: int, records: Buffer) -> None:
        put(self, log._replace(topic_id=""), offset, epoch, records)

    def read_by_name(
        self: BatchMemory, of: PublishedLog, start: int, end: int, max_bytes: int, *, takes_zstd: bool = True
    ) -> Sequence[EncodedBatch]:
        named = of._replace(partition=of.partition._replace(topic_id=""))
        return read(self, named, start, end, max_bytes, takes_zstd=takes_zstd)

    with patch.object(BatchMemory, "put", put_by_name), patch.object(BatchMemory, "read", read_by_name):
        yield


@contextmanager
def what_was_removed_stays_in_memory() -> Iterator[None]:
    """A reader of the memory does not look at what its leader has published about removed records."""
    published_log = partition_read.published_log

    def published(named: TopicPartition, marks: Watermarks) -> PublishedLog:
        return published_log(named, marks)._replace(removed=NOTHING_REMOVED)

    with patch.object(partition_read, "published_log", published):
        yield


ENDPOINT_MUTATIONS: dict[str, Mutation] = {
    "memory by name": Mutation(batches_are_filed_by_name, ("OwnTopic",), mix(crash=1), RECREATED),
    "removed stays in memory": Mutation(
        what_was_removed_stays_in_memory, ("ErasedIsUnread",), mix(pause_session=1), ERASED, 6_000
    ),
}
