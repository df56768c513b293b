"""The charts of docs/BENCHMARKS.md. I/O: writes SVG and PNG files with matplotlib, without a display."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes

from tests.lab.bench.lab import Curve, Moment, Window
from tests.lab.bench.measures import Row

OURS, PEER, WORSE = "#4c8bb8", "#e0933a", "#b8352c"


def draw_ratios(path: Path, rows: Sequence[Row]) -> None:
    """One bar a row: how many times better stratalog is, on a logarithmic axis; red where the peer wins."""
    mpl.use("Agg")
    import matplotlib.pyplot as plt

    compared = [(row, row.ratio) for row in reversed(rows) if row.ratio]
    figure, axes = plt.subplots(figsize=(10, 0.3 * len(compared) + 1.2), layout="constrained")
    names = [f"{row.bench} {row.of}".strip() for row, _ in compared]
    ratios = [ratio or 1.0 for _, ratio in compared]
    axes.barh(names, [r - 1 for r in ratios], left=1, color=[OURS if r >= 1 else WORSE for r in ratios])
    for number, (row, ratio) in enumerate(compared):
        label = f" {ratio:.2g} × " + ("" if row.peer_is == "Kafka" else f"({row.peer_is}) ")
        axes.annotate(
            label, (ratio or 1.0, number), va="center", ha="left" if (ratio or 1) >= 1 else "right", fontsize=8
        )
    axes.axvline(1, color="black", linewidth=1)
    axes.set_xscale("log")
    axes.margins(x=0.15, y=0.01)
    axes.set_xlabel("how many times better than Kafka, medians (left of 1: Kafka is better)")
    axes.tick_params(axis="y", labelsize=8)
    _save(figure, path)


def draw_latency(path: Path, window: Window) -> None:
    """Every request of a window, ours above and the peer's below; hand-overs between fetch sessions as lines."""
    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, (upper, lower) = plt.subplots(2, 1, figsize=(11, 6.5), layout="constrained", sharex=True, sharey=True)
    _draw_requests(upper, window.ours, OURS)
    _draw_requests(lower, window.peer, PEER)
    for broker_id, times in window.hand_overs_s.items():
        for at_s in times:
            upper.axvline(at_s, color="black", linestyle=("--", ":", "-.")[broker_id % 3], linewidth=0.7, alpha=0.6)
    count = sum(len(times) for times in window.hand_overs_s.values())
    upper.set_title(
        f"stratalog; each line is a hand-over between two fetch sessions of a follower ({count})", loc="left"
    )
    lower.set_title("Apache Kafka", loc="left")
    lower.set_xlabel("time at which the request was due, from the start of the window [s]")
    _save(figure, path)


def draw_curves(path: Path, at: str, curves: Sequence[Curve]) -> None:
    """Curves over the same axis, one above the other, each from zero on."""
    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, found = plt.subplots(
        len(curves), 1, figsize=(10, 1.2 + 1.8 * len(curves)), layout="constrained", sharex=True, squeeze=False
    )
    for axes, curve in zip(found[:, 0], curves, strict=True):
        axes.plot(curve.at, curve.values, color=OURS, linewidth=1)
        axes.set_ylim(bottom=0)
        axes.set_title(curve.title, loc="left", fontsize=9)
        axes.margins(x=0.01)
    found[-1, 0].set_xlabel(at)
    _save(figure, path)


def _draw_requests(axes: Axes, moments: Sequence[Moment], colour: str) -> None:
    # As pixels: thousands of dots would make the file larger than the documentation.
    due_s, latencies = [moment.due_s for moment in moments], [moment.latency_ms for moment in moments]
    axes.scatter(due_s, latencies, s=4, alpha=0.5, color=colour, linewidths=0, rasterized=True)
    axes.set_yscale("log")
    axes.set_ylabel("latency, acks=all [ms]")
    axes.margins(x=0.01)


def _save(figure: mpl.figure.Figure, path: Path) -> None:
    """The same content gives the same file."""
    import matplotlib.pyplot as plt

    path.parent.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context({"svg.hashsalt": "stratalog"}):
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None, dpi=110)
    plt.close(figure)
