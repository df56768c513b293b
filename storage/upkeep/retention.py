"""Retention: the chore that removes expired segments in one commit. I/O: through the log and its table."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import groupby
from operator import attrgetter

from stratalog.storage import cadence
from stratalog.storage.delta.table import Conflict
from stratalog.storage.log.partition_log import PartitionLog
from stratalog.storage.log.segments import start_of
from stratalog.storage.upkeep.chore import Chore, Timetable, UpkeepDone, UpkeepLimits, UpkeepView, UpkeepWork, Work
from stratalog.storage.upkeep.retention_rules import ExpiredSegments, expired_segments, has_times


class Retention(Chore):
    """Removes expired segments, once in each `log.retention.check.interval.ms`."""

    def __init__(self, log: PartitionLog, limits: UpkeepLimits) -> None:
        self._timetable = Timetable(log.name, limits.retention_check_ms)

    def begin(self, view: UpkeepView) -> Work[list[tuple[str, int]]] | UpkeepDone | None:
        if not self._timetable.is_due(view.now_ms) or view.high_watermark < 0:
            return None
        if self._needs_write_times(view):
            return Work(partial(view.log.table.reopened().list_objects, "segment="), partial(self._expire, view))
        return self._expire(view, ())

    def _needs_write_times(self, view: UpkeepView) -> bool:
        """Whether the first segment that stays, as far as is known, has no timestamps: it expires by its last write."""
        segments, expired = view.log.state.segments, _expired(view, {})
        first = 0 if expired is None else expired.count
        return view.log.config.is_deleted_by_time and first < len(segments) and not has_times(segments[first])

    def _expire(self, view: UpkeepView, listed: Sequence[tuple[str, int]]) -> UpkeepDone | None:
        log = view.log
        expired = _expired(view, _written_ms(log, dict(listed)) if listed else {})
        if expired is None:
            self._timetable.checked(view.now_ms)
            return None
        gone, start = log.files[: bisect_left(log.files, expired.end_offset, key=start_of)], expired.end_offset
        outcome = log.replace_files(
            gone, (), leader_epoch=view.leader_epoch, operation="RETENTION", now_ms=view.now_ms, log_start=start
        )
        if isinstance(outcome, Conflict):
            log.refresh()
            return view.done(UpkeepWork.LOST_RACE, 0)
        self._timetable.checked(view.now_ms)
        return view.done(UpkeepWork.RETENTION, expired.count)

    def rest_ms(self, view: UpkeepView) -> int:
        return self._timetable.rest_ms(view.now_ms) or cadence.RECHECK.ms


def _expired(view: UpkeepView, written_ms: Mapping[int, int]) -> ExpiredSegments | None:
    log, state = view.log, view.log.state
    bounds = state.log_start_offset, state.log_end_offset, view.high_watermark
    return expired_segments(state.segments, *bounds, view.now_ms, log.config, written_ms)


def _written_ms(log: PartitionLog, modified_ms: Mapping[str, int]) -> dict[int, int]:
    """When the newest live file of each segment was written, by the store's clock. A segment with a live file that was
    not listed, as one that was written since, is not there."""
    unlisted = {entry.segment for entry in log.files if entry.path not in modified_ms}
    by_segment = groupby(log.files, key=attrgetter("segment"))
    return {each: max(modified_ms[e.path] for e in files) for each, files in by_segment if each not in unlisted}
