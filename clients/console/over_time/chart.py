"""A line in time as a picture: coordinates, ticks and words for a template. Pure.

The page has the numbers as a table, so the picture has a title and a description, and no other text for those who do
not see it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from stratalog.clients.console.times import iso_time

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 900, 200, 76, 20, 10, 24
"""Of the picture, and how far the plot is from each of its edges."""
TICKS, TIMES = 4, 6
"""About how many labels the axes have."""
HOUR_MS, DAY_MS = 3_600_000, 86_400_000

Point = tuple[int, float | None]
"""A time in ms with a value; None: not known."""


@dataclass(frozen=True, slots=True)
class Tick:
    """A label at a place of its axis."""

    at: float
    value: float
    text: str


@dataclass(frozen=True, slots=True)
class Chart:
    """What is drawn.

    paths    of SVG, one for each run of known values
    levels   of the vertical axis; times of the horizontal one, UTC
    largest, newest
             for the description; None: no value is known
    """

    paths: list[str]
    levels: list[Tick]
    times: list[Tick]
    largest: float | None
    newest: float | None
    width: int = WIDTH
    height: int = HEIGHT
    left: int = LEFT
    right: int = WIDTH - RIGHT


def line_chart(points: Sequence[Point], *, is_binary: bool = False, gap_ms: int = 0) -> Chart:
    """The picture of values from 0 on.

    is_binary  levels are round in powers of 2, as bytes are shown
    gap_ms     the line goes on over times without a value that are not longer

    >>> line_chart([(0, 0.0), (1_000, None), (2_000, 4.0), (3_000, 2.0)]).paths
    ['M76.0,176.0h0.1', 'M612.0,10.0L880.0,93.0']
    """
    known = [value for _, value in points if value is not None]
    top = largest_level(max(known, default=0.0), is_binary=is_binary)
    first_ms, last_ms = (points[0][0], points[-1][0]) if points else (0, 1)
    scale_x = (WIDTH - LEFT - RIGHT) / max(1, last_ms - first_ms)
    scale_y = (HEIGHT - TOP - BOTTOM) / top

    def place(time_ms: int, value: float) -> str:
        return f"{LEFT + (time_ms - first_ms) * scale_x:.1f},{HEIGHT - BOTTOM - value * scale_y:.1f}"

    runs: list[list[str]] = []
    drawn_ms, is_broken = first_ms, True
    for time_ms, value in points:
        if value is None:
            is_broken |= time_ms - drawn_ms > gap_ms
            continue
        if is_broken:
            runs.append([])
        runs[-1].append(place(time_ms, value))
        drawn_ms, is_broken = time_ms, False
    paths = ["M" + ("L".join(run) if len(run) > 1 else f"{run[0]}h0.1") for run in runs]
    levels = [
        Tick(HEIGHT - BOTTOM - value * scale_y, value, "")
        for value in (top * number / TICKS for number in range(TICKS + 1))
    ]
    newest = known[-1] if known else None
    return Chart(paths, levels, _times(first_ms, last_ms, scale_x), max(known, default=None), newest)


def largest_level(largest: float, *, is_binary: bool) -> float:
    """The upper end of an axis: a round number that is not below the largest value.

    >>> [largest_level(each, is_binary=False) for each in (0, 3.1, 41, 90)], largest_level(1_500, is_binary=True)
    ([1.0, 4.0, 80.0, 100.0], 2048.0)
    """
    if largest <= 0:
        return 1.0
    if is_binary:
        return float(2.0 ** math.ceil(math.log2(largest)))
    unit = 10.0 ** math.floor(math.log10(largest))
    return float(next(unit * each for each in (1, 2, 4, 8, 10) if unit * each >= largest))


def _times(first_ms: int, last_ms: int, scale_x: float) -> list[Tick]:
    """Labels at round times."""
    length_ms = last_ms - first_ms
    step_ms = next(
        (each for each in (600_000, HOUR_MS, 4 * HOUR_MS, DAY_MS) if length_ms / each <= TIMES + 1), 7 * DAY_MS
    )
    found = []
    for time_ms in range(-(-first_ms // step_ms) * step_ms, last_ms + 1, step_ms):
        text = iso_time(time_ms)
        shown = text[5:10] if step_ms >= DAY_MS else text[11:16]
        found.append(Tick(LEFT + (time_ms - first_ms) * scale_x, time_ms, shown))
    return found
