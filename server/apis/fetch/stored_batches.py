"""Record batches of a partition's log as they lie on storage, for fetches. I/O: reads the log's files.

For a client that reads on and on, as one that begins with old records does, a process beside the broker's reads
(`reading_process`). What a client reads first is read here: mostly it is all that it wants.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import replace
from functools import partial
from typing import Final, NamedTuple

from stratalog.replication.stores import DeltaStores
from stratalog.server.apis.fetch.reading_process import ReadingProcess, ReadRequest
from stratalog.server.batches.batch_memory import PublishedLog
from stratalog.server.batches.read_ahead import ReadFrom
from stratalog.server.view.cluster_view import ClusterView
from stratalog.storage.log.reader import PlannedRead
from stratalog.storage.records import TopicPartition
from stratalog.wire.batches.headers import EncodedBatch
from stratalog.wire.batches.record_batches import encode_rows, part_of

READ_BYTES_MAX: Final = 2 << 20
"""What is read at once here: an answer of many MiB is put together from several reads, between which others get on."""
AHEAD_BYTES: Final = 4 << 20
"""What the process reads at once, if there is room for what its client does not want yet."""
READERS_MAX: Final = 1_000
RECENT_MS: Final = 10_000


class Streaks:
    """Which readers go on where they were, by partition and offset, and how much these read from storage. Pure.

    >>> streaks, named = Streaks(), TopicPartition("t", 0)
    >>> streaks.goes_on(named, 0), streaks.went_on(named, 0, 100, 5_000, now_ms=1), streaks.goes_on(named, 100)
    (False, None, True)
    >>> streaks.recent_bytes(2), streaks.went_on(named, 100, 180, 4_000, now_ms=3), streaks.recent_bytes(4)
    (0, None, 4000)
    >>> streaks.goes_on(named, 100), streaks.recent_bytes(3 + RECENT_MS)  # that reader is at 180 now
    (False, 0)
    """

    def __init__(self, readers_max: int = READERS_MAX) -> None:
        self._lock = threading.Lock()
        self._readers_max = readers_max
        self._next: OrderedDict[tuple[TopicPartition, int], None] = OrderedDict()
        self._since_ms = -RECENT_MS
        self._recent_bytes = 0

    def goes_on(self, named: TopicPartition, offset: int) -> bool:
        """Whether a reader has read up to `offset`; False for one that begins there."""
        return (named, offset) in self._next

    def went_on(self, named: TopicPartition, offset: int, next_offset: int, size_bytes: int, now_ms: int) -> None:
        """A reader at `offset` read so many bytes and comes to `next_offset` then."""
        with self._lock:
            has_gone_on = self._next.pop((named, offset), False) is None
            self._next[named, next_offset] = None
            if len(self._next) > self._readers_max:
                self._next.popitem(last=False)
            if not has_gone_on:
                return
            if now_ms - self._since_ms >= RECENT_MS:
                self._since_ms, self._recent_bytes = now_ms, 0
            self._recent_bytes += size_bytes

    def recent_bytes(self, now_ms: int) -> int:
        """What readers that went on have read within `RECENT_MS`."""
        return self._recent_bytes if now_ms - self._since_ms < RECENT_MS else 0


class StoredRead(NamedTuple):
    """Batches, and the offset behind them: without batches there are no records below that. `source`: whose they are;
    None unless they are the leader's, the versions of whose table are published."""

    batches: list[EncodedBatch]
    next_offset: int
    source: ReadFrom | None


class StoredBatches:
    """Reads for one broker. Any thread may use it.

    process_from_bytes  what clients that go on read within `RECENT_MS` before the process is started; 0: never
    """

    def __init__(self, view: ClusterView, process_from_bytes: int) -> None:
        self._view = view
        self._process_from_bytes = process_from_bytes
        self._process = ReadingProcess(view.clock)
        self.streaks = Streaks()

    def read(self, of: PublishedLog, offset: int, wanted_bytes: int, end_offset: int, room_bytes: int) -> StoredRead:
        """Batches from `offset` on, of records below `end_offset`, often more than `wanted_bytes`. Raises as
        `ClusterView.fetch`.

        room_bytes  how much more than is wanted may be read for the client's next fetches
        """
        named, size_bytes = of.partition.topic_partition, min(wanted_bytes, READ_BYTES_MAX)
        ahead_bytes = max(size_bytes, min(AHEAD_BYTES, wanted_bytes + room_bytes))
        read = partial(self._read, of, size_bytes)
        found, next_offset = self._view.records.read_planned(named, offset, ahead_bytes, end_offset, read, timeout_ms=0)
        batches, source = found or ([], None)
        return StoredRead(batches, batches[-1].last_offset + 1 if batches else next_offset, source)

    def _read(
        self, of: PublishedLog, size_bytes: int, root: str, planned: PlannedRead
    ) -> tuple[list[EncodedBatch], ReadFrom | None]:
        is_leaders = (
            root == self._view.leader_root(of.partition.topic_partition) and planned.leader_epoch == of.leader_epoch
        )
        versions = planned.version, planned.removed_version
        source = ReadFrom(of.partition, of.leader_epoch, *versions) if is_leaders else None
        return self._encoded(of.partition.topic_partition, size_bytes, root, planned), source

    def _encoded(self, named: TopicPartition, size_bytes: int, root: str, planned: PlannedRead) -> list[EncodedBatch]:
        stores = self._view.stores
        if isinstance(stores, DeltaStores) and self._is_for_the_process(named, planned.start_offset, stores, root):
            bounds = planned.start_offset, planned.end_offset, planned.max_bytes
            request = ReadRequest(root, named, stores.settings, planned.entries, *bounds)
            if (batches := self._process.read(request)) is not None:
                return batches
        rows = replace(planned, max_bytes=size_bytes, decoded_bytes_max=size_bytes).read()
        return encode_rows(part_of(rows, size_bytes)) if rows.num_rows else []

    def _is_for_the_process(self, named: TopicPartition, offset: int, stores: DeltaStores, root: str) -> bool:
        if not self._process_from_bytes or not self.streaks.goes_on(named, offset):
            return False
        if stores.objects(root).is_of_this_process:
            return False
        recent_bytes = self.streaks.recent_bytes(self._view.clock.monotonic_ms())
        return self._process.is_ready or recent_bytes >= self._process_from_bytes

    def close(self) -> None:
        """End the process."""
        self._process.close()
