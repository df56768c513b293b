"""The leader under which an offset was written, and the leader epochs in which it may have been acknowledged. Pure.

The leader's log says in which epoch a record was written, as long as it has that record; below its start, and of a
removed topic, the history's start offsets do. An acknowledgement to `acks=all` leaves no trace of its own: it came once
the high watermark was above the record, in the epoch of the record or in a later one. The newest epoch whose high
watermark is known to be above bounds it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from stratalog.replication.metadata.history.states import PastState
from stratalog.replication.metadata.records import NO_LEADER
from stratalog.storage.errors import OffsetOutOfRangeError, UnknownTopicOrPartitionError
from stratalog.storage.log.leader_epochs import UNDEFINED_EPOCH, LeaderEpochCache
from stratalog.storage.records import TopicPartition


class LedState(NamedTuple):
    """One state of a partition: in the history, or still in the metadata log only (without a `start_offset`)."""

    metadata_offset: int
    timestamp_ms: int
    topic_id: str
    leader: int
    leader_epoch: int
    start_offset: int | None
    isr: tuple[int, ...]

    @classmethod
    def of(cls, past: PastState) -> LedState:
        state = past.state
        place = (past.metadata_offset, past.timestamp_ms, past.topic_id)
        return cls(*place, state.leader, state.leader_epoch, None, state.isr)


class LiveLog(NamedTuple):
    """The leader's log: `high_watermark` is known to be reached in `high_watermark_epoch`; -1: not known."""

    topic_id: str
    log_start_offset: int
    log_end_offset: int
    epochs: LeaderEpochCache
    high_watermark: int = -1
    high_watermark_epoch: int = -1


@dataclass(frozen=True, slots=True)
class LeaderOfOffset:
    """The answer about one offset.

    leader, leader_epoch    the broker under which the record was written, and its epoch
    since_ms                time of the epoch's first state that is known
    isr                     of the epoch's last state
    unsure_epochs           epochs whose start is not known: the record may be of one of them; no epoch when the
                            leader's log has the record
    acknowledged_by_epoch   the newest leader epoch in which an acknowledgement to `acks=all` can have come, since the
                            high watermark was certainly above the offset then; the oldest is `leader_epoch`. None: no
                            high watermark above the offset is known
    is_in_log               whether the leader's log could be read and has the offset
    """

    topic_partition: TopicPartition
    offset: int
    topic_id: str
    leader: int
    leader_epoch: int
    since_ms: int
    isr: tuple[int, ...]
    unsure_epochs: tuple[int, ...]
    acknowledged_by_epoch: int | None
    is_in_log: bool


class LeaderSearch:
    """One search: add states, newest first, until `is_complete`, then `answer`."""

    def __init__(
        self, topic_partition: TopicPartition, offset: int, topic_id: str | None = None, log: LiveLog | None = None
    ) -> None:
        """`topic_id`: None is the newest topic of that name. Raises OffsetOutOfRangeError beyond the log."""
        self._partition = topic_partition
        self._offset = offset
        self._topic_id = topic_id
        self._log = log if log is not None and topic_id in (None, log.topic_id) else None
        if self._log is not None:
            self._topic_id = self._log.topic_id
            if offset >= self._log.log_end_offset:
                raise OffsetOutOfRangeError(
                    f"{topic_partition}: offset {offset} is beyond the log, which ends at {self._log.log_end_offset}"
                )
        if offset < 0:
            raise OffsetOutOfRangeError(f"{topic_partition}: offset {offset} is negative")
        self._states: dict[int, LedState] = {}

    def add(self, states: Iterable[LedState]) -> None:
        """States of the partition, older than those before; the same one may come twice, once with its start."""
        for state in states:
            if self._topic_id is None and state.topic_id:
                self._topic_id = max((state, *self._states.values()), key=lambda each: each.metadata_offset).topic_id
            known = self._states.get(state.metadata_offset)
            if known is None or known.start_offset is None:
                self._states[state.metadata_offset] = state

    @property
    def is_complete(self) -> bool:
        """Whether all states of the record's epoch are there: an older one is."""
        epoch = self._epoch(self._own())
        return epoch is not None and any(state.leader_epoch < epoch for state in self._own())

    def answer(self) -> LeaderOfOffset:
        """Raises UnknownTopicOrPartitionError without a state, OffsetOutOfRangeError for an offset before them."""
        own = self._own()
        if not own:
            raise UnknownTopicOrPartitionError(
                f"{self._partition}: neither the metadata log nor its history has a state of it"
                + (f" under topic id {self._topic_id}" if self._topic_id else "")
            )
        epoch = self._epoch(own)
        of_epoch = [state for state in own if state.leader_epoch == epoch and state.leader != NO_LEADER]
        if epoch is None or not of_epoch:
            raise OffsetOutOfRangeError(self._why_before(own, epoch))
        log = self._log
        is_acknowledged = log is not None and log.high_watermark > self._offset
        return LeaderOfOffset(
            self._partition,
            self._offset,
            of_epoch[0].topic_id,
            of_epoch[-1].leader,
            epoch,
            of_epoch[0].timestamp_ms,
            of_epoch[-1].isr,
            () if self._is_in_log else _without_start(own, epoch, self._offset),
            max(epoch, log.high_watermark_epoch) if log is not None and is_acknowledged else None,
            self._is_in_log,
        )

    def _own(self) -> list[LedState]:
        """The states of the topic, oldest first."""
        return sorted(state for state in self._states.values() if state.topic_id == self._topic_id)

    @property
    def _is_in_log(self) -> bool:
        return self._log is not None and self._log.log_start_offset <= self._offset

    def _epoch(self, own: Sequence[LedState]) -> int | None:
        """The epoch of the record: the log's word where it has the record; else the newest that began at or below."""
        if self._log is not None and self._is_in_log:
            epoch = self._log.epochs.epoch_at(self._offset)
            if epoch != UNDEFINED_EPOCH:
                return epoch
        began = [s.leader_epoch for s in own if s.start_offset is not None and s.start_offset <= self._offset]
        return max(began, default=None)

    def _why_before(self, own: Sequence[LedState], epoch: int | None) -> str:
        if epoch is not None:
            why = f"it was written in leader epoch {epoch}, and the oldest one known is {own[0].leader_epoch}"
        else:
            starts = [(s.leader_epoch, s.start_offset) for s in own if s.start_offset is not None]
            why = "the start of no leader epoch is known"
            if starts:
                why = "the oldest leader epoch whose start is known, {}, began at offset {}".format(*min(starts))
        return f"{self._partition}: offset {self._offset} is before the history: {why}"


def _without_start(own: Sequence[LedState], epoch: int, offset: int) -> tuple[int, ...]:
    """The epochs with a leader above `epoch` and below the next one that began above the offset, of no known start."""
    led = {state.leader_epoch for state in own if state.leader != NO_LEADER and state.leader_epoch > epoch}
    starts = {state.leader_epoch: state.start_offset for state in own if state.start_offset is not None}
    above = min((each for each, start in starts.items() if each > epoch and start > offset), default=None)
    return tuple(sorted(each for each in led - starts.keys() if above is None or each < above))
