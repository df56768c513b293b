"""A fetch session: follows leaders for a while, on behalf of one broker. It is what a micro-batch runs.

I/O: through its stores. Spark (or a thread, or the simulator) schedules it and it does not know which. The
session watches one progress object per leader broker, copies what moved, commits to the broker's own
tables and publishes one progress object of its own: the commit, then the progress, is the acknowledgement.

A follower's partitions may be shared out to several tasks (`num.replica.fetchers`); each watches all leaders.
Two sessions of a share overlap: the younger stands by, folds what it will need, and takes over when the elder ends or
falls silent, which hides the gap between two micro-batches. Two sessions at work at once are safe (promise 7), only
wasteful.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from concurrent.futures import Executor

from stratalog.replication.config import BrokerConfig
from stratalog.replication.follower.metrics import INTERVAL_MS, CopyClock, fetch_metrics_prefix
from stratalog.replication.follower.partitions import FollowedPartitions
from stratalog.replication.follower.replica import FollowedReplica
from stratalog.replication.progress.of_session import (
    SessionProgress,
    SessionState,
    remove_session_progress,
    session_states_prefix,
)
from stratalog.replication.progress.progress import ENDED, fetch_progress_path, progress_header, progress_prefix
from stratalog.replication.replica.upkeep_rounds import most_live_files
from stratalog.replication.stores import Stores
from stratalog.storage.clock import Clock, Ids
from stratalog.storage.errors import StratalogError
from stratalog.storage.objects.wakeup import Wakeup
from stratalog.storage.records import TopicPartition
from stratalog.storage.upkeep.chore import UpkeepLimits

_LOG = logging.getLogger("stratalog.fetcher")

STANDBY, ACTIVE, ENDING = "standby", "active", "ending"
BEAT_INTERVAL_MS = 200
STANDBY_BEAT_INTERVAL_MS = 500
SILENCE_MS = 1_000
FORGOTTEN_MS = 60_000
ENDING_MS = 2_000
"""So long before its end, but in its last fifth, a session says that it will end: for the one that stands by to fold
what it lacks."""
OTHERS_WATCHED_INTERVAL_MS = 1_000
WARM_UP_INTERVAL_MS = 10_000
"""So far behind is one that stands by at most. A look costs as much as a commit, and what was not used for a while is
in no cache of the processor, so each look is to find many commits."""
CLOSE_UP_INTERVAL_MS = 100
"""So far behind is it at most when the session at work is about to end."""
WARM_UP_REST_MS = 20
IDLE_WAIT_MS = 100
"""Where all that matters is watched, the loop still turns so often, for heartbeats."""


def stop_path(broker_epoch: int) -> str:
    """An object whose presence ends all fetch sessions of that broker epoch."""
    return f"{progress_prefix(broker_epoch)}stop"


class FollowerSession:
    """One session. `step` is one turn; `run` turns until the deadline or until `is_over`: the broker stopped,
    or its registration is no longer the live one."""

    def __init__(
        self,
        broker_id: int,
        broker_epoch: int,
        root: str,
        name: str,
        *,
        config: BrokerConfig,
        metadata_root: str,
        stores: Stores,
        clock: Clock,
        ids: Ids,
        share: int = 0,
        topic_defaults: Mapping[str, object] | None = None,
        upkeep_limits: UpkeepLimits | None = None,
        executor: Executor | None = None,
        followed: FollowedPartitions | None = None,
    ) -> None:
        """`followed`: what an earlier session of the same share folded in this process; None begins cold."""
        self.broker_id = broker_id
        self.broker_epoch = broker_epoch
        self.name = f"{share}-{name}"
        self.state = STANDBY
        self.followed = followed or FollowedPartitions(
            broker_id,
            broker_epoch,
            root,
            config=config,
            metadata_root=metadata_root,
            stores=stores,
            clock=clock,
            ids=ids,
            share=share,
            topic_defaults=topic_defaults,
            upkeep_limits=upkeep_limits,
            executor=executor,
        )
        self._share = share
        self._config = config
        self._clock = clock
        self._objects = stores.objects(root)
        self._progress = SessionProgress(self._objects, broker_epoch, self.name, STANDBY)
        self._notice = SessionState(self._objects, broker_epoch, self.name, clock)
        self._wakeup = Wakeup(clock)
        self._notices = self._wakeup.watch(self._objects, session_states_prefix(broker_epoch))
        self._stop = self._wakeup.watch(self._objects, stop_path(broker_epoch))
        self._is_told = False
        self._is_stopped = False
        self._is_cold = True
        self._is_end_near = False
        self._due_ms: dict[str, int] = {}
        self._metadata_seen_ms = clock.monotonic_ms()
        self._others: dict[str, tuple[bytes | None, int]] = {}
        self._elder = ""
        self._first_work_ms = self._last_work_ms = 0
        self._copy_clock = CopyClock(share, clock.monotonic_ms())
        self.followed.resume(self._progress, self._wakeup)

    # -- life --------------------------------------------------------------------------------------------

    @property
    def replicas(self) -> Mapping[TopicPartition, FollowedReplica]:
        """What it follows."""
        return self.followed.replicas

    @property
    def is_over(self) -> bool:
        """The broker stopped, or another registration took its place: no session of this one is needed any more."""
        return self._is_stopped or self.followed.is_over

    @property
    def copied_count(self) -> int:
        """Rounds of copying so far."""
        return self.followed.copied_count

    def run(self, duration_ms: int) -> None:
        """Follow until the deadline, until the registration is over or until the broker stops."""
        try:
            self._run(duration_ms)
            self.end()
        finally:
            self._wakeup.close()

    def _run(self, duration_ms: int) -> None:
        deadline_ms = self._clock.monotonic_ms() + duration_ms
        ending_ms = min(ENDING_MS, duration_ms // 5)
        idle_since_ms = self._clock.monotonic_ms()
        while (now_ms := self._clock.monotonic_ms()) < deadline_ms and not self.is_over:
            try:
                if self.state == ACTIVE and deadline_ms - now_ms < ending_ms:
                    self.announce_end()
                moved = self.step()
            except StratalogError as reason:
                _LOG.warning("fetch session %s of broker %d, trying again: %s", self.name, self.broker_id, reason)
                self._clock.sleep_ms(self._config.replica_fetch_backoff_ms)
                if self._is_blind():
                    break
                continue
            rest_ms = self.followed.rest_ms(now_ms)
            if rest_ms:
                self._clock.sleep_ms(rest_ms)
            now_ms = self._clock.monotonic_ms()
            if moved:
                idle_since_ms = now_ms
            is_at_once = moved and not self._wakeup.is_active  # else what comes next is told
            self._wait(0 if is_at_once else min(self._pause_ms(now_ms, idle_since_ms), max(0, deadline_ms - now_ms)))

    def _wait(self, timeout_ms: int) -> None:
        if timeout_ms > 0 or self._wakeup.is_active:
            self._wakeup.wait_ms(timeout_ms)

    def _is_blind(self) -> bool:
        """The metadata log has been out of reach for a session timeout: leave the work to another session."""
        blind_ms = self._clock.monotonic_ms() - self._metadata_seen_ms
        return blind_ms > self._config.broker_session_timeout_ms

    def _pause_ms(self, now_ms: int, idle_since_ms: int) -> int:
        """Where nothing tells of a change: short right after work, longer when long idle."""
        if self.state == STANDBY and self._is_cold:
            return WARM_UP_REST_MS
        if self._wakeup.is_active:
            if self.state == STANDBY:
                return CLOSE_UP_INTERVAL_MS if self._is_end_near else BEAT_INTERVAL_MS
            return min(IDLE_WAIT_MS, self.followed.due_in_ms(now_ms))
        shortest, longest = self._config.stratalog_progress_poll_min_ms, self._config.stratalog_progress_poll_max_ms
        if self.state == STANDBY:
            return longest
        idle_ms = now_ms - idle_since_ms
        return shortest if idle_ms < 2_000 else min(longest, shortest + idle_ms // 1_000)

    def end(self) -> None:
        """Say that this session is over, so that the next takes over at once."""
        self.state = ENDED
        self._progress.end(self._clock.monotonic_ms(), ENDED)
        self._tell(ENDED)

    def announce_end(self) -> None:
        """Say that this session will soon be over, so that the next gets ready."""
        self._enter(ENDING)

    def _enter(self, state: str) -> None:
        self.state = self._progress.state = state
        self._progress.beat(self._clock.monotonic_ms())
        self._tell(state)

    def _tell(self, state: str) -> None:
        work = {"first_work_ms": self._first_work_ms, "last_work_ms": self._last_work_ms}
        self._notice.publish(state, **{name: at_ms for name, at_ms in work.items() if at_ms})

    # -- one turn ----------------------------------------------------------------------------------------

    def step(self) -> bool:
        """One turn; True when something was copied or there is more to do at once."""
        now_ms = self._clock.monotonic_ms()
        if self.followed.follow_metadata(now_ms):
            self._metadata_seen_ms = now_ms
        if self._is_stop_due(now_ms) and self._objects.exists(stop_path(self.broker_epoch)):
            self._is_stopped = True
        if self.is_over:
            return False
        if self.state == STANDBY and not self._takes_over(now_ms):
            self._stand_by(now_ms)
            return False
        if self.state != STANDBY and self._is_relieved(now_ms):
            self._stand_down()
            return False
        self.followed.watch_leaders(now_ms)
        copied_before, begun_ms = self.followed.copied_count, self._clock.monotonic_ms()
        moved = self.followed.catch_up(now_ms)
        self._publish(now_ms, BEAT_INTERVAL_MS)
        if self.followed.copied_count != copied_before:
            self._last_work_ms = self._clock.wall_ms()
            self._first_work_ms = self._first_work_ms or self._last_work_ms
            self._copy_clock.copied(self._clock.monotonic_ms() - begun_ms)
        if self._config.stratalog_metrics_port and self._is_due("metrics", now_ms, INTERVAL_MS):
            self._tell_times(now_ms)
        interval_ms = self._config.stratalog_upkeep_interval_ms
        if self._is_due("upkeep", now_ms, interval_ms) or self.followed.upkeep.is_pressing:
            self.followed.keep_up()
        return moved

    def _tell_times(self, now_ms: int) -> None:
        live_files = most_live_files(replica.own for replica in self.replicas.values())
        told = self._copy_clock.tell(now_ms, self._clock.wall_ms(), live_files, self.followed.upkeep.pause_ms_max)
        self._objects.put_register(f"{fetch_metrics_prefix(self.broker_epoch)}{self._share}", told.to_json())

    def _is_due(self, name: str, now_ms: int, interval_ms: int) -> bool:
        if now_ms < self._due_ms.get(name, 0):
            return False
        self._due_ms[name] = now_ms + interval_ms
        return True

    def _is_stop_due(self, now_ms: int) -> bool:
        if self._stop.is_active and self._stop.was_written():
            return True
        return self._is_due("stop", now_ms, OTHERS_WATCHED_INTERVAL_MS if self._stop.is_active else BEAT_INTERVAL_MS)

    def _publish(self, now_ms: int, beat_interval_ms: int) -> None:
        self._progress.publish(now_ms)
        if self._is_due("beat", now_ms, beat_interval_ms):
            self._progress.beat(now_ms)

    # -- standing by -------------------------------------------------------------------------------------

    def _takes_over(self, now_ms: int) -> bool:
        """True when no other session of this share is at work: it ended, fell silent, or never was."""
        is_told = self._notices.is_active and self._notices.was_written()
        if is_told or self._is_due("look", now_ms, BEAT_INTERVAL_MS if self._notices.is_active else 0):
            if is_told or self._is_due("others", now_ms, self._others_interval_ms()):
                self._find_others(now_ms)
            # A list, since each look notes what the object says: all of them, not up to the first one at work.
            at_work = [path for path in list(self._others) if self._is_at_work(path, now_ms)]
            if not at_work:
                self._take_over()
        return self.state == ACTIVE

    def _others_interval_ms(self) -> int:
        return OTHERS_WATCHED_INTERVAL_MS if self._notices.is_active else BEAT_INTERVAL_MS

    def _take_over(self) -> None:
        self.followed.begin_work(self._elder)
        self._enter(ACTIVE)
        self._notice.is_superseded()  # who took over before this one is no news
        _LOG.debug("fetch session %s of broker %d takes over", self.name, self.broker_id)

    def _is_relieved(self, now_ms: int) -> bool:
        is_told = self._notices.is_active and self._notices.was_written()
        return (is_told or self._is_due("relief", now_ms, SILENCE_MS)) and self._notice.is_superseded()

    def _stand_down(self) -> None:
        """It was silent for so long that another session took over: two at work would only get in each other's way."""
        _LOG.info("fetch session %s of broker %d stands by again", self.name, self.broker_id)
        self._enter(STANDBY)
        self._others.clear()
        self.followed.stop_work()

    def _stand_by(self, now_ms: int) -> None:
        """Fold ahead what copying will need: now and then, a little at a time; often once the elder is about to end."""
        self._publish(now_ms, STANDBY_BEAT_INTERVAL_MS)
        if not self._is_told:
            self._is_told = True
            self._tell(STANDBY)
            self._notice.delete_old()
        if self._is_end_near:
            is_look_due = self._is_due("close up", now_ms, CLOSE_UP_INTERVAL_MS)
        else:
            is_look_due = self._is_due("warm up", now_ms, WARM_UP_INTERVAL_MS)
        if is_look_due:
            self.followed.watch_leaders(now_ms)
        if is_look_due or self._is_cold:
            self._is_cold = self.followed.warm_up(now_ms)

    def _find_others(self, now_ms: int) -> None:
        prefix = fetch_progress_path(self.broker_epoch, f"{self._share}-")
        own = fetch_progress_path(self.broker_epoch, self.name)
        for meta in self._objects.list(progress_prefix(self.broker_epoch)):
            if not meta.path.startswith(prefix) or meta.path == own:
                continue
            if self._clock.wall_ms() - meta.last_modified_ms > FORGOTTEN_MS:
                remove_session_progress(self._objects, self.broker_epoch, meta.path)
                self._others.pop(meta.path, None)
            elif meta.path not in self._others:
                self._others[meta.path] = (None, now_ms)

    def _is_at_work(self, path: str, now_ms: int) -> bool:
        content = self._objects.get_register(path)
        state = ENDED if content is None else progress_header(content).state
        if content is None or state not in (ACTIVE, ENDING):
            if state == ENDED:
                del self._others[path]
            return False
        self._is_end_near = state == ENDING
        self._elder = path.removeprefix(fetch_progress_path(self.broker_epoch, ""))
        seen, since_ms = self._others[path]
        if content != seen:
            self._others[path] = (content, now_ms)
            return True
        return now_ms - since_ms < SILENCE_MS
