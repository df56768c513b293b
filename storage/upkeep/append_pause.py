"""How long an append waits for the upkeep of its log: back-pressure, so that what upkeep has to do stays bounded. Pure.

Where upkeep gets too little of the machine, a log that took appends as fast as they come would grow slower with each:
more files to merge, more commits to clean up, a longer fold. So from some backlog on each append is held back a
little, the more the longer the backlog is, which leaves the machine to upkeep; what comes meanwhile goes together into
the next commit. From a larger backlog on one commit is made each second, and no append fails for it. RocksDB's write
stalls are like it (`level0_slowdown_writes_trigger`, `level0_stop_writes_trigger`); they stop altogether, but here
upkeep that cannot go on, as beside a damaged file, must not keep a log from taking records. Kafka needs nothing alike.
"""

from __future__ import annotations

from stratalog.storage.log.segments import LogSegment

SLOWED_MS_MAX = 100
"""The longest pause of a log that is slowed …"""
STOPPED_MS = 1_000
"""… and the pause of one that is stopped, which no pause exceeds: far less than clients wait for an answer, and than a
follower may lag."""


def append_pause_ms(overdue_count: int, slowdown_count: int, stop_count: int, file_count: int = 1) -> int:
    """How long the next append has to wait after one that added `file_count` files; 0: not at all.

    overdue_count   how many files or commits upkeep is behind with
    slowdown_count  above so many each added file costs a pause, up to `SLOWED_MS_MAX` at …
    stop_count      … so many, from where on the pause is `STOPPED_MS`

    >>> [append_pause_ms(overdue, 5_000, 10_000) for overdue in (5_000, 5_001, 7_500, 10_000)]
    [0, 1, 50, 1000]
    >>> append_pause_ms(7_500, 5_000, 10_000, file_count=3)
    150
    """
    if overdue_count >= stop_count:
        return STOPPED_MS
    if overdue_count <= slowdown_count:
        return 0
    share = (overdue_count - slowdown_count) / (stop_count - slowdown_count)
    return min(max(1, round(SLOWED_MS_MAX * share)) * file_count, STOPPED_MS)


def excess_files(segment: LogSegment, merged_bytes_max: int) -> int:
    """How many files a segment has beyond those that merging leaves of it, at most three of an epoch and four for each
    `merged_bytes_max` bytes: a merge makes files of up to so many bytes, and spares those that are half full.

    Of 1,000 files under one epoch with 64 MiB together, 989 are beyond 3 + 8 of 32 MiB. 0 where nothing is merged.
    """
    if merged_bytes_max <= 0:
        return 0
    settled = 3 * len(segment.epochs) + 4 * segment.size_bytes // merged_bytes_max
    return max(0, segment.file_count - settled)
