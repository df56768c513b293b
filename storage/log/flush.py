"""When a log is synced, by `flush.messages` and `flush.ms`, and what its writer owes a sync. Pure."""

from __future__ import annotations

from stratalog.storage.clock import Clock
from stratalog.storage.topic_config import LONG_MAX, LogConfig


class FlushState:
    """What one instance of a log has committed and folded since its last sync (Kafka's `LocalLog.unflushedMessages`).

    A sync covers the own commits, which the table knows. Where a topic is flushed at all, it must cover those of other
    instances that it builds on, too: their writer may have died between its commit and its sync, and a log is only as
    durable as its oldest commit.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._records = 0
        self._synced_ms = 0
        self._others_from: int | None = None

    def is_due(self, config: LogConfig, record_count: int) -> bool:
        """Whether a commit of so many records is synced. With flush.messages=3: the third record's, the sixth's …"""
        is_full = self._records + record_count >= config.flush_messages
        return is_full or self._clock.monotonic_ms() - self._synced_ms >= config.flush_ms

    def wait_ms(self, config: LogConfig) -> int | None:
        """How long until `flush.ms` asks for a sync although nothing is appended; None: nothing waits for one."""
        if not self._records or config.flush_ms == LONG_MAX:
            return None
        return max(0, self._synced_ms + config.flush_ms - self._clock.monotonic_ms())

    @property
    def record_count(self) -> int:
        """The records committed since the last sync."""
        return self._records

    def first_owed(self, config: LogConfig) -> int | None:
        """The first version of other instances that a sync must cover; None: none, or the topic is never flushed."""
        is_flushed = config.flush_messages < LONG_MAX or config.flush_ms < LONG_MAX
        return self._others_from if is_flushed else None

    def others_committed(self, first_version: int) -> None:
        """Versions from this one on were folded, and who made them may not have synced them."""
        if self._others_from is None:
            self._others_from = first_version

    def committed(self, record_count: int, *, is_synced: bool) -> None:
        """The own commit stands."""
        self._records += record_count
        if is_synced:
            self.synced(self._records)

    def synced(self, record_count: int, others_from: int | None = None) -> None:
        """So many of the counted records are durable; and so is everything below version `others_from` (None: all)."""
        self._records -= record_count
        self._synced_ms = self._clock.monotonic_ms()
        self._others_from = others_from
