"""The progress that one broker's fetch sessions publish to a leader, read from that broker's root.

I/O: lists and reads objects of one root; where they can be watched, only after a write. With `Ports.threads` a thread
of its own does it, so that a root that answers nothing blocks nobody else. Only objects for this leader: copies of
another leader's partitions do not wake it. Sessions overlap, so they are listed again now and then and whenever an
active session has ended.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from stratalog.replication import cadence
from stratalog.replication.progress.progress import ENDED, ReplicaProgress, follower_progress_prefix
from stratalog.replication.progress.progress_object import ProgressReader
from stratalog.replication.stores import Ports
from stratalog.storage.errors import StratalogError
from stratalog.storage.log_lines import line_logger
from stratalog.storage.objects.together import in_groups
from stratalog.storage.objects.wakeup import Wakeup, WatchedPlace

_LOG = line_logger("stratalog.broker")


@dataclass(frozen=True, slots=True)
class FollowerRoot:
    """Whose progress is read, by whom.

    leader_id     the reading broker
    broker_id     the follower, under its registration `broker_epoch`, with the root `root`
    poll_ms       the pause between two polls of a root that cannot be watched, while the leader waits or not
    """

    leader_id: int
    broker_id: int
    broker_epoch: int
    root: str
    poll_ms: Callable[[], int] = lambda: cadence.SESSIONS_LISTED.shortest_ms


@dataclass(frozen=True, slots=True)
class _Session:
    """One fetch session's object, and whether it was written since the last read."""

    reader: ProgressReader
    watch: WatchedPlace

    def poll(self) -> list[ReplicaProgress] | StratalogError:
        """What moved, if it was written; the error if it could not be read. In any thread, while its reader waits."""
        try:
            return self.watch.read(self.reader.poll) or []
        except StratalogError as reason:
            return reason


@dataclass(slots=True)
class _Sessions:
    """The sessions that were found. Progress of an older registration is not listed."""

    found: dict[str, _Session] = field(default_factory=dict)
    ended: set[str] = field(default_factory=set)
    directory: WatchedPlace | None = None
    listed_at_ms: int | None = None


