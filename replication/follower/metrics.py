"""How long a broker's fetch sessions take to copy: published by the sessions, which run elsewhere, in its root. Pure.

One register for each fetcher, written by its active session, with what happened since the last write. Nothing is
written unless metrics are served (`stratalog.metrics.port`). One more register is there while a follower whose queries
cannot run on Spark fetches in threads; the broker's process writes it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import astuple, dataclass

from stratalog.replication import cadence
from stratalog.replication.metrics import GAUGE, Labels, Metric
from stratalog.replication.progress.progress import progress_prefix


def fetch_metrics_prefix(broker_epoch: int) -> str:
    """Where the registers of a registration are, below the broker's root."""
    return f"{progress_prefix(broker_epoch)}metrics-"


def thread_fetch_path(broker_epoch: int) -> str:
    """Where it is stated that a registration fetches in threads because Spark cannot run its queries."""
    return f"{progress_prefix(broker_epoch)}in-threads"


@dataclass(frozen=True, slots=True)
class ThreadFetch:
    """Why and since when, by the wall clock, a follower fetches in threads instead of on Spark."""

    reason: str
    since_ms: int

    def to_json(self) -> bytes:
        return json.dumps({"reason": self.reason, "since_ms": self.since_ms}).encode()

    @staticmethod
    def from_json(data: bytes) -> ThreadFetch:
        try:
            found = json.loads(data)
            return ThreadFetch(str(found["reason"]), int(found["since_ms"]))
        except (ValueError, TypeError, KeyError):
            return ThreadFetch("unknown", 0)


@dataclass(frozen=True, slots=True)
class CopyTimes:
    """Turns in which a fetcher copied something: how many, and how long they took in all and at most.

    published_ms    wall clock, when this was published
    interval_ms     since the last time
    live_files_max  the most live files that the own log of a followed replica has
    pause_ms_max    how long the next copy waits for upkeep, of the replica that waits longest
    """

    fetcher_id: int
    published_ms: int
    interval_ms: int
    turns: int
    sum_ms: int
    max_ms: int
    live_files_max: int = 0
    pause_ms_max: int = 0

    def to_json(self) -> bytes:
        return json.dumps(astuple(self)).encode()

    @staticmethod
    def from_json(data: bytes) -> CopyTimes | None:
        """None for what another release wrote."""
        try:
            return CopyTimes(*map(int, json.loads(data)))
        except (ValueError, TypeError):
            return None


class CopyClock:
    """A session's own count since it was last read."""

    def __init__(self, fetcher_id: int, now_ms: int) -> None:
        self._fetcher_id = fetcher_id
        self._begin(now_ms)

    def _begin(self, now_ms: int) -> None:
        self._since_ms = now_ms
        self._turns = self._sum_ms = self._max_ms = 0

    def copied(self, duration_ms: int) -> None:
        """A turn copied something and took so long."""
        self._turns += 1
        self._sum_ms += duration_ms
        self._max_ms = max(self._max_ms, duration_ms)

    def read(self, now_ms: int, wall_ms: int, live_files_max: int = 0, pause_ms_max: int = 0) -> CopyTimes:
        """What was counted; counting begins again."""
        interval_ms, counted = max(1, now_ms - self._since_ms), (self._turns, self._sum_ms, self._max_ms)
        self._begin(now_ms)
        return CopyTimes(self._fetcher_id, wall_ms, interval_ms, *counted, live_files_max, pause_ms_max)


def fetch_metrics(
    published: Iterable[CopyTimes | None], wall_ms: int, thread_fetch: ThreadFetch | None = None
) -> list[Metric]:
    """The fetchers' times as metrics; one that has published nothing for `cadence.COPY_TIMES_STALE` is left out."""
    fresh = [
        times
        for times in published
        if times is not None and wall_ms - times.published_ms <= cadence.COPY_TIMES_STALE.ms
    ]
    rows: list[tuple[str, str, dict[Labels, float]]] = [
        (
            "copiespersec",
            "Turns of a fetch session that copied something, in the last seconds.",
            {_labels(t): round(1_000 * t.turns / t.interval_ms, 3) for t in fresh},
        ),
        (
            "copytimems",
            "How long such a turn took on average.",
            {_labels(t): round(t.sum_ms / t.turns, 3) if t.turns else 0 for t in fresh},
        ),
        ("copytimemsmax", "How long the longest one took.", {_labels(t): t.max_ms for t in fresh}),
        ("livefilesmax", "Most live files of a replica that it copies.", {_labels(t): t.live_files_max for t in fresh}),
        ("copypausemsmax", "How long copies wait for upkeep at most.", {_labels(t): t.pause_ms_max for t in fresh}),
        (
            "inthreads",
            "1 while the broker fetches in threads of its process, since its queries cannot run on Spark.",
            {(): int(thread_fetch is not None)},
        ),
    ]
    return [Metric(f"stratalog_server_fetchsession_{name}", GAUGE, doc, values) for name, doc, values in rows]


def _labels(times: CopyTimes) -> Labels:
    return (("share", str(times.fetcher_id)),)
