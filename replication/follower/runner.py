"""Who runs a broker's fetch sessions: Structured Streaming micro-batches, or plain threads.

I/O: starts threads. Both run the same `FollowerSession`; which of them it is decides only where. Spark is the
rule (`replication.spark.fetch`), threads are for a session without free slots, and for quick tests.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Protocol

from stratalog.replication.config import BrokerConfig
from stratalog.replication.follower.fetch_session import FollowerSession, stop_path
from stratalog.replication.follower.partitions import FollowedPartitions
from stratalog.replication.stores import DeltaStores
from stratalog.replication.threads.upkeep_thread import UpkeepThread
from stratalog.storage.clock import Ids, SystemClock
from stratalog.storage.errors import StratalogError

_LOG = logging.getLogger("stratalog.fetcher")


@dataclass(frozen=True, slots=True)
class FetchJob:
    """What a fetch session needs to know of its broker."""

    broker_id: int
    broker_epoch: int
    root: str
    metadata_root: str
    config: BrokerConfig
    topic_defaults: Mapping[str, object]


class FetchRunner(Protocol):
    """Keeps a broker's fetch sessions running, from its registration on."""

    def start(self, job: FetchJob) -> None:
        """Begin to follow for this registration of the broker."""
        ...

    @property
    def failure(self) -> str:
        """Why no session can run any more, whatever is tried; empty while there is no such reason."""
        ...

    def stop(self) -> bool:
        """End all sessions that this runner started, and wait for them. False when some may still be at work."""
        ...


class WarmPartitions:
    """What the sessions of this process folded, until the next session of the same share takes it.

    Spark hands its tasks to Python workers that live on, so that most sessions find what an earlier one left.
    """

    def __init__(self, parked_max: int = 8, files_max: int = 200_000) -> None:
        """Holds `parked_max` shares at most, and folds of `files_max` files in all: the least lately used go."""
        self._parked: dict[tuple[str, int], tuple[FetchJob, FollowedPartitions]] = {}
        self._lock = threading.Lock()
        self._parked_max = parked_max
        self._files_max = files_max

    def take(self, job: FetchJob, share: int) -> FollowedPartitions | None:
        """What was left for this share, for the caller alone; None when there is nothing, or it is of an older
        registration or other settings."""
        with self._lock:
            left = self._parked.pop((job.root, share), None)
        return left[1] if left is not None and left[0] == job else None

    def park(self, job: FetchJob, share: int, followed: FollowedPartitions) -> None:
        """Leave it for the next session."""
        with self._lock:
            self._parked[job.root, share] = (job, followed)
            while len(self._parked) > self._parked_max or self._file_count() > self._files_max:
                del self._parked[next(iter(self._parked))]

    def _file_count(self) -> int:
        return sum(followed.file_count for _, followed in self._parked.values())


_WARM = WarmPartitions()


@cache
def _upkeep_thread() -> UpkeepThread:
    """For all sessions of this process, made after Spark forked its worker."""
    return UpkeepThread(SystemClock())


def run_session(job: FetchJob, share: int, name: str, duration_ms: int, ids: Ids) -> FollowerSession:
    """Run one session to its end; called wherever the scheduler put it."""
    followed = _WARM.take(job, share)
    session = FollowerSession(
        job.broker_id,
        job.broker_epoch,
        job.root,
        name,
        config=job.config,
        metadata_root=job.metadata_root,
        stores=DeltaStores(ids) if followed is None else followed.stores,
        clock=SystemClock(),
        ids=ids,
        share=share,
        topic_defaults=job.topic_defaults,
        executor=_upkeep_thread(),
        followed=followed,
    )
    session.run(duration_ms)
    if not session.is_over:
        _WARM.park(job, share, session.followed)
    return session


def end_sessions(job: FetchJob, ids: Ids) -> None:
    """Ask all sessions of this registration to end, wherever they run."""
    DeltaStores(ids).objects(job.root).put(stop_path(job.broker_epoch), b"stop")


def is_told_to_end(job: FetchJob, ids: Ids) -> bool:
    """`end_sessions`; False when the broker's root takes no write."""
    try:
        end_sessions(job, ids)
    except StratalogError as reason:
        _LOG.warning("fetch sessions of broker %d cannot be told to end: %s", job.broker_id, reason)
        return False
    return True


class ThreadFetchRunner:
    """Sessions in daemon threads of this process, one after the other, without overlap."""

    failure = ""

    def __init__(self, ids: Ids) -> None:
        self._ids = ids
        self._jobs: list[FetchJob] = []
        self._threads: list[threading.Thread] = []

    def start(self, job: FetchJob) -> None:
        self._jobs.append(job)
        for share in range(job.config.num_replica_fetchers):
            name = f"fetcher-{job.broker_id}-{job.broker_epoch}-{share}"
            thread = threading.Thread(target=self._run, args=(job, share), name=name, daemon=True)
            self._threads.append(thread)
            thread.start()

    def _run(self, job: FetchJob, share: int) -> None:
        while True:
            try:
                name = f"thread-{self._ids.new_id()[:8]}"
                if run_session(job, share, name, job.config.stratalog_fetch_session_ms, self._ids).is_over:
                    return
            except StratalogError as reason:
                _LOG.warning("fetch sessions of broker %d, trying again: %s", job.broker_id, reason)
                SystemClock().sleep_ms(job.config.replica_fetch_backoff_ms)
            except Exception:  # noqa: BLE001 - a thread that ends silently would hide it
                _LOG.exception("fetch sessions of broker %d", job.broker_id)
                SystemClock().sleep_ms(job.config.replica_fetch_backoff_ms)

    def stop(self) -> bool:
        are_told = [is_told_to_end(job, self._ids) for job in self._jobs]
        for thread in self._threads:
            thread.join(timeout=10)
        return all(are_told) and not any(thread.is_alive() for thread in self._threads)
