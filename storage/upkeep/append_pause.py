"""Back-pressure: the pause of an append while upkeep of its log is overdue. Pure.

Where upkeep has too little of the machine, a log that accepts appends without limit becomes slower with each: more
files to merge, more commits to clean up, a longer fold. So above a first backlog each append is delayed, the longer the
larger the backlog, and waiting batches share the next commit. From a second backlog on one commit a second is made;
no append fails for it. RocksDB's write stalls are similar (`level0_slowdown_writes_trigger`,
`level0_stop_writes_trigger`) but stop writes: here upkeep may be unable to continue, as beside a damaged file, and the
log must still accept records. Kafka has no counterpart.
"""

from __future__ import annotations

from stratalog.storage import cadence
from stratalog.storage.log.segments import LogSegment


def append_pause_ms(overdue_count: int, slowdown_count: int, stop_count: int, file_count: int = 1) -> int:
    """The pause of the next append after one that added `file_count` files; 0: none.

    overdue_count   files or commits of overdue work
    slowdown_count  above it each added file costs a pause, which grows with the backlog to `cadence.APPENDS_SLOWED`
    stop_count      from here on the pause is `cadence.APPENDS_STOPPED`

    >>> [append_pause_ms(overdue, 5_000, 10_000) for overdue in (5_000, 5_001, 7_500, 10_000)]
    [0, 1, 50, 1000]
    >>> append_pause_ms(7_500, 5_000, 10_000, file_count=3)
    150
    """
    if overdue_count >= stop_count:
        return cadence.APPENDS_STOPPED.ms
    if overdue_count <= slowdown_count:
        return 0
    share = (overdue_count - slowdown_count) / (stop_count - slowdown_count)
    return min(max(1, round(cadence.APPENDS_SLOWED.ms * share)) * file_count, cadence.APPENDS_STOPPED.ms)


def excess_files(segment: LogSegment, merged_bytes_max: int) -> int:
    """The files of a segment beyond those that merging leaves: at most three an epoch, and four for each
    `merged_bytes_max` bytes, since a merge makes files of up to so many bytes and spares those that are half full.

    Of 1,000 files under one epoch with 64 MiB together, 989 are beyond 3 + 8, with 32 MiB a file. 0 if merging is off.
    """
    if merged_bytes_max <= 0:
        return 0
    kept = 3 * len(segment.epochs) + 4 * segment.size_bytes // merged_bytes_max
    return max(0, segment.file_count - kept)
