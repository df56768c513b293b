"""When a log is synced, by `flush.messages` and `flush.ms`, and which commits a sync must cover. Pure."""

from __future__ import annotations

from stratalog.storage.clock import Clock
from stratalog.storage.topic_config import LONG_MAX, LogConfig


class FlushState:
    """The commits of one instance of a log since its last sync (Kafka's `LocalLog.unflushedMessages`).

    A sync covers the own commits, which the table knows. It must also cover the commits of other instances below them:
    their writer may have died between its commit and its sync, or never syncs, and a log is only as durable as its
    oldest commit. So an epoch start, which is always synced, survives on a topic that is never flushed.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.record_count = 0
        """Records committed since the last sync."""
        self._synced_ms = 0
        self.others_from: int | None = None
        """The first version of other instances that the next sync must cover; None: none."""

    def is_due(self, config: LogConfig, record_count: int) -> bool:
        """Whether a commit of so many records is synced; `flush.messages=3`: that of record 3, 6, 9 …"""
        is_full = self.record_count + record_count >= config.flush_messages
        return is_full or self._clock.monotonic_ms() - self._synced_ms >= config.flush_ms

    def wait_ms(self, config: LogConfig) -> int | None:
        """Time until `flush.ms` requires a sync without an append; None: nothing waits for one."""
        if not self.record_count or config.flush_ms == LONG_MAX:
            return None
        return max(0, self._synced_ms + config.flush_ms - self._clock.monotonic_ms())

    def others_committed(self, first_version: int) -> None:
        """Versions from this one on were folded; their writer may not have synced them."""
        if self.others_from is None:
            self.others_from = first_version

    def others_synced(self, version: int, newest_version: int) -> None:
        """Versions up to this one are durable; above it, up to the newest one, others have committed, too."""
        self.others_from = version + 1 if version < newest_version else None

    def committed(self, record_count: int, *, is_synced: bool) -> None:
        """An own commit was made."""
        self.record_count += record_count
        if is_synced:
            self.synced(self.record_count)

    def synced(self, record_count: int, others_from: int | None = None) -> None:
        """Count this many records as durable, and all versions below `others_from` (None: all)."""
        self.record_count -= record_count
        self._synced_ms = self._clock.monotonic_ms()
        self.others_from = others_from
