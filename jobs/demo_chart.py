"""The demo's chart: hits per minute of the web log, and the closed loop's latency with the failover marked.

I/O: writes one PNG with matplotlib, without a display.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes

from jobs.demo_log import Hit
from jobs.demo_verdict import Ack, percentile

STATUS_COLOURS = {"2xx": "#4c8bb8", "3xx": "#9cc3dc", "4xx": "#e0933a", "5xx": "#b8352c"}
BAR_WIDTH = timedelta(minutes=45)


@dataclass(frozen=True, slots=True)
class Timeline:
    """When things happened, ms on the closed loop's clock; `feed_minute`: the minute being fed at the kill."""

    start_ms: float
    kill_ms: float
    failover_ms: float | None
    restart_ms: float
    killed: int
    feed_minute: datetime


def draw_chart(path: Path, hits: Mapping[Hit, int], acks: Sequence[Ack], timeline: Timeline) -> None:
    """Write the PNG to `path`."""
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
    below = [0] * len(minutes)
    for name, counts in hits_by_class(hits).items():
        heights = [counts[minute] for minute in minutes]
        if any(heights):
            axes.bar(minutes, heights, BAR_WIDTH, bottom=below, color=STATUS_COLOURS.get(name), label=name)  # type: ignore[arg-type]
        below = [low + height for low, height in zip(below, heights, strict=True)]
    axes.axvline(timeline.feed_minute, color="black", linestyle="--", linewidth=1)  # type: ignore[arg-type]
    axes.annotate(
        f" broker {timeline.killed} was killed here",
        (timeline.feed_minute, 1.0),  # type: ignore[arg-type]
        xycoords=("data", "axes fraction"),
        va="bottom",
        fontsize=9,
    )
    axes.set_title("Hits per minute, counted by a streaming query on the topic", loc="left", pad=18)
    axes.set_ylabel("hits per minute")
    axes.set_xlabel("time of the hit, UTC (the log holds one minute of every hour)")
    axes.margins(x=0.01)
    axes.legend(title="status", loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)


def _draw_latency(axes: Axes, acks: Sequence[Ack], timeline: Timeline) -> None:
    def seconds(at_ms: float) -> float:
        return (at_ms - timeline.start_ms) / 1000

    latencies = [ack.latency_ms for ack in acks]
    axes.scatter([seconds(ack.acked_ms) for ack in acks], latencies, s=5, alpha=0.5, color="#4c8bb8", linewidths=0)
    axes.set_yscale("log")
    median = percentile(latencies, 50)
    axes.axhline(median, color="#2f5f80", linewidth=1)
    axes.annotate(
        f"median {median:.1f} ms", (1.0, median), xycoords=("axes fraction", "data"), va="center", fontsize=9
    )
    if timeline.failover_ms is not None:
        end_ms = timeline.kill_ms + timeline.failover_ms
        axes.axvspan(seconds(timeline.kill_ms), seconds(end_ms), color="#b8352c", alpha=0.12, linewidth=0)
        _mark(axes, seconds(end_ms), f"failed over after {timeline.failover_ms / 1000:.1f} s", "left")
    _mark(axes, seconds(timeline.kill_ms), f"broker {timeline.killed} killed", "right")
    _mark(axes, seconds(timeline.restart_ms), "restarted", "left", height=0.85)
    axes.set_title("Time to the acknowledgement by all in-sync replicas, one record at a time", loc="left")
    axes.set_ylabel("latency [ms]")
    axes.set_xlabel("time since the feed began [s]")
    axes.margins(x=0.01)


def _mark(axes: Axes, at: float, text: str, side: str, height: float = 0.95) -> None:
    axes.axvline(at, color="black", linestyle="--", linewidth=1)
    axes.annotate(f" {text} ", (at, height), xycoords=("data", "axes fraction"), ha=side, va="top", fontsize=9)
