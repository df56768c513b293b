"""When a broker's loop reads again: its polls of metadata, inbox and followers, and how long it waits after a turn.

I/O: through its wake-up, and a thread that polls for commits where the metadata log is far away. The pauses are rows of
`replication/cadence.py`; what ends them early is decided here.
"""

from __future__ import annotations

from collections.abc import Callable

from stratalog.replication import cadence
from stratalog.replication.config import BrokerConfig
from stratalog.replication.leader.purgatory import ProducePurgatory
from stratalog.replication.metadata.commit_polling import poll_for_commits
from stratalog.replication.metadata.log import METADATA_COMMITS, MetadataLog
from stratalog.replication.requests.hand_over import INBOX_PREFIX
from stratalog.replication.stores import Ports
from stratalog.storage.cadence import DueTimes, IdlePause
from stratalog.storage.clock import Clock
from stratalog.storage.errors import StoreError
from stratalog.storage.objects.port import ObjectStore
from stratalog.storage.objects.wakeup import Wakeup, WatchedPlace


class MetadataPolls:
    """When the metadata log is read."""

    def __init__(
        self, log: MetadataLog, store: ObjectStore, config: BrokerConfig, ports: Ports, wakeup: Wakeup, now_ms: int
    ) -> None:
        self.watch = wakeup.watch(store, METADATA_COMMITS, only_new=True)
        self._longest_ms = config.stratalog_metadata_poll_max_ms
        times = cadence.METADATA_ANNOUNCED_TIMES if store.distance.is_far else 1
        bounds_ms = config.stratalog_metadata_poll_ms, times * self._longest_ms
        self.idle = IdlePause(cadence.METADATA.within(*bounds_ms), now_ms)
        """News are new metadata, and records that move here where nobody announces metadata."""
        self.is_announced: Callable[[], bool] = lambda: False
        """Whether all live brokers announce new metadata, so that polls may be rare. Called from any thread."""
        self._log = log
        self._clock = ports.clock
        self._session_ms = config.broker_session_timeout_ms
        self._turn_ms: int | None = None
        self._read_at_ms = 0
        self._is_expected = False
        """Whether new metadata are to be expected. Set by any thread, and cleared by the loop alone."""
        self._wakeup = wakeup
        self._polling = poll_for_commits(log, store, ports, self._pause_ms, wakeup.wake)
        """Looks for commits; None: the loop does. Invariant: the log is far away then, and `watch` is not active."""

    def start(self, name: str) -> None:
        """Begin to poll for commits, in a thread of this name; once."""
        if self._polling is not None:
            self._polling.start(name)

    def close(self) -> None:
        """Look no more."""
        if self._polling is not None:
            self._polling.close()

    def expect(self) -> None:
        """Metadata are about to change, or have changed. Called from any thread."""
        if not self.watch.is_active:
            self._is_expected = True
            self._wakeup.wake()

    def records_moved(self, now_ms: int) -> None:
        """ISRs may change: commits are polled for often, unless who makes them announces them."""
        if not self.is_announced():
            self.idle.changed(now_ms)

    def interval_ms(self, now_ms: int) -> int:
        """The interval of reads, if nothing ends it."""
        if self._polling is not None:
            return self._session_ms // cadence.METADATA_READ_PART
        pause_ms = self.idle.pause_ms(now_ms, is_watched=self.watch.is_active)
        return pause_ms if self.watch.is_active else min(pause_ms, self._longest_ms)

    def ends_interval(self, now_ms: int) -> bool:
        """Whether new metadata are expected where nothing reports them: the log is read now, or polled now."""
        has_unseen, polling = self._log.has_unseen, self._polling
        if self.watch.is_active or not (self._is_expected or has_unseen):
            return False
        self._is_expected = False
        self.idle.changed(now_ms)
        if polling is None or has_unseen:
            return True
        polling.poll_now()
        return False

    @property
    def has_changed(self) -> bool:
        """Whether the thread has found a commit that was not read yet."""
        return self._polling is not None and self._polling.has_changed

    def was_read(self) -> None:
        """The loop has read what the thread found."""
        if self._polling is not None:
            self._polling.read()

    def has_slept(self, now_ms: int) -> bool:
        """Whether so much time has passed since the last call that others may lead by now. Called in each turn."""
        before_ms, self._turn_ms = self._turn_ms, now_ms
        return before_ms is not None and now_ms - before_ms > self._session_ms // 3

    @property
    def answered_ms(self) -> int:
        """When the metadata root last answered a read of the loop, or a poll for commits; 0: none yet."""
        polled_ms = None if self._polling is None else self._polling.answered_ms
        return max(self._read_at_ms, polled_ms or 0)

    def was_answered(self, now_ms: int) -> None:
        """The loop has read the metadata log."""
        self._read_at_ms = now_ms

    def _pause_ms(self) -> int:
        pause_ms = self.idle.pause_ms(self._clock.monotonic_ms())
        return pause_ms if self.is_announced() else min(pause_ms, self._longest_ms)


