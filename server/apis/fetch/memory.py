"""What a client's last fetch found nothing in, so that the next one need not look again. I/O: none of its own.

A consumer at the end of its partitions sends the same Fetch over and over. A partition that had nothing to read is not
read again while its leader has published nothing and the metadata stays. A client with a fetch session names no
partitions then; one without a session sends the same bytes: neither is the request decoded again, nor its answer built.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from stratalog.server.apis.fetch.partition_read import PartitionRead
from stratalog.server.apis.fetch.sessions import FetchContext, FetchKey, WantedPartition
from stratalog.server.apis.fetch.waiting_fetches import FetchRun, Lead
from stratalog.storage.records import TopicPartition
from stratalog.wire.messages.frames import CORRELATION_BYTES, EncodedResponse, Frame, RequestFrame, body_of

HasMoved = Callable[[Iterable[TopicPartition], int], Collection[TopicPartition]]
"""Those of some partitions that may have moved after a sequence: `ClusterView.moved_among`."""


@dataclass(frozen=True, slots=True)
class EmptyRead:
    """A partition as it was asked for, in which there was nothing to read."""

    wanted: WantedPartition
    read: PartitionRead
    lead: Lead

    @property
    def place(self) -> TopicPartition:
        assert self.read.topic_partition is not None
        return self.read.topic_partition


@dataclass(frozen=True, slots=True)
class RepeatedFetch:
    """A request without a session that was answered with nothing.

    body      its frame without the correlation id
    response  with its bytes
    """

    body: bytes
    request: RequestFrame
    context: FetchContext
    response: EncodedResponse

    def is_same(self, frame: Frame) -> bool:
        """Whether a frame asks for the same."""
        return len(frame) == len(self.body) + CORRELATION_BYTES and body_of(frame) == self.body


@dataclass(frozen=True, slots=True)
class FetchMemory:
    """The partitions of an answered fetch in which there was nothing to read.

    sequence  of the view's newest change before they were read
    reads     of all partitions of the fetch
    repeat    None: the request cannot come again with the same bytes and the same answer
    """

    sequence: int
    is_committed: bool
    empty: Mapping[FetchKey, EmptyRead]
    reads: Mapping[FetchKey, PartitionRead]
    repeat: RepeatedFetch | None = None

    @classmethod
    def of(cls, run: FetchRun, repeat: RepeatedFetch | None = None) -> FetchMemory:
        """What is to be remembered of a fetch."""
        empty: dict[FetchKey, EmptyRead] = {}
        for each in run.context.wanted:
            read, lead = run.reads[each.key], run.leads.get(each.key)
            if lead is not None and each.key not in run.unread_bytes and is_at_end(each, read):
                empty[each.key] = EmptyRead(each, read, lead)
        return cls(run.sequence, run.is_committed, empty, run.reads, repeat)

    def is_all(self, empty: Collection[EmptyRead], run: FetchRun) -> bool:
        """Whether these are all partitions of the fetch, and of the remembered one."""
        return len(empty) == len(run.context.wanted) == len(self.reads)

    def still_empty(self, run: FetchRun, has_moved: HasMoved) -> list[EmptyRead]:
        """The partitions that this fetch need not read: asked for as before, and not moved since."""
        if run.is_committed != self.is_committed:
            return []
        found: list[EmptyRead] = []
        for each in run.context.wanted:
            known = self.empty.get(each.key)
            if known is not None and (known.wanted is each or known.wanted == each):
                found.append(known)
        moved = has_moved([each.place for each in found], self.sequence)
        return [each for each in found if each.place not in moved] if moved else found


def is_at_end(wanted: WantedPartition, read: PartitionRead) -> bool:
    """Whether there was nothing to read, not even for a larger request."""
    is_empty = not read.is_urgent and not read.batches and read.topic_partition is not None
    return is_empty and wanted.fetch_offset >= read.end_offset
