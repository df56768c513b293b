"""How long a broker's fetch sessions take to copy: told by the sessions, which run elsewhere, through its root. Pure.

One register for each share of a follower's partitions, written by whichever session is at work; it says what happened
since it was last written. Nothing is written unless metrics are served (`stratalog.metrics.port`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import astuple, dataclass

from stratalog.replication.metrics import GAUGE, Labels, Metric
from stratalog.replication.progress.progress import progress_prefix

INTERVAL_MS = 5_000
STALE_MS = 3 * INTERVAL_MS
"""What was told longer ago is of a session that is gone."""


def fetch_metrics_prefix(broker_epoch: int) -> str:
    """Where the registers of a registration are, below the broker's root."""
    return f"{progress_prefix(broker_epoch)}metrics-"


@dataclass(frozen=True, slots=True)
class CopyTimes:
    """Turns in which a share copied something: how many, and how long they took in all and at most.

    told_ms         wall clock, when this was told
    interval_ms     since the last time
    live_files_max  the most live files that the own log of a followed replica has
    pause_ms_max    how long the next copy waits for upkeep, of the replica that waits longest
    """

    share: int
    told_ms: int
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
        """None for what is none, as of another release."""
        try:
            return CopyTimes(*map(int, json.loads(data)))
        except (ValueError, TypeError):
            return None


class CopyClock:
    """A session's own count since it last told."""

    def __init__(self, share: int, now_ms: int) -> None:
        self._share = share
        self._begin(now_ms)

    def _begin(self, now_ms: int) -> None:
        self._since_ms = now_ms
        self._turns = self._sum_ms = self._max_ms = 0

    def copied(self, duration_ms: int) -> None:
        """A turn copied something and took so long."""
        self._turns += 1
        self._sum_ms += duration_ms
        self._max_ms = max(self._max_ms, duration_ms)

    def tell(self, now_ms: int, wall_ms: int, live_files_max: int = 0, pause_ms_max: int = 0) -> CopyTimes:
        """What there is to tell; counting begins anew."""
        interval_ms, counted = max(1, now_ms - self._since_ms), (self._turns, self._sum_ms, self._max_ms)
        told = CopyTimes(self._share, wall_ms, interval_ms, *counted, live_files_max, pause_ms_max)
        self._begin(now_ms)
        return told


def fetch_metrics(told: Iterable[CopyTimes | None], wall_ms: int) -> list[Metric]:
    """The shares' times as metrics; a share that has said nothing for `STALE_MS` is left out."""
    fresh = [times for times in told if times is not None and wall_ms - times.told_ms <= STALE_MS]
    rows: list[tuple[str, str, dict[Labels, float]]] = [
        (
            "CopiesPerSec",
            "Turns of a fetch session that copied something, in the last seconds.",
            {_labels(t): round(1_000 * t.turns / t.interval_ms, 3) for t in fresh},
        ),
        (
            "CopyTimeMs",
            "How long such a turn took on average.",
            {_labels(t): round(t.sum_ms / t.turns, 3) if t.turns else 0 for t in fresh},
        ),
        ("CopyTimeMsMax", "How long the longest one took.", {_labels(t): t.max_ms for t in fresh}),
        ("LiveFilesMax", "Most live files of a replica that it copies.", {_labels(t): t.live_files_max for t in fresh}),
        ("CopyPauseMsMax", "How long copies wait for upkeep at most.", {_labels(t): t.pause_ms_max for t in fresh}),
    ]
    return [Metric(f"stratalog_server_FetchSession_{name}", GAUGE, doc, values) for name, doc, values in rows]


def _labels(times: CopyTimes) -> Labels:
    return (("share", str(times.share)),)