class Polls:
    """The due times of one loop.

    wakeup  what the loop sleeps on
    """

    def __init__(
        self,
        config: BrokerConfig,
        ports: Ports,
        metadata: MetadataPolls,
        inbox: ObjectStore,
        purgatory: ProducePurgatory,
        wakeup: Wakeup,
    ) -> None:
        now_ms = ports.clock.monotonic_ms()
        self.wakeup = wakeup
        self.metadata = metadata
        self._due = DueTimes()
        self._inbox_watch = wakeup.watch(inbox, INBOX_PREFIX, only_new=True)
        longest_ms = config.stratalog_inbox_poll_max_ms * (cadence.INBOX_BELL_TIMES if inbox.distance.is_far else 1)
        self._inbox_idle = IdlePause(cadence.INBOX.within(config.stratalog_inbox_poll_ms, longest_ms), now_ms)
        """News are requests in it."""
        self._shortest_ms = config.stratalog_progress_poll_min_ms
        longest_ms = cadence.FOLLOWERS_PROGRESS_TIMES * config.stratalog_progress_poll_max_ms
        self._progress_idle = IdlePause(cadence.FOLLOWERS_PROGRESS.within(self._shortest_ms, longest_ms), now_ms)
        """News are appends here, starts of epochs, and progress of followers."""
        self.purgatory = purgatory
        """The requests that wait for followers: while there are some, progress is read as often as may be."""
        self._clock: Clock = ports.clock
        self._reads_in_threads = ports.threads is not None
        """Whether threads read the progress of followers; else the loop does."""

    # -- what is due -----------------------------------------------------------------------------------

    def is_due(self, name: str, now_ms: int, interval_ms: int) -> bool:
        """Whether this periodic work is due; then it is next due an interval later."""
        return self._due.is_due(name, now_ms, interval_ms)

    def read_metadata_at(self, due_ms: int) -> None:
        """Metadata are read by then."""
        self._due.set("metadata", due_ms)

    def poll_metadata(self, now_ms: int, read: Callable[[], bool | None]) -> None:
        """Read metadata, if they are due. Raises as `read`."""
        metadata = self.metadata
        is_expected, has_changed = metadata.ends_interval(now_ms), metadata.has_changed
        if metadata.has_slept(now_ms) or is_expected or has_changed:
            self._due.set("metadata", now_ms)

        def read_and_note() -> bool | None:
            found = read()
            metadata.was_answered(now_ms)
            return found

        self._poll("metadata", metadata.watch, metadata.interval_ms(now_ms), now_ms, read_and_note)
        if has_changed:
            metadata.was_read()

    def poll_inbox(self, now_ms: int, read: Callable[[bool], bool | None], *, has_requests: bool) -> bool:
        """Read the inbox, if it is due. `read` gets whether it is to be listed even if its bell has not rung: after a
        long time without requests it is not. `has_requests`: whether the last read found some. Raises as `read`."""
        if has_requests:
            self._inbox_idle.changed(now_ms)
        lists = self._inbox_idle.idle_ms(now_ms) < cadence.INBOX_LISTED.ms
        poll_ms = self._inbox_idle.pause_ms(now_ms, is_watched=self._inbox_watch.is_active)
        return self._poll("inbox", self._inbox_watch, poll_ms, now_ms, lambda: read(lists))

    def _poll(self, name: str, place: WatchedPlace, poll_ms: int, now_ms: int, read: Callable[[], bool | None]) -> bool:
        """Read a place when it was written, and at intervals."""
        is_due = self._due.is_due(name, now_ms, poll_ms)
        try:
            return bool(place.read(read, is_due=is_due, retries=False))
        except StoreError:
            self._due.set(name, now_ms + cadence.LOOP_RETRY.ms)
            raise

    # -- what ends a pause -----------------------------------------------------------------------------

    def metadata_changed(self, now_ms: int) -> None:
        """New metadata were read."""
        self.metadata.idle.changed(now_ms)

    def records_moved(self, now_ms: int) -> None:
        """Records were appended, or an epoch began: followers are about to progress, and ISRs may change."""
        self.metadata.records_moved(now_ms)
        self._progress_idle.changed(now_ms)

    def followers_progressed(self, now_ms: int) -> None:
        """A follower of a partition that is led here has published more."""
        self._progress_idle.changed(now_ms)

    # -- waits -----------------------------------------------------------------------------------------

    def progress_poll_ms(self) -> int:
        """Where storage cannot be watched: the pause between two reads of a follower's progress, the shortest while a
        request waits for followers. Called from any thread."""
        if not self.purgatory.is_empty:
            return self._shortest_ms
        return self._progress_idle.pause_ms(self._clock.monotonic_ms())

    def pause_ms(self, *due_ms: int | None) -> int:
        """How long the loop may wait after a turn in which nothing moved and nothing is left: until the next thing that
        time alone brings, those of other parts among them, or that has to be polled."""
        now_ms = self._clock.monotonic_ms()
        first_due_ms = self._due.first_ms(now_ms + cadence.LOOP_WAIT.ms)
        first_due_ms = min([first_due_ms, *(each for each in due_ms if each is not None)])
        pause_ms = max(1, min(first_due_ms, self.purgatory.next_deadline_ms or first_due_ms) - now_ms)
        if self.wakeup.is_active or self._reads_in_threads:
            return pause_ms
        return min(pause_ms, self.progress_poll_ms())  # the loop itself reads followers' progress
