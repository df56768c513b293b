"""What a log remembers of its producers, so that a repeated batch is not appended twice. Pure.

Per producer id: its epoch and its last five batches (Kafka's ProducerStateManager). Per sink, a Spark query
that hands over whole files: its last five batch ids. Both are values tied to offsets, so they can be
truncated with the log, and they are kept as one small JSON object named by the commit (DESIGN §3).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from storage.errors import InvalidProducerEpochError, OutOfOrderSequenceNumberError, UnknownProducerIdError
from storage.records import NO_PRODUCER_ID

BATCHES_KEPT = 5
PRODUCER_ID_EXPIRATION_MS = 86_400_000
"""Kafka's default of `producer.id.expiration.ms`: one day."""
SINK_EXPIRATION_MS = 30 * 86_400_000
"""A sink's batch ids outlive producer ids: a Spark query may be restarted weeks later."""
_SEQUENCE_COUNT = 1 << 31


def sequence_after(sequence: int, count: int) -> int:
    """The sequence number `count` records after `sequence`; after 2^31 - 1 comes 0."""
    return (sequence + count) % _SEQUENCE_COUNT


class Accept(NamedTuple):
    """The batch is new and in order."""


class Duplicate(NamedTuple):
    """The batch is in the log already, at these offsets (inclusive). A sink's base_offset is not kept: -1."""

    base_offset: int
    last_offset: int


class BatchMetadata(NamedTuple):
    """One appended batch of a producer; `timestamp_ms` is the time of the append."""

    base_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int
    timestamp_ms: int


class SinkBatch(NamedTuple):
    """One appended batch of a sink, offsets `[base_offset, last_offset]`; base_offset -1 where it is not known."""

    batch_id: int
    last_offset: int
    timestamp_ms: int
    base_offset: int = -1


class ProducerEntry(NamedTuple):
    """A producer's epoch, its last batches of that epoch (oldest first) and the time of its last append."""

    producer_epoch: int
    batches: tuple[BatchMetadata, ...]
    timestamp_ms: int

    @property
    def is_complete(self) -> bool:
        """True when `batches` is everything that the producer ever appended."""
        return self.producer_epoch == 0 and bool(self.batches) and self.batches[0].base_sequence == 0


class SinkEntry(NamedTuple):
    """A sink's last batches, oldest first."""

    batches: tuple[SinkBatch, ...]


