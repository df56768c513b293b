"""What runs a broker's fetch sessions: Structured Streaming micro-batches (`replication/spark/fetch.py`), or threads.

I/O: starts threads. Both run the same `FollowerSession`. Threads are for Spark sessions without free slots, for quick
tests, and for followers whose queries fail (`replication/follower/sessions/fetch_place.py`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cache
from typing import Protocol

from stratalog.replication import cadence
from stratalog.replication.follower.partitions import FetchJob, FollowedPartitions
from stratalog.replication.follower.sessions.fetch_session import FollowerSession, stop_path
from stratalog.replication.follower.sessions.turn_stores import TurnStores
from stratalog.replication.metadata.log import SharedMetadata
from stratalog.replication.stores import OneByOne, Ports, request_ms_max
from stratalog.replication.threads.daemon_threads import DaemonThreads, is_done_within
from stratalog.replication.threads.side_by_side import SideBySide
from stratalog.replication.threads.turn_lock import TurnLock
from stratalog.replication.threads.upkeep_thread import UpkeepThreads
from stratalog.storage.clock import RandomIds, SystemClock
from stratalog.storage.errors import StratalogError
from stratalog.storage.log_lines import line_logger
from stratalog.storage.objects.opened import open_store

_LOG = line_logger("stratalog.fetcher")

THREAD_SESSION = "thread-"
"""The beginning of the names of sessions in threads."""


class FetchRunner(Protocol):
    """Keeps a broker's fetch sessions running, from its registration on."""

    def start(self, job: FetchJob) -> None:
        """Begin to follow for this registration of the broker."""

    @property
    def failure(self) -> str:
        """Why no session can run any more; empty while sessions can run."""

    def stop(self) -> bool:
        """End all sessions that this runner started, and wait for them. False when some may still be at work."""


class FoldedPartitions:
    """What the sessions of this process folded, until the next session of the same fetcher resumes it.

    Spark runs its tasks in Python workers that live on, so most sessions find what an earlier one left.
    """

    def __init__(self, fetchers_max: int = 8, files_max: int = 200_000) -> None:
        """Holds `fetchers_max` fetchers and folds of `files_max` files in all; drops the least recently kept first."""
        self._kept: dict[tuple[str, int], FollowedPartitions] = {}
        self._lock = threading.Lock()
        self._fetchers_max = fetchers_max
        self._files_max = files_max

    def pop(self, job: FetchJob, fetcher_id: int) -> FollowedPartitions | None:
        """What was kept for this fetcher, for the caller alone; None when nothing was, or it is of an older
        registration or other settings."""
        with self._lock:
            followed = self._kept.pop((job.root, fetcher_id), None)
        return followed if followed is not None and followed.job == job else None

    def keep(self, followed: FollowedPartitions) -> None:
        """Keep it for the next session."""
        with self._lock:
            self._kept[followed.job.root, followed.fetcher_id] = followed
            while len(self._kept) > self._fetchers_max or self._file_count() > self._files_max:
                del self._kept[next(iter(self._kept))]

    def _file_count(self) -> int:
        return sum(followed.file_count for followed in self._kept.values())


_FOLDED = FoldedPartitions()


@cache
def _upkeep_threads() -> UpkeepThreads:
    """For all sessions of this process, made after Spark forked its worker."""
    return UpkeepThreads(SystemClock())


def _ports(job: FetchJob, metadata: SharedMetadata | None) -> Ports:
    """The stores of a fetcher, whose threads take turns; one that waits for another broker's root gives its turn up."""
    ids, turn = RandomIds(), TurnLock((job.root, job.metadata_root))
    request_ms = request_ms_max(job.config.broker_session_timeout_ms)
    upkeep, stores = _upkeep_threads(), TurnStores(ids, turn, request_ms)
    distance = stores.objects(job.root).distance
    return Ports(
        stores,
        SystemClock(),
        ids,
        upkeep.at(job.root),
        threads=DaemonThreads(),
        turn=turn,
        executors=lambda leader_root: upkeep.at(job.root, leader_root),
        together=SideBySide(f"fetch-{job.broker_id}-io", turn.away) if distance.is_far else OneByOne(),
        metadata=metadata,
    )


