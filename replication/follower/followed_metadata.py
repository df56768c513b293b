"""The metadata log as one fetcher follows it: when it is read. I/O: through its store.

It outlives the session, as the fold does: the next one in the same process resumes it.
"""

from __future__ import annotations

from stratalog.replication import cadence
from stratalog.replication.config import BrokerConfig
from stratalog.replication.metadata.commit_polling import poll_for_commits
from stratalog.replication.metadata.image import ClusterImage
from stratalog.replication.metadata.log import METADATA_COMMITS, metadata_of_part
from stratalog.replication.metadata.records import MetadataRecord
from stratalog.replication.stores import Ports
from stratalog.replication.threads.polling_thread import PollingThread
from stratalog.storage.cadence import IdlePause
from stratalog.storage.objects.wakeup import Wakeup, WatchedPlace


class FollowedMetadata:
    """`refresh` reads what is new, when it is due. `resume` begins a session's use of it, `end` ends that."""

    _watch: WatchedPlace
    _polling: PollingThread | None
    """Looks for commits where the log is far away and sessions have threads."""

    def __init__(self, metadata_root: str, config: BrokerConfig, ports: Ports) -> None:
        self.log = metadata_of_part(ports, metadata_root)
        self.is_listening = False
        """Whether the session copies: one on standby reads metadata as rarely as where they are watched."""
        bounds_ms = config.stratalog_metadata_poll_ms, config.stratalog_metadata_poll_max_ms
        self.idle = IdlePause(cadence.METADATA.within(*bounds_ms), ports.clock.monotonic_ms())
        """The pauses between reads where writes are not reported."""
        self._polled_read_ms = config.broker_session_timeout_ms // cadence.METADATA_READ_PART
        self._ports = ports
        self._objects = ports.stores.objects(metadata_root)
        self._due_ms = 0
        """When it is read if nothing reports a write."""

    @property
    def image(self) -> ClusterImage:
        """The fold as of the last refresh."""
        return self.log.image

    def resume(self, wakeup: Wakeup, name: str) -> None:
        """A session begins, which sleeps on `wakeup`. `name`: of a thread that polls for commits."""
        self._watch = wakeup.watch(self._objects, METADATA_COMMITS)
        self._due_ms = 0
        self.is_listening = False
        self._polling = poll_for_commits(self.log, self._objects, self._ports, self._poll_pause_ms, wakeup.wake)
        if self._polling is not None:
            self._polling.start(name)

    def end(self) -> None:
        """The session is over."""
        if self._polling is not None:
            self._polling.close()

    def _poll_pause_ms(self) -> int:
        """The pause between two polls for commits."""
        now_ms = self._ports.clock.monotonic_ms()
        return self.idle.pause_ms(now_ms) if self.is_listening else self.idle.poll.watched_ms

    def refresh(self, now_ms: int) -> list[MetadataRecord] | None:
        """What was committed since the last read; None when none was due."""
        place, polling = self._watch, self._polling
        has_changed = polling is not None and polling.has_changed

        def read() -> list[MetadataRecord]:
            is_rare = place.is_active or not self.is_listening
            pause_ms = self.idle.pause_ms(now_ms, is_watched=is_rare)
            self._due_ms = now_ms + (pause_ms if polling is None else self._polled_read_ms)
            return self.log.refresh()

        records = place.read(read, is_due=has_changed or now_ms >= self._due_ms)
        if polling is not None and has_changed:
            polling.read()
        if records:
            self.idle.changed(now_ms)
        return records

    def due_in_ms(self, now_ms: int) -> int:
        """How long until it is to be read, if nothing reports that it changed."""
        return max(0, self._due_ms - now_ms)

    def read_next(self) -> None:
        """The next `refresh` reads."""
        self._due_ms = 0

    def listen(self) -> None:
        """The session copies from now on."""
        self.is_listening = True
        if not self._watch.is_active:
            self.read_next()

    def read_soon(self) -> None:
        """Something that depends on metadata failed: where writes are not reported they are read often for a while."""
        if not self._watch.is_active:
            now_ms = self._ports.clock.monotonic_ms()
            self.idle.changed(now_ms)
            self._due_ms = min(self._due_ms, now_ms + self.idle.poll.shortest_ms)
