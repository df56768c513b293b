"""Leader epochs of a log and the offsets at which they began: KIP-101 and KIP-279. Pure.

Entries ascend in epoch and in start offset. Entry `(epoch 2, start_offset 10)`: the records from offset 10 up to the
next entry were written under leader epoch 2. Source: Kafka's LeaderEpochFileCache.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import NamedTuple

UNDEFINED_EPOCH = -1
UNDEFINED_EPOCH_OFFSET = -1


class EpochEntry(NamedTuple):
    """Epoch `epoch` began at offset `start_offset`."""

    epoch: int
    start_offset: int


class EpochEndOffset(NamedTuple):
    """Epoch `epoch` ended before offset `end_offset`; (-1, -1): unknown."""

    epoch: int
    end_offset: int


UNDEFINED = EpochEndOffset(UNDEFINED_EPOCH, UNDEFINED_EPOCH_OFFSET)


class LogEnd(NamedTuple):
    """The newest leader epoch of which a log has all that it began with, and the log end offset. Of two logs of a
    partition the one with the greater end has every record of the other one that was committed: Raft's order of logs
    (section 5.4.1), in which the beginning of an epoch is an entry of the log (section 5.4.2)."""

    epoch: int
    offset: int


NO_LOG = LogEnd(UNDEFINED_EPOCH, 0)
"""The end of a log without records, or of none."""


@dataclass(frozen=True, slots=True)
class LeaderEpochCache:
    """The epoch entries of one log, as a value: every change makes a new cache."""

    entries: tuple[EpochEntry, ...] = ()

    @property
    def latest_epoch(self) -> int:
        """The largest epoch with an entry, -1 when there is none."""
        return self.entries[-1].epoch if self.entries else UNDEFINED_EPOCH

    def assign(self, epoch: int, start_offset: int) -> LeaderEpochCache:
        """The cache after `epoch` began at `start_offset`; the same object when that changes nothing.

        Entries that the new one contradicts (epoch or start offset not below its own) are removed, as in Kafka:
        (0,0) (2,10) with (3,10) assigned becomes (0,0) (3,10), since epoch 2 wrote nothing.
        Raises ValueError for a negative epoch or offset.
        """
        if epoch < 0 or start_offset < 0:
            raise ValueError(f"epoch {epoch} and start offset {start_offset} must not be negative")
        if self.entries and self.entries[-1].epoch == epoch and self.entries[-1].start_offset <= start_offset:
            return self
        kept = tuple(e for e in self.entries if e.epoch < epoch and e.start_offset < start_offset)
        return LeaderEpochCache((*kept, EpochEntry(epoch, start_offset)))

    def end_offset_for(self, epoch: int, log_end_offset: int) -> EpochEndOffset:
        """The end offset of the largest known epoch at or below `epoch`.

        epoch           leader epoch asked for
        log_end_offset  one past the last record of this log
        returns         (-1, -1) when `epoch` is undefined or above all known ones; (epoch, first start offset)
                        when it is below all known ones
        example         entries (0,0) (2,10), log end 15: for 1 -> (0,10); for 2 -> (2,15); for 3 -> (-1,-1)
        """
        if epoch == UNDEFINED_EPOCH:
            return UNDEFINED
        if epoch == self.latest_epoch:
            return EpochEndOffset(epoch, log_end_offset)
        above = bisect_right(self.entries, epoch, key=lambda entry: entry.epoch)
        if above == len(self.entries):
            return UNDEFINED
        floor_epoch = self.entries[above - 1].epoch if above else epoch
        return EpochEndOffset(floor_epoch, self.entries[above].start_offset)

    def end_after(self, epoch: int) -> int | None:
        """Where the first epoch above `epoch` began: every record from there on is younger than `epoch`. None when
        there is none.

        example  entries (0,0) (2,10): for 0 and 1 -> 10; for 2 -> None
        """
        above = bisect_right(self.entries, epoch, key=lambda entry: entry.epoch)
        return self.entries[above].start_offset if above < len(self.entries) else None

    def keeps_ends_of(self, before: LeaderEpochCache) -> bool:
        """Whether no `end_after` is further than in an earlier cache of the same log: no record of an epoch that had
        ended can come back.

        example  before (0,0) (2,10): (0,0) (2,10) (3,15) and (0,0) (3,10) keep them; (0,0) and (0,0) (3,15) do not
        """
        if not before.entries:
            return True
        last = before.entries[-1]
        return any(
            entry.epoch == last.epoch or (entry.epoch > last.epoch and entry.start_offset <= last.start_offset)
            for entry in self.entries
        )

    def epoch_at(self, offset: int) -> int:
        """The leader epoch under which `offset` was (or would be) written; -1 below the first entry."""
        if self.entries and self.entries[-1].start_offset <= offset:
            return self.entries[-1].epoch  # the usual case, without a search
        above = bisect_right(self.entries, offset, key=lambda entry: entry.start_offset)
        return self.entries[above - 1].epoch if above else UNDEFINED_EPOCH

    def log_end(self, log_end_offset: int) -> LogEnd:
        """The end of the log. An epoch that began and wrote nothing counts: in it the records before it were committed,
        by replicas that know of it, and no replica of an older epoch replaces them.

        example  entries (0,0) (2,10), log end 15 -> (2, 15); log end 10 -> (2, 10); no entries, log end 0 -> `NO_LOG`
        """
        return LogEnd(self.latest_epoch, log_end_offset)

    def truncate_from_end(self, end_offset: int) -> LeaderEpochCache:
        """The cache after the log was cut to end at `end_offset`: entries that start there or later are removed.

        Of a log without records, which starts and ends there, the first entry stays: the epoch in force at its start,
        without which nothing would show how far it has come (`log_end`). Kafka removes it, too.
        """
        if not self.entries or self.entries[-1].start_offset < end_offset:
            return self
        if 0 < end_offset == self.entries[0].start_offset:
            return LeaderEpochCache(self.entries[:1])
        return LeaderEpochCache(tuple(e for e in self.entries if e.start_offset < end_offset))

    def truncate_from_start(self, start_offset: int) -> LeaderEpochCache:
        """The cache after the log start moved to `start_offset`, where the epoch in force there now starts.

        (0,0) (2,10) (4,20) with 15 becomes (2,15) (4,20).
        """
        gone = bisect_right(self.entries, start_offset, key=lambda entry: entry.start_offset)
        if gone == 0 or (gone == 1 and self.entries[0].start_offset == start_offset):
            return self
        in_force = EpochEntry(self.entries[gone - 1].epoch, start_offset)
        return LeaderEpochCache((in_force, *self.entries[gone:]))

    @staticmethod
    def agreed_end(
        own: LeaderEpochCache,
        own_log_end: int,
        leader: LeaderEpochCache,
        leader_log_end: int,
        leader_log_start: int = 0,
    ) -> int:
        """The offset below which a follower's log agrees with its leader's: where the follower truncates to.

        KIP-279 asks the leader repeatedly, each time about a smaller epoch. With both caches at hand that is one step:
        the largest epoch that both know, up to the smaller of its two ends. Two logs that hold the same epoch agree on
        everything before it. Without a common epoch two parts may stay: offsets below the leader's log start, which it
        no longer has, and offsets below the follower's own first entry, whose epochs were removed with its log start.
        The latter were committed, up to where the leader continued under another epoch. A log without entries, or with
        one at its end, has no records, so it cannot disagree, and it must not go back to offsets that were assigned
        before (Kafka stays at the high watermark then).

        example  own (1,0) (2,20) end 30, leader (1,0) (3,15) end 25: common epoch 1, ends 20 and 15 -> 15
                 own (1,3) end 7, as its log starts at 3, leader (0,0) (3,3): epoch 0 ended at 3 on both -> 3
        """
        if not own.entries or own.entries[0].start_offset >= own_log_end:
            return min(own_log_end, leader_log_end)
        known = {entry.epoch for entry in leader.entries}
        common = next((e.epoch for e in reversed(own.entries) if e.epoch in known), None)
        if common is None:
            before_leader_left = leader.end_offset_for(own.latest_epoch, leader_log_end).end_offset
            return min(own_log_end, max(leader_log_start, min(own.entries[0].start_offset, before_leader_left)))
        own_end = own.end_offset_for(common, own_log_end).end_offset
        leader_end = leader.end_offset_for(common, leader_log_end).end_offset
        return min(own_end, leader_end, own_log_end)
