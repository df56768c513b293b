"""A fetch session: one broker follows leaders for a while. It is what a micro-batch runs.

I/O: through its stores. Spark (or a thread, or the simulator) schedules it, and it does not know which. The session
watches one progress object per leader broker, copies what moved, commits to the broker's own tables and publishes one
progress object of its own: the commit, then the progress, is the acknowledgement.

What is fetched from one leader is the work of one `LeaderFetcher`. With `Ports.threads` each has a thread: the
session's own thread waits for the own root and the metadata root alone, and a leader's root that answers nothing stops
only its own fetcher.

A follower's partitions are divided among several fetchers (`num.replica.fetchers`); each watches all leaders. Two
sessions of a fetcher overlap: the younger is on standby and folds what it will need. It becomes active when the elder
ends or falls silent, which hides the gap between two micro-batches. Two active sessions are safe (promise 7), only
wasteful.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from stratalog.replication import cadence
from stratalog.replication.cadence import Heartbeats
from stratalog.replication.follower.leader_fetcher import LeaderFetcher
from stratalog.replication.follower.metrics import CopyClock, fetch_metrics_prefix
from stratalog.replication.follower.partitions import FollowedPartitions
from stratalog.replication.follower.sessions.heartbeats import (
    ACTIVE,
    ENDING,
    RESTING,
    STANDBY,
    heartbeats,
    published_state,
    silence_ms,
)
from stratalog.replication.follower.sessions.turn_stores import UnlockedRegisters
from stratalog.replication.progress.of_session import (
    SessionProgress,
    SessionState,
    remove_session_progress,
    session_states_prefix,
)
from stratalog.replication.progress.progress import ENDED, fetch_progress_path, progress_prefix, writer_state
from stratalog.replication.replica.upkeep_rounds import most_live_files
from stratalog.storage.cadence import DueTimes
from stratalog.storage.errors import StratalogError
from stratalog.storage.log_lines import line_logger
from stratalog.storage.objects.port import ObjectMeta
from stratalog.storage.objects.wakeup import Wakeup

_LOG = line_logger("stratalog.fetcher")


def stop_path(broker_epoch: int) -> str:
    """An object whose presence ends all fetch sessions of that broker epoch."""
    return f"{progress_prefix(broker_epoch)}stop"


class FollowerSession:
    """One session. `step` is one turn; `run` turns until the deadline or until `is_over`."""

    def __init__(self, followed: FollowedPartitions, name: str) -> None:
        """`followed`: new, or as an earlier session of the same fetcher left it in this process."""
        job, clock = followed.job, followed.ports.clock
        self.followed = followed
        self.name = f"{followed.fetcher_id}-{name}"
        self.state = STANDBY
        self._job = job
        self._clock = clock
        self._objects = followed.ports.stores.objects(job.root)
        self._turn = followed.ports.turn
        self._distance = followed.ports.together.distance
        registers = UnlockedRegisters(self._objects, self._turn) if self._distance.is_far else self._objects
        self._progress = SessionProgress(registers, job.broker_epoch, self.name, STANDBY)
        self._published_state = SessionState(self._objects, job.broker_epoch, self.name, clock)
        self._wakeup = Wakeup(clock)
        self._states = self._wakeup.watch(self._objects, session_states_prefix(job.broker_epoch))
        self._stop = self._wakeup.watch(self._objects, stop_path(job.broker_epoch))
        self._threads = followed.ports.threads
        self._started: list[LeaderFetcher] = []
        """The fetchers that have a thread."""
        self._defect: Exception | None = None
        self._is_published = False
        self._is_stopped = False
        self._elder_state = ""
        self._may_rest = True
        self._due = DueTimes()
        self._metadata_seen_ms = clock.monotonic_ms()
        self._others: dict[str, tuple[bytes | None, int]] = {}
        """Progress path of each other session -> content when it last changed, and when."""
        self._found: dict[str, tuple[ObjectMeta, int]] = {}
        """Progress path of each other session -> what the store showed of it, and when that last changed."""
        self._found_ms = clock.monotonic_ms()
        self._elder = ""
        self._first_work_ms = self._last_work_ms = 0
        self._copy_clock = CopyClock(followed.fetcher_id, clock.monotonic_ms())
        followed.resume(self._progress, self._wakeup)

    # -- life --------------------------------------------------------------------------------------------

    @property
    def is_over(self) -> bool:
        """The broker stopped, or another registration took its place: no session of this one is needed any more."""
        return self._is_stopped or self.followed.is_over

    def run(self, duration_ms: int, is_wanted: Callable[[], bool] = lambda: True) -> None:
        """Follow until the deadline, until the registration is over, the broker stops or it is no longer wanted."""
        try:
            try:
                self._run(duration_ms, is_wanted)
            except Exception:
                self._end_fetchers()
                raise
            self._end_fetchers()
            with self._turn:
                self.end()
        finally:
            self._wakeup.close()

    def _run(self, duration_ms: int, is_wanted: Callable[[], bool]) -> None:
        deadline_ms = self._clock.monotonic_ms() + duration_ms
        ending_ms = min(cadence.SESSION_ENDING.ms, duration_ms // 5)
        self._may_rest = duration_ms >= cadence.RESTING_LENGTH.ms
        idle_since_ms = self._clock.monotonic_ms()
        while (now_ms := self._clock.monotonic_ms()) < deadline_ms and not self.is_over and is_wanted():
            try:
                with self._turn:
                    if self.state == ACTIVE and deadline_ms - now_ms < ending_ms:
                        self.announce_end()
                    moved = self.step()
            except StratalogError as reason:
                _LOG.warning("fetch session %s of broker %d, trying again: %s", self.name, self._job.broker_id, reason)
                self._clock.sleep_ms(self._job.config.replica_fetch_backoff_ms)
                if self._is_blind():
                    break
                continue
            rest_ms = 0 if self._threads else self._rest_ms(now_ms)
            if rest_ms:
                self._clock.sleep_ms(rest_ms)
            now_ms = self._clock.monotonic_ms()
            if moved:
                idle_since_ms = now_ms
            is_at_once = moved and not self._wakeup.is_active  # else a write ends the wait
            end_ms = deadline_ms if self._wakeup.is_active else deadline_ms - ending_ms  # waits may be long there
            left_ms = max(0, (end_ms if end_ms > now_ms else deadline_ms) - now_ms)
            self._wait(0 if is_at_once else min(self._pause_ms(now_ms, idle_since_ms), left_ms))

    def _wait(self, timeout_ms: int) -> None:
        if timeout_ms > 0 or self._wakeup.is_active:
            self._wakeup.wait_ms(timeout_ms)

    def _rest_ms(self, begun_ms: int) -> int:
        return min((self.followed.rest_ms(each, begun_ms) for each in self.followed.fetchers.values()), default=0)

    # -- fetchers with threads ---------------------------------------------------------------------------

    def _start_fetchers(self) -> None:
        """A thread for each leader that is followed; those of other leaders end."""
        if self._threads is None:
            return
        for fetcher in list(self.followed.fetchers.values()):
            if fetcher.leader_id not in self.followed.followed_leaders:
                fetcher.close()
                if fetcher not in self._started:
                    fetcher.wakeup.close()
                    self.followed.remove(fetcher)
            if fetcher.is_over and fetcher.has_ended:
                self._started.remove(fetcher)
                self.followed.remove(fetcher)
            elif fetcher not in self._started and not fetcher.is_over:
                self._started.append(fetcher)
                name = f"fetch-{self._job.broker_id}-from-{fetcher.leader_id}"
                self._threads.start(name, partial(self._run_fetcher, fetcher))

    def _run_fetcher(self, fetcher: LeaderFetcher) -> None:
        """The body of a fetcher's thread."""
        try:
            while not fetcher.is_over:
                begun_ms, failure_ms = self._clock.monotonic_ms(), 0
                fetcher.begun_ms = begun_ms
                with self._turn:
                    try:
                        moved = self._fetch(fetcher, begun_ms)
                    except StratalogError as reason:
                        who = self.name, self._job.broker_id, fetcher.leader_id
                        _LOG.warning("fetch session %s of broker %d from leader %d, trying again: %s", *who, reason)
                        moved, failure_ms = False, self._job.config.replica_fetch_backoff_ms
                    now_ms = self._clock.monotonic_ms()
                    rest_ms = self.followed.rest_ms(fetcher, begun_ms)
                    pause_ms = self._fetcher_pause_ms(fetcher, now_ms)
                fetcher.begun_ms = None
                if failure_ms or rest_ms:
                    self._clock.sleep_ms(failure_ms or rest_ms)
                is_at_once = moved and not fetcher.wakeup.is_active
                if not is_at_once and (pause_ms > 0 or fetcher.wakeup.is_active):
                    fetcher.wakeup.wait_ms(pause_ms)
        except Exception as defect:  # noqa: BLE001 - raised by the session's own thread
            self._defect = defect
        finally:
            fetcher.has_ended = True
            fetcher.wakeup.close()
            self._wakeup.wake()

    def _fetcher_pause_ms(self, fetcher: LeaderFetcher, now_ms: int) -> int:
        if self.state == STANDBY:
            return cadence.FOLD_AHEAD_REST.ms if fetcher.has_more_to_fold else cadence.CLOSE_UP.ms
        if fetcher.wakeup.is_active:
            due_ms = self.followed.due_in_ms(fetcher, now_ms)
            return min(cadence.LEADERS_ENDS.watched_ms, due_ms)
        due_ms = cadence.PRESSING.ms if fetcher.upkeep.is_pressing else self.followed.due_in_ms(fetcher, now_ms)
        return min(self._polling_pause_ms(now_ms, fetcher.changed_ms), due_ms)

    def _end_fetchers(self) -> None:
        for fetcher in self._started:
            fetcher.close()
        turn_ms_max = max(1, self._job.config.broker_session_timeout_ms // cadence.FETCHERS_END_PART)
        deadline_ms = self._clock.monotonic_ms() + turn_ms_max
        while (left_ms := deadline_ms - (now_ms := self._clock.monotonic_ms())) > 0:
            if all(each.has_ended or each.is_stuck(now_ms, turn_ms_max) for each in self._started):
                break
            self._wakeup.wait_ms(min(left_ms, cadence.TURN_WAIT.ms))
        with self._turn:
            self.followed.end_work()

    def _is_blind(self) -> bool:
        """Whether the metadata log has been out of reach for a session timeout: another session may reach it."""
        blind_ms = self._clock.monotonic_ms() - self._metadata_seen_ms
        return blind_ms > self._job.config.broker_session_timeout_ms

    def _pause_ms(self, now_ms: int, idle_since_ms: int) -> int:
        """The longest wait. Where writes are not watched, it grows with the time since the last work."""
        fetchers = [] if self._threads else list(self.followed.fetchers.values())
        if self.state == STANDBY and any(fetcher.has_more_to_fold for fetcher in fetchers):
            return cadence.FOLD_AHEAD_REST.ms
        if self._wakeup.is_active:
            if self.state == STANDBY:
                return cadence.CLOSE_UP.ms if self._elder_state == ENDING else cadence.TURN_WAIT.ms
            return min(
                [cadence.LEADERS_ENDS.watched_ms, *(self.followed.due_in_ms(fetcher, now_ms) for fetcher in fetchers)]
            )
        if self._threads is None and self.state != STANDBY:
            return min(self._polling_pause_ms(now_ms, idle_since_ms), cadence.TURN_WAIT.ms)
        awaited = ("beat", "check", "stop") if self.state == STANDBY else ("beat", "stop", "superseded")
        first_due_ms = min(self._due.of(name) for name in awaited) - now_ms
        return max(1, min(first_due_ms, self.followed.metadata_due_in_ms(now_ms), cadence.SESSION_REST.ms))

    def _polling_pause_ms(self, now_ms: int, idle_since_ms: int) -> int:
        config = self._job.config
        shortest, longest = config.stratalog_progress_poll_min_ms, config.stratalog_progress_poll_max_ms
        return cadence.LEADERS_ENDS.within(shortest, longest).pause_ms(now_ms - idle_since_ms, is_watched=False)

    def end(self) -> None:
        """Publish that this session is over, so that the next becomes active at once."""
        self.state = ENDED
        self._progress.end(self._clock.monotonic_ms(), ENDED)
        self._publish_state(ENDED)

    def announce_end(self) -> None:
        """Publish that this session will soon be over, so that the next one folds what it lacks."""
        self._enter(ENDING)

    def _enter(self, state: str) -> None:
        self.state = self._progress.state = state
        self._progress.beat(self._clock.monotonic_ms())
        self._publish_state(state)

    def _publish_state(self, state: str) -> None:
        work = {"first_work_ms": self._first_work_ms, "last_work_ms": self._last_work_ms}
        self._published_state.publish(state, **{name: at_ms for name, at_ms in work.items() if at_ms})

    # -- one turn ----------------------------------------------------------------------------------------

    def step(self) -> bool:
        """One turn; True when something was copied or there is more to do at once."""
        if self._defect is not None:
            raise self._defect
        now_ms = self._clock.monotonic_ms()
        if self.followed.follow_metadata(now_ms):
            self._metadata_seen_ms = now_ms
        self._start_fetchers()
        if self._is_stop_due(now_ms) and self._has_stop():
            self._is_stopped = True
        if self.is_over:
            return False
        if self.state == STANDBY:
            if not self._may_become_active(now_ms):
                self._run_standby(now_ms)
                return False
            self._become_active()
        if self._is_superseded(now_ms):
            self._return_to_standby()
            return False
        moved = self._fetch_without_threads(now_ms)
        self._beat(now_ms)
        has_metrics = self._job.config.stratalog_metrics_port > 0
        if has_metrics and self._due.is_due("metrics", now_ms, cadence.COPY_TIMES_PUBLISHED.ms):
            self._publish_copy_times(now_ms)
        return moved

    def _fetch_without_threads(self, now_ms: int) -> bool:
        if self._threads is not None:
            return False
        followed = self.followed
        fetchers = [each for each in followed.fetchers.values() if each.leader_id in followed.followed_leaders]
        moved = [self._fetch(fetcher, now_ms) for fetcher in fetchers]  # all of them, whichever moved
        return any(moved)

    def _fetch(self, fetcher: LeaderFetcher, now_ms: int) -> bool:
        """A turn for one leader; True when something was copied or there is more to do at once."""
        followed = self.followed
        followed.prepare(fetcher, now_ms)
        if self.state == STANDBY:
            self._fold_ahead(fetcher, now_ms)
            return False
        followed.poll_leader(fetcher, now_ms)
        copied_before, begun_ms = fetcher.copied_count, self._clock.monotonic_ms()
        moved = followed.catch_up(fetcher, now_ms)
        self._progress.publish(fetcher.leader_id, now_ms)
        if fetcher.copied_count != copied_before:
            if self._progress.state == RESTING:
                self._wakeup.wake()
            self._last_work_ms = self._clock.wall_ms()
            self._first_work_ms = self._first_work_ms or self._last_work_ms
            self._copy_clock.copied(self._clock.monotonic_ms() - begun_ms)
        interval_ms = self._job.config.stratalog_upkeep_interval_ms
        is_ending = self.state == ENDING  # what is done by then is committed, the next session begins the rest
        is_pressing = fetcher.upkeep.has_result if is_ending else fetcher.upkeep.is_pressing
        if fetcher.due.is_due("upkeep", now_ms, interval_ms) or is_pressing:
            followed.keep_up(fetcher, may_begin=not is_ending)
        return moved

    def _publish_copy_times(self, now_ms: int) -> None:
        followed = self.followed
        live_files = most_live_files(replica.own for replica in followed.replicas.values())
        times = self._copy_clock.read(now_ms, self._clock.wall_ms(), live_files, followed.pause_ms_max)
        path = f"{fetch_metrics_prefix(self._job.broker_epoch)}{followed.fetcher_id}"
        self._objects.put_register(path, times.to_json())

    def _has_stop(self) -> bool:
        path = stop_path(self._job.broker_epoch)
        return self._turn.away(self._objects.exists, path) if self._distance.is_far else self._objects.exists(path)

    def _is_stop_due(self, now_ms: int) -> bool:
        if self._stop.is_active and self._stop.was_written():
            return True
        return self._due.is_due("stop", now_ms, self._heartbeats.stop_ms)

    @property
    def _heartbeats(self) -> Heartbeats:
        return heartbeats(self._progress.state, self._elder_state, is_watched=self._states.is_active)

    def _beat(self, now_ms: int) -> None:
        """A heartbeat, when one is due or when there is another state to publish."""
        idle_ms = self.followed.idle.idle_ms(now_ms) if self._may_rest else 0
        state = published_state(self.state, idle_ms, is_watched=self._states.is_active)
        if state != self._progress.state:
            self._progress.state = state
            self._due.set("beat", now_ms)
        if self._due.is_due("beat", now_ms, self._heartbeats.beat_ms):
            self._progress.beat(now_ms)

    # -- standby -----------------------------------------------------------------------------------------

    def _may_become_active(self, now_ms: int) -> bool:
        """True when no other session of this fetcher is active: it ended, fell silent, or never was."""
        is_watched = self._states.is_active
        is_notified = is_watched and self._states.was_written()
        if not is_notified and not self._due.is_due("check", now_ms, self._heartbeats.check_ms):
            return False
        if is_notified or self._due.is_due("others", now_ms, self._heartbeats.others_ms):
            self._find_others(now_ms)
        # A list: each call records what the object holds, so all are checked, not up to the first active one.
        return not [path for path in list(self._others) if self._is_active(path, now_ms)]

    def _become_active(self) -> None:
        self.followed.begin_work(self._elder)
        self._enter(ACTIVE)
        self._published_state.is_superseded()  # remembers the sessions that were active before this one
        _LOG.debug("fetch session %s of broker %d is active", self.name, self._job.broker_id)

    def _is_superseded(self, now_ms: int) -> bool:
        is_notified = self._states.is_active and self._states.was_written()
        is_due = is_notified or self._due.is_due("superseded", now_ms, self._heartbeats.superseded_ms)
        return is_due and self._published_state.is_superseded()

    def _return_to_standby(self) -> None:
        """Another session became active since this one was silent; two active ones would only lose races."""
        _LOG.info("fetch session %s of broker %d is on standby again", self.name, self._job.broker_id)
        self._enter(STANDBY)
        self._others.clear()
        self.followed.stop_work()

    def _run_standby(self, now_ms: int) -> None:
        self._beat(now_ms)
        if not self._is_published:
            self._is_published = True
            self._publish_state(STANDBY)
            self._published_state.delete_old()
        self._fetch_without_threads(now_ms)

    def _fold_ahead(self, fetcher: LeaderFetcher, now_ms: int) -> None:
        """Fold ahead what copying will need, a little at a time; more often once the elder is about to end."""
        if self._elder_state == ENDING:
            is_poll_due = fetcher.due.is_due("close up", now_ms, cadence.CLOSE_UP.ms)
        else:
            is_poll_due = fetcher.due.is_due("fold ahead", now_ms, cadence.FOLD_AHEAD.ms)
        if is_poll_due:
            self.followed.poll_leader(fetcher, now_ms)
        if is_poll_due or fetcher.has_more_to_fold:
            fetcher.has_more_to_fold = self.followed.fold_ahead(fetcher, now_ms)

    def _find_others(self, now_ms: int) -> None:
        prefix = fetch_progress_path(self._job.broker_epoch, f"{self.followed.fetcher_id}-")
        own = fetch_progress_path(self._job.broker_epoch, self.name)
        listed = self._objects.list(progress_prefix(self._job.broker_epoch))
        found = [meta for meta in listed if meta.path.startswith(prefix) and meta.path != own]
        for meta in found:
            if self._is_forgotten(meta, now_ms):
                remove_session_progress(self._objects, self._job.broker_epoch, meta.path)
                self._others.pop(meta.path, None)
            elif meta.path not in self._others:
                self._others[meta.path] = (None, now_ms)
        self._found = {meta.path: self._found[meta.path] for meta in found}
        self._found_ms = now_ms

    def _is_forgotten(self, meta: ObjectMeta, now_ms: int) -> bool:
        """Whether the object has been as it is for long, on this session's clock: the store's may show any time."""
        seen, since_ms = self._found.get(meta.path, (None, now_ms))
        if meta != seen or now_ms - self._found_ms > cadence.FORGETTING_GAP.ms:
            since_ms = now_ms
        self._found[meta.path] = meta, since_ms
        return now_ms - since_ms > cadence.SESSION_FORGOTTEN.ms

    def _is_active(self, path: str, now_ms: int) -> bool:
        content = self._objects.get_register(path)
        state = writer_state(content)
        silent_ms = silence_ms(state)
        if not silent_ms:
            if state == ENDED:
                del self._others[path]
            return False
        self._elder_state = state
        self._elder = path.removeprefix(fetch_progress_path(self._job.broker_epoch, ""))
        seen, since_ms = self._others[path]
        if content != seen:
            self._others[path] = (content, now_ms)
            return True
        return now_ms - since_ms < silent_ms
