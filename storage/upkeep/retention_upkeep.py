"""The chore that takes expired segments out of one log. I/O: one commit of its log, however many segments go.

Which ones is decided by `storage.upkeep.retention`. The files stay on storage for `file.delete.delay.ms` and are then
deleted with everything else that left the log, so readers that hold an older fold read on.
"""

from __future__ import annotations

from bisect import bisect_left
from zlib import crc32

from stratalog.storage.delta.table import Conflict
from stratalog.storage.log.partition_log import PartitionLog
from stratalog.storage.upkeep.chore import RECHECK_MS, Chore, UpkeepDone, UpkeepLimits, UpkeepView, UpkeepWork
from stratalog.storage.upkeep.retention import expired_segments


class Retention(Chore):
    """Looks once in each `log.retention.check.interval.ms` of the wall clock, at a time of the table's own.

    So it is told by the time alone, whoever takes the upkeep over: a fetch session is shorter than the interval. Who
    begins does not look before the next interval does, as Kafka waits a little after a start.
    """

    def __init__(self, log: PartitionLog, limits: UpkeepLimits) -> None:
        self._interval_ms = limits.retention_check_ms
        self._offset_ms = crc32(log.name.encode()) % self._interval_ms
        self._checked: int | None = None

    def begin(self, view: UpkeepView) -> UpkeepDone | None:
        interval = (view.now_ms + self._offset_ms) // self._interval_ms
        if self._checked is None:
            self._checked = interval
        if interval <= self._checked or view.high_watermark < 0:
            return None
        log, state = view.log, view.log.state
        expired = expired_segments(
            state.segments, state.log_start_offset, state.log_end_offset, view.high_watermark, view.now_ms, log.config
        )
        if expired is None:
            self._checked = interval
            return None
        below = bisect_left(log.files, expired.end_offset, key=lambda entry: entry.start_offset)
        outcome = log.replace_files(
            log.files[:below],
            (),
            leader_epoch=view.leader_epoch,
            operation="RETENTION",
            now_ms=view.now_ms,
            data_change=True,
            log_start=expired.end_offset,
        )
        if isinstance(outcome, Conflict):
            log.refresh()
            return view.done(UpkeepWork.LOST_RACE, 0)
        self._checked = interval
        return view.done(UpkeepWork.RETENTION, expired.count)

    def rest_ms(self, view: UpkeepView) -> int:
        interval, passed_ms = divmod(view.now_ms + self._offset_ms, self._interval_ms)
        is_due = self._checked is not None and interval > self._checked
        return RECHECK_MS if is_due else self._interval_ms - passed_ms
