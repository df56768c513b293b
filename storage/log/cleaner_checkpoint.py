"""The log cleaner's position, and when it was reached, which decides how long tombstones live. Pure.

Kafka keeps the position in the file `cleaner-offset-checkpoint`, and the time as a delete horizon in each batch
(KIP-534). Here both are `txn` actions of the log's own table, in the commit that ends a pass of the cleaner. A pass may
last longer than the process that began it, so the commits before state how far it has come.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

FIRST_DIRTY = "stratalog.cleaner.first.dirty"
"""The offset below which the log is clean: no two records of one key, other than newer ones above it."""
GONE_TOMBSTONES = "stratalog.cleaner.gone.tombstones"
"""The offset below which tombstones may be gone: a log that ends below it may hold records that they deleted."""
GONE_ABORTED = "stratalog.cleaner.gone.aborted"
"""The offset below which aborted records may be gone, and their transactions from producer state."""
PASS_END = "stratalog.cleaner.pass.end."
PASS_MS = "stratalog.cleaner.pass.ms."
UNDER_WAY_END = "stratalog.cleaner.under.way.end"
"""The end of the pass under way, 0 when there is none."""
UNDER_WAY_CLEANED = "stratalog.cleaner.under.way.cleaned"
"""The offset below which the pass under way has cleaned."""
PASSES_MAX = 20
"""Slots `0..19` of `PASS_END` and `PASS_MS`; of more passes the later ones are remembered."""
NO_PASS = -1
"""The value of `txn stratalog.cleaner.pass.end.<slot>` when the slot is free."""
PASSES_PER_RETENTION = 8
"""Passes within this part of `delete.retention.ms` are remembered as one."""


class CleanerPass(NamedTuple):
    """The offsets below `end_offset`, down to the pass before, were first compacted at `cleaned_ms`."""

    end_offset: int
    cleaned_ms: int


class PassUnderWay(NamedTuple):
    """A pass over all below `end_offset` has cleaned what lies below `cleaned_end`."""

    end_offset: int
    cleaned_end: int


@dataclass(frozen=True, slots=True)
class CleanerCheckpoint:
    """The cleaner's position.

    passes               of the offsets that may still hold tombstones, ascending in both numbers
    gone_tombstones_end  below it tombstones may be gone; `gone_aborted_end`: aborted records
    under_way            the pass that has begun to commit and not ended, if any
    """

    first_dirty_offset: int = 0
    passes: tuple[CleanerPass, ...] = ()
    gone_tombstones_end: int = 0
    gone_aborted_end: int = 0
    under_way: PassUnderWay | None = None

    @staticmethod
    def from_txns(txns: Mapping[str, int]) -> CleanerCheckpoint:
        """The position in a table's txns; without any the log was never compacted."""
        ends = [(slot, txns.get(f"{PASS_END}{slot}", NO_PASS)) for slot in range(PASSES_MAX)]
        passes = (CleanerPass(end, txns.get(f"{PASS_MS}{slot}", 0)) for slot, end in ends if end != NO_PASS)
        gone_ends = txns.get(GONE_TOMBSTONES, 0), txns.get(GONE_ABORTED, 0)
        under_way = PassUnderWay(txns.get(UNDER_WAY_END, 0), txns.get(UNDER_WAY_CLEANED, 0))
        return CleanerCheckpoint(
            txns.get(FIRST_DIRTY, 0), tuple(passes), *gone_ends, under_way=under_way if under_way.end_offset else None
        )

    @property
    def cleaned_end(self) -> int:
        """The offset below which records may have been removed."""
        return max(self.first_dirty_offset, self.under_way.cleaned_end if self.under_way else 0)

    def txns_after(self, before: CleanerCheckpoint) -> dict[str, int]:
        """The `txn` actions that lead from the position `before` to this one."""
        ends = (
            (FIRST_DIRTY, before.first_dirty_offset, self.first_dirty_offset),
            (GONE_TOMBSTONES, before.gone_tombstones_end, self.gone_tombstones_end),
            (GONE_ABORTED, before.gone_aborted_end, self.gone_aborted_end),
        )
        none = PassUnderWay(0, 0)
        was, now = before.under_way or none, self.under_way or none
        of_pass = (UNDER_WAY_END, was.end_offset, now.end_offset), (UNDER_WAY_CLEANED, was.cleaned_end, now.cleaned_end)
        txns = {name: after for name, earlier, after in (*ends, *of_pass) if after != earlier}
        for slot in range(max(len(self.passes), len(before.passes))):
            each = self.passes[slot] if slot < len(self.passes) else CleanerPass(NO_PASS, 0)
            if slot >= len(before.passes) or before.passes[slot] != each:
                txns |= {f"{PASS_END}{slot}": each.end_offset, f"{PASS_MS}{slot}": each.cleaned_ms}
        return txns

    def due_tombstones_end(self, now_ms: int, delete_retention_ms: int) -> int:
        """The offset below which tombstones were first compacted at least `delete.retention.ms` ago.

        Compacted up to 100 at 5,000 ms and up to 250 at 9,000 ms, with a retention of 2,000 ms: 100 from 7,000 ms on,
        250 from 11,000 ms on.
        """
        due = (each.end_offset for each in self.passes if each.cleaned_ms + delete_retention_ms <= now_ms)
        return max(due, default=0)

    def after_pass(self, end_offset: int, now_ms: int, delete_retention_ms: int) -> CleanerCheckpoint:
        """The position after a pass at `now_ms` over all below `end_offset`, without the tombstones that were due.

        A pass soon after the one before replaces it, so that few are remembered: its tombstones live longer by at most
        an eighth of `delete.retention.ms`.
        """
        gone_end = self.due_tombstones_end(now_ms, delete_retention_ms)
        kept = [each for each in self.passes if each.end_offset > gone_end]
        interval_ms = delete_retention_ms // PASSES_PER_RETENTION
        if len(kept) > 1 and now_ms - kept[-2].cleaned_ms <= interval_ms:
            kept.pop()
        kept.append(CleanerPass(end_offset, now_ms))
        after = replace(self.without_tombstones(gone_end), first_dirty_offset=end_offset, under_way=None)
        return replace(after, passes=tuple(kept[-PASSES_MAX:]))

    def within_pass(self, end_offset: int, cleaned_end: int) -> CleanerCheckpoint:
        """The position when a pass over all below `end_offset` has cleaned what lies below `cleaned_end`."""
        return replace(self, under_way=PassUnderWay(end_offset, cleaned_end))

    def without_tombstones(self, end_offset: int) -> CleanerCheckpoint:
        """The position when the removal of tombstones below `end_offset` begins."""
        return replace(self, gone_tombstones_end=max(self.gone_tombstones_end, end_offset))

    def without_aborted(self, end_offset: int) -> CleanerCheckpoint:
        """The position when all aborted records below `end_offset` are gone, here or in the log that was copied."""
        return replace(self, gone_aborted_end=max(self.gone_aborted_end, end_offset))

    def truncated(self, end_offset: int) -> CleanerCheckpoint:
        """The position of the log cut to end at `end_offset`, so that later appends are dirty and their tombstones
        young (Kafka: `LogCleanerManager.maybeTruncateCheckpoint`)."""
        whole = [each for each in self.passes if each.end_offset < end_offset]
        cut = [CleanerPass(end_offset, each.cleaned_ms) for each in self.passes[len(whole) :][:1]]
        ends = self.first_dirty_offset, self.gone_tombstones_end, self.gone_aborted_end
        first_dirty, gone_tombstones, gone_aborted = (min(each, end_offset) for each in ends)
        under_way = self.under_way if self.under_way is not None and self.under_way.end_offset <= end_offset else None
        return CleanerCheckpoint(first_dirty, (*whole, *cut), gone_tombstones, gone_aborted, under_way)