@dataclass(frozen=True, slots=True)
class ProducerStates:
    """The producer and sink state of one log up to its log end; every change gives a new value."""

    producers: Mapping[int, ProducerEntry] = field(default_factory=dict)
    sinks: Mapping[str, SinkEntry] = field(default_factory=dict)

    def check(self, producer_id: int, producer_epoch: int, base_sequence: int, record_count: int) -> Accept | Duplicate:
        """Whether a batch of a producer may be appended. Batches without a producer id always may.

        A control batch has `base_sequence` -1: only its epoch is checked.
        Raises InvalidProducerEpochError (epoch below the known one), OutOfOrderSequenceNumberError (a gap,
        or older than the five batches kept), UnknownProducerIdError (never seen, yet sequence above 0).
        """
        if producer_id == NO_PRODUCER_ID:
            return Accept()
        entry = self.producers.get(producer_id)
        if entry is None:
            return _check_unknown(producer_id, base_sequence)
        if producer_epoch < entry.producer_epoch:
            raise InvalidProducerEpochError(
                f"producer {producer_id}: epoch {producer_epoch} is below the current {entry.producer_epoch}"
            )
        if base_sequence < 0:
            return Accept()
        if producer_epoch > entry.producer_epoch:
            return _check_first(producer_id, producer_epoch, base_sequence)
        return _check_next(producer_id, entry, base_sequence, record_count)

    def check_sink(self, sink_id: str, batch_id: int) -> Accept | Duplicate:
        """Whether a sink's batch is new: ids only grow, gaps are allowed."""
        entry = self.sinks.get(sink_id)
        if entry is None or batch_id > entry.batches[-1].batch_id:
            return Accept()
        at_or_after = next(b for b in entry.batches if b.batch_id >= batch_id)
        return Duplicate(-1, at_or_after.last_offset)

    def with_batch(self, producer_id: int, producer_epoch: int, batch: BatchMetadata) -> ProducerStates:
        """The states after `batch` was appended. A newer epoch forgets the batches of the older one."""
        entry = self.producers.get(producer_id)
        earlier = entry.batches if entry and entry.producer_epoch == producer_epoch else ()
        batches = earlier if batch.base_sequence < 0 else (*earlier, batch)[-BATCHES_KEPT:]
        new = ProducerEntry(producer_epoch, batches, batch.timestamp_ms)
        return ProducerStates({**self.producers, producer_id: new}, self.sinks)

    def with_sink(self, sink_id: str, batch: SinkBatch) -> ProducerStates:
        """The states after a sink's batch was appended."""
        earlier = self.sinks[sink_id].batches if sink_id in self.sinks else ()
        entry = SinkEntry((*earlier, batch)[-BATCHES_KEPT:])
        return ProducerStates(self.producers, {**self.sinks, sink_id: entry})

    def with_entries(self, entries: Mapping[int, ProducerEntry]) -> ProducerStates:
        """The states with some producers' entries put in."""
        return ProducerStates({**self.producers, **entries}, self.sinks) if entries else self

    def truncated(self, end_offset: int) -> tuple[ProducerStates, frozenset[int]]:
        """The states of the log cut to end at `end_offset`, and the producer ids left without a batch.

        Those ids are absent from the states; where they wrote more than is kept here, the rows of the
        remaining files tell what came before, and the caller puts that back.
        """
        producers: dict[int, ProducerEntry] = {}
        emptied: set[int] = set()
        for producer_id, entry in self.producers.items():
            kept = tuple(b for b in entry.batches if b.last_offset < end_offset)
            if len(kept) == len(entry.batches):
                producers[producer_id] = entry
            elif kept:
                producers[producer_id] = ProducerEntry(entry.producer_epoch, kept, kept[-1].timestamp_ms)
            elif not entry.is_complete:
                emptied.add(producer_id)
        sinks = {name: SinkEntry(kept_s) for name, kept_s in _sinks_below(self.sinks, end_offset) if kept_s}
        if producers == self.producers and sinks == self.sinks:
            return self, frozenset(emptied)
        return ProducerStates(producers, sinks), frozenset(emptied)

    def expired(
        self,
        now_ms: int,
        producer_expiration_ms: int = PRODUCER_ID_EXPIRATION_MS,
        sink_expiration_ms: int = SINK_EXPIRATION_MS,
    ) -> ProducerStates:
        """The states without producers and sinks that were silent for so long; itself if there are none."""
        producers = {i: e for i, e in self.producers.items() if now_ms - e.timestamp_ms < producer_expiration_ms}
        sinks = {n: e for n, e in self.sinks.items() if now_ms - e.batches[-1].timestamp_ms < sink_expiration_ms}
        if len(producers) == len(self.producers) and len(sinks) == len(self.sinks):
            return self
        return ProducerStates(producers, sinks)

    def sink_ranges(self) -> list[tuple[int, int]]:
        """The offsets `[base, last]` of the sinks' last batches: each is one hand-over, of one or more files."""
        batches = (batch for entry in self.sinks.values() for batch in entry.batches)
        return [(batch.base_offset, batch.last_offset) for batch in batches if batch.base_offset >= 0]

    def to_json(self) -> bytes:
        """Compact JSON; equal states give equal bytes.

        {"producers":{"<id>":[epoch,timestamp_ms,[[base_sequence,last_sequence,base_offset,last_offset,
        timestamp_ms],…]]},"sinks":{"<sink id>":[[batch_id,last_offset,timestamp_ms,base_offset],…]}}
        """
        content = {
            "producers": {
                str(i): [e.producer_epoch, e.timestamp_ms, e.batches] for i, e in sorted(self.producers.items())
            },
            "sinks": {name: e.batches for name, e in sorted(self.sinks.items())},
        }
        return json.dumps(content, separators=(",", ":")).encode()

    @staticmethod
    def from_json(data: bytes) -> ProducerStates:
        """What `to_json` wrote. Raises ValueError when it is something else."""
        content = json.loads(data)
        try:
            producers = {
                int(i): ProducerEntry(epoch, tuple(BatchMetadata(*b) for b in batches), timestamp_ms)
                for i, (epoch, timestamp_ms, batches) in content["producers"].items()
            }
            sinks = {
                name: SinkEntry(tuple(SinkBatch(*b) for b in batches)) for name, batches in content["sinks"].items()
            }
        except (KeyError, TypeError, AttributeError) as reason:
            raise ValueError(f"not a producer state object: {reason}") from reason
        return ProducerStates(producers, sinks)


def _check_unknown(producer_id: int, base_sequence: int) -> Accept:
    if base_sequence > 0:
        raise UnknownProducerIdError(f"producer {producer_id} is not known and starts at sequence {base_sequence}")
    return Accept()


def _check_first(producer_id: int, producer_epoch: int, base_sequence: int) -> Accept:
    if base_sequence != 0:
        raise OutOfOrderSequenceNumberError(
            f"producer {producer_id}: sequence {base_sequence} for the new epoch {producer_epoch}, expected 0"
        )
    return Accept()


def _check_next(producer_id: int, entry: ProducerEntry, base_sequence: int, record_count: int) -> Accept | Duplicate:
    last_sequence = sequence_after(base_sequence, record_count - 1)
    for batch in entry.batches:
        if (batch.base_sequence, batch.last_sequence) == (base_sequence, last_sequence):
            return Duplicate(batch.base_offset, batch.last_offset)
    expected = sequence_after(entry.batches[-1].last_sequence, 1) if entry.batches else 0
    if base_sequence != expected:
        raise OutOfOrderSequenceNumberError(
            f"producer {producer_id}, epoch {entry.producer_epoch}: sequence {base_sequence}, expected {expected}"
        )
    return Accept()


def _sinks_below(sinks: Mapping[str, SinkEntry], end_offset: int) -> Iterable[tuple[str, tuple[SinkBatch, ...]]]:
    for name, entry in sinks.items():
        yield name, tuple(b for b in entry.batches if b.last_offset < end_offset)
