"""The demo's chart: hits per minute of the web log, and the closed loop's latency with the failover marked.

I/O: writes one PNG with matplotlib, without a display.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from stratalog.jobs.demo.log import Hit
from stratalog.jobs.demo.verdict import Ack, percentile

if TYPE_CHECKING:
    from matplotlib.axes import Axes

STATUS_COLOURS = {"2xx": "#4c8bb8", "3xx": "#9cc3dc", "4xx": "#e0933a", "5xx": "#b8352c"}
BAR_WIDTH_DAYS = 45 / (24 * 60)
SLOW_MS = 1000
IN_DATA_AND_AXES = ("data", "axes fraction")
"""Coordinates of notes: along the data, at a share of the height."""


@dataclass(frozen=True, slots=True)
class Timeline:
    """Times of events, ms on the demo's clock; `feed_minute`: the minute of the log that was fed at the kill."""

    start_ms: float
    kill_ms: float
    failover_ms: float | None
    restart_ms: float
    killed: int
    feed_minute: datetime


def draw_chart(path: Path, hits: Mapping[Hit, int], acks: Sequence[Ack], timeline: Timeline) -> None:
    """Write the PNG to `path`."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, (upper, lower) = plt.subplots(2, 1, figsize=(11, 7.5), layout="constrained")
    _draw_hits(upper, hits, timeline)
    _draw_latency(lower, acks, timeline)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def hits_by_class(hits: Mapping[Hit, int]) -> dict[str, Counter[datetime]]:
    """Hits per minute for each class of status codes, `2xx` first."""
    classes: dict[str, Counter[datetime]] = {name: Counter() for name in STATUS_COLOURS}
    for (minute, status), count in hits.items():
        classes.setdefault(f"{status // 100}xx", Counter())[minute] += count
    return classes


def _draw_hits(axes: Axes, hits: Mapping[Hit, int], timeline: Timeline) -> None:
    minutes = sorted({hit.minute for hit in hits})
    days = [_days(minute) for minute in minutes]
    fed_day = _days(timeline.feed_minute)
    axes.xaxis_date(UTC)
    below = [0] * len(minutes)
    for name, counts in hits_by_class(hits).items():
        heights = [counts[minute] for minute in minutes]
        if any(heights):
            axes.bar(days, heights, BAR_WIDTH_DAYS, bottom=below, color=STATUS_COLOURS.get(name), label=name)
        below = [low + height for low, height in zip(below, heights, strict=True)]
    axes.axvline(fed_day, color="black", linestyle="--", linewidth=1)
    text = f" broker {timeline.killed} was killed here"
    axes.annotate(text, (fed_day, 1.0), xycoords=IN_DATA_AND_AXES, va="bottom", fontsize=9)
    axes.set_title("Hits per minute, read by two streaming queries of a group", loc="left", pad=18)
    axes.set_ylabel("hits per minute")
    axes.set_xlabel("time of the hit, UTC (the log holds one minute of every hour)")
    axes.margins(x=0.01)
    axes.legend(title="status", loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)


def _days(at: datetime) -> float:
    """Matplotlib's dates: days since 1970, UTC."""
    return at.timestamp() / 86_400


def _draw_latency(axes: Axes, acks: Sequence[Ack], timeline: Timeline) -> None:
    def seconds(at_ms: float) -> float:
        return (at_ms - timeline.start_ms) / 1000

    times, latencies = [seconds(ack.acked_ms) for ack in acks], [ack.latency_ms for ack in acks]
    axes.scatter(times, latencies, s=5, alpha=0.5, color="#4c8bb8", linewidths=0)
    slow = [ack for ack in acks if ack.latency_ms > SLOW_MS]
    times, latencies = [seconds(ack.acked_ms) for ack in slow], [ack.latency_ms for ack in slow]
    axes.scatter(times, latencies, s=25, color="#b8352c", zorder=3)
    axes.set_yscale("log")
    _draw_medians(axes, acks, timeline.start_ms)
    if timeline.failover_ms is not None:
        end_ms = timeline.kill_ms + timeline.failover_ms
        axes.axvspan(seconds(timeline.kill_ms), seconds(end_ms), color="#b8352c", alpha=0.12, linewidth=0)
        _mark(axes, seconds(end_ms), f"failed over after {timeline.failover_ms / 1000:.1f} s", "left")
    _mark(axes, seconds(timeline.kill_ms), f"broker {timeline.killed} killed", "right")
    _mark(axes, 0.0, "queries start", "left", height=0.85)
    _mark(axes, seconds(timeline.restart_ms), "restarted", "left", height=0.85)
    axes.set_title("Time to the acknowledgement by all in-sync replicas, one record at a time", loc="left")
    axes.set_ylabel("latency [ms]")
    axes.set_xlabel("time since the streaming queries were started [s]")
    axes.margins(x=0.01)


def _draw_medians(axes: Axes, acks: Sequence[Ack], start_ms: float) -> None:
    """One line while the closed loop was alone, one since the queries began."""
    alone, beside = [a for a in acks if a.acked_ms <= start_ms], [a for a in acks if a.acked_ms > start_ms]
    for part, side in ((alone, "left"), (beside, "right")):
        if part:
            median = percentile([ack.latency_ms for ack in part], 50)
            first, last = ((at - start_ms) / 1000 for at in (part[0].acked_ms, part[-1].acked_ms))
            axes.hlines(median, first, last, color="black", linewidth=1.2, zorder=2)
            axes.annotate(
                f"median {median:.1f} ms", (last, median), ha=side, va="bottom", fontsize=9, zorder=4,
                bbox={"facecolor": "white", "alpha": 0.7, "edgecolor": "none", "pad": 1},
            )  # fmt: skip


def _mark(axes: Axes, at: float, text: str, side: str, height: float = 0.95) -> None:
    axes.axvline(at, color="black", linestyle="--", linewidth=1)
    axes.annotate(f" {text} ", (at, height), xycoords=IN_DATA_AND_AXES, ha=side, va="top", fontsize=9)