def run_session(
    job: FetchJob,
    fetcher_id: int,
    name: str,
    duration_ms: int,
    is_wanted: Callable[[], bool] = lambda: True,
    metadata: SharedMetadata | None = None,
) -> FollowerSession:
    """Run one session to its end, in the calling thread. It ends early when it is no longer wanted. `metadata`: what
    brokers of this process share with it."""
    followed = _FOLDED.pop(job, fetcher_id)
    if followed is None:
        followed = FollowedPartitions(job, fetcher_id, _ports(job, metadata))
    session = FollowerSession(followed, name)
    session.run(duration_ms, is_wanted)
    if not session.is_over:
        _FOLDED.keep(followed)
    return session


def end_sessions(job: FetchJob) -> None:
    """Make all sessions of this registration end, wherever they run. Raises StratalogError."""
    open_store(job.root).put(stop_path(job.broker_epoch), b"stop")


def could_end_sessions(job: FetchJob) -> bool:
    """`end_sessions`; False when the broker's root takes no write."""
    try:
        if is_done_within(cadence.SESSIONS_ENDED.s, f"end-fetch-{job.broker_id}", lambda: end_sessions(job)):
            return True
        reason: object = f"its root did not answer in {cadence.SESSIONS_ENDED.s} s"
    except StratalogError as failure:
        reason = failure
    _LOG.warning("fetch sessions of broker %d cannot be ended: %s", job.broker_id, reason)
    return False


class FollowerThreads:
    """The sessions of one follower in daemon threads of this process, one after the other, without overlap."""

    def __init__(self, job: FetchJob, metadata: SharedMetadata | None = None) -> None:
        """Begin. The sessions end with the registration, or with `end`. `metadata` as in `run_session`."""
        self._job = job
        self._metadata = metadata
        self._is_ending = threading.Event()
        fetchers = range(job.config.num_replica_fetchers)
        names = [f"fetcher-{job.broker_id}-{job.broker_epoch}-{fetcher_id}" for fetcher_id in fetchers]
        self._threads = [
            threading.Thread(target=self._run, args=(fetcher_id,), name=name, daemon=True)
            for fetcher_id, name in zip(fetchers, names, strict=True)
        ]
        for thread in self._threads:
            thread.start()

    def _run(self, fetcher_id: int) -> None:
        job = self._job
        while not self._is_ending.is_set():
            name = f"{THREAD_SESSION}{RandomIds().new_id()[:8]}"
            try:
                length_ms = job.config.stratalog_fetch_session_ms
                session = run_session(job, fetcher_id, name, length_ms, self._is_wanted, self._metadata)
                if session.is_over:
                    return
            except StratalogError as reason:
                _LOG.warning("fetch sessions of broker %d, trying again: %s", job.broker_id, reason)
                self._is_ending.wait(job.config.replica_fetch_backoff_ms / 1000)
            except Exception:  # noqa: BLE001 - a thread that ends silently would hide it
                _LOG.exception("fetch sessions of broker %d", job.broker_id)
                self._is_ending.wait(job.config.replica_fetch_backoff_ms / 1000)
        _FOLDED.pop(job, fetcher_id)

    def _is_wanted(self) -> bool:
        return not self._is_ending.is_set()

    def end(self) -> None:
        """End the sessions soon; another session of the follower then becomes active at once."""
        self._is_ending.set()

    def join(self) -> bool:
        """Wait for the sessions to end, each at most 10 s. False when one may still be at work."""
        for thread in self._threads:
            thread.join(timeout=cadence.SESSIONS_ENDED.s)
        return not any(thread.is_alive() for thread in self._threads)


class ThreadFetchRunner:
    """Runs all sessions of all followers in threads of this process."""

    failure = ""

    def __init__(self, metadata: SharedMetadata | None = None) -> None:
        """`metadata` as in `run_session`."""
        self._metadata = metadata
        self._jobs: list[FetchJob] = []
        self._threads: list[FollowerThreads] = []

    def start(self, job: FetchJob) -> None:
        self._jobs.append(job)
        self._threads.append(FollowerThreads(job, self._metadata))

    def stop(self) -> bool:
        were_asked = [could_end_sessions(job) for job in self._jobs]
        have_ended = [threads.join() for threads in self._threads]
        return all(were_asked) and all(have_ended)
