"""The chore that syncs a log whose `flush.ms` has passed without an append. I/O: through its log's table.

Kafka has it in `LogManager.flushDirtyLogs`. Its delay is that of the upkeep rounds (`stratalog.upkeep.interval.ms`).
"""

from __future__ import annotations

from functools import partial

from stratalog.storage.delta.table import Commit
from stratalog.storage.log.partition_log import PartitionLog
from stratalog.storage.upkeep.chore import Chore, UpkeepDone, UpkeepView, UpkeepWork, Work


class Flush(Chore):
    """Makes durable what was appended and not synced for `flush.ms`."""

    def __init__(self, log: PartitionLog) -> None:
        self._log = log

    def begin(self, view: UpkeepView) -> Work[None] | None:
        if self.rest_ms(view) != 0:
            return None
        log, version, record_count = self._log, self._log.version, self._log.flushing.record_count
        flush = log.table.flusher(version, log.flushing.first_owed(log.config))
        return Work(flush, partial(self._flushed, view, version, record_count))

    def _flushed(self, view: UpkeepView, version: int, record_count: int, _: None) -> UpkeepDone:
        """What was committed meanwhile is not synced by this."""
        others_from = None if self._log.version == version else version + 1
        self._log.flushing.synced(record_count, others_from)
        return view.done(UpkeepWork.FLUSH, record_count)

    def rest_ms(self, _view: UpkeepView) -> int | None:
        return self._log.flushing.wait_ms(self._log.config)

    def needs_step(self, _commit: Commit) -> bool:
        return self._log.flushing.wait_ms(self._log.config) is not None