class FollowerReader:
    """Reads one follower's progress under one registration. `take` returns what moved.

    Only `take` and `close` may be called while a thread runs it.
    """

    def __init__(self, reading: FollowerRoot, ports: Ports, wakeup: Wakeup, is_read: Callable[[], None]) -> None:
        """`wakeup` wakes who reads: the thread's own, or the leader's. `is_read` is called when something moved."""
        self.reading = reading
        self._stores = ports.stores
        self._together = ports.together
        self._clock = ports.clock
        self._wakeup = wakeup
        self._is_read = is_read
        self._sessions = _Sessions()
        self._moved: deque[tuple[str, ReplicaProgress | None]] = deque()
        self._back_off = cadence.FOLLOWER_ROOT_RETRY
        self._changed_ms = ports.clock.monotonic_ms()
        """When this follower last progressed."""
        self._is_over = self._is_resting = False

    def run(self) -> None:
        """Read until `close`: the body of a thread."""
        try:
            while not self._is_over:
                now_ms = self._clock.monotonic_ms()
                if self.poll(now_ms):
                    self._is_read()
                self._is_resting = True  # before the pause is computed: what is expected meanwhile ends it
                pause_ms = self._pause_ms(now_ms)
                self._is_resting = pause_ms > cadence.FOLLOWERS_PROGRESS_RESTING.ms
                self._wakeup.wait_ms(pause_ms)
        finally:
            self._wakeup.close()

    def take(self) -> list[tuple[str, ReplicaProgress | None]]:
        """What moved since the last call, as `(session's path, progress)`; None: the session's object is gone."""
        return [self._moved.popleft() for _ in range(len(self._moved))]

    def expect_progress(self) -> None:
        """This follower is about to progress: where its root cannot be watched it is read now."""
        if self._is_resting and not self._wakeup.is_active:
            self._wakeup.wake()

    def close(self) -> None:
        """End the thread, or stop watching. A call that is under way is not waited for."""
        self._is_over = True
        self._wakeup.wake()

    def unwatch(self) -> None:
        """Without a thread: the leader's `wakeup` watches nothing here any more."""
        places = [session.watch for session in self._sessions.found.values()]
        for place in places if self._sessions.directory is None else [*places, self._sessions.directory]:
            self._wakeup.unwatch(place)

    def _pause_ms(self, now_ms: int) -> int:
        if not self._back_off.is_due(now_ms):
            return max(1, self._back_off.due_ms - now_ms)
        return cadence.FOLLOWERS_PROGRESS.watched_ms if self._wakeup.is_active else self.reading.poll_ms()

    def poll(self, now_ms: int) -> bool:
        """Read what was written; True when something moved. A root out of reach is tried again later, ever less often.

        What was read before a failure counts, and what could not be read is read later.
        """
        if not self._back_off.is_due(now_ms):
            return False
        count_before, begun_ms = len(self._moved), self._clock.monotonic_ms()
        try:
            for found in self._read(now_ms):
                self._moved.append(found)
            self._back_off = self._back_off.answered()
        except StratalogError as reason:
            self._back_off = self._back_off.failed(now_ms + self._clock.monotonic_ms() - begun_ms)
            if self._sessions.directory is not None:
                self._sessions.directory.mark_written()
            who, whose = self.reading.leader_id, self.reading.broker_id
            _LOG.debug("broker %d cannot read the progress of broker %d: %s", who, whose, reason)
        if len(self._moved) > count_before:
            self._changed_ms = now_ms
            return True
        return False

    def _read(self, now_ms: int) -> Iterator[tuple[str, ReplicaProgress | None]]:
        """Yields each progress as it is read, as `take` returns it, so that a later failure loses none."""
        sessions, has_newly_ended = self._sessions, False
        working = [(path, session) for path, session in sessions.found.items() if path not in sessions.ended]
        for some in in_groups(working, self._together.distance.calls_max):
            failure: StratalogError | None = None
            for (path, session), found in zip(some, self._together.run([each.poll for _, each in some]), strict=True):
                if isinstance(found, StratalogError):
                    failure = failure or found
                    continue
                for progress in found:
                    yield path, progress
                if session.reader.state == ENDED:
                    sessions.ended.add(path)
                    has_newly_ended = True
            if failure is not None:
                raise failure
        if has_newly_ended or self._is_listing_due(now_ms):
            yield from self._list_sessions()
            sessions.listed_at_ms = now_ms

    def _is_listing_due(self, now_ms: int) -> bool:
        sessions = self._sessions
        if sessions.directory is None or sessions.listed_at_ms is None:
            return True
        if sessions.directory.is_active:
            return (
                sessions.directory.was_written() or now_ms - sessions.listed_at_ms >= cadence.SESSIONS_LISTED.watched_ms
            )
        has_active = len(sessions.found) > len(sessions.ended)
        has_only_ended = bool(sessions.found) and not has_active
        interval_ms = listing_interval_ms(self.reading.poll_ms(), now_ms - self._changed_ms)
        return has_only_ended or now_ms - sessions.listed_at_ms >= interval_ms

    def _list_sessions(self) -> Iterator[tuple[str, ReplicaProgress | None]]:
        sessions, store = self._sessions, self._stores.objects(self.reading.root)
        prefix = follower_progress_prefix(self.reading.broker_epoch, self.reading.leader_id)
        if sessions.directory is None:
            sessions.directory = self._wakeup.watch(store, prefix, only_new=True)
        listed = {m.path for m in store.list(prefix) if m.path.startswith(f"{prefix}fetch-")}
        for path in set(sessions.found) - listed:
            self._wakeup.unwatch(sessions.found.pop(path).watch)
            sessions.ended.discard(path)
            yield path, None
        for path in sorted(listed - set(sessions.found)):
            session = _Session(ProgressReader(store, path), self._wakeup.watch(store, path))
            try:
                for progress in session.reader.poll():
                    yield path, progress
            except StratalogError:
                self._wakeup.unwatch(session.watch)  # listed again at the next poll
                raise
            sessions.found[path] = session
            if session.reader.state == ENDED:
                sessions.ended.add(path)


def listing_interval_ms(poll_ms: int, idle_ms: int) -> int:
    """How often new sessions are listed where they are not reported. Pure.

    poll_ms  the pause between two reads of what was found: the shortest while the leader waits for followers
    idle_ms  the time since the follower progressed, or began to be read

    >>> [listing_interval_ms(poll_ms, 3_600_000) for poll_ms in (1, 250, 2_000)]
    [200, 1000, 5000]
    >>> [listing_interval_ms(2_000, idle_ms) for idle_ms in (0, 10_000, 60_000)]
    [200, 1000, 5000]
    """
    listed = cadence.SESSIONS_LISTED
    by_reads_ms = max(listed.shortest_ms, cadence.SESSIONS_LISTED_TIMES * poll_ms)
    return min(listed.pause_ms(idle_ms, is_watched=False), by_reads_ms)
