"""A separate process that compacts one log until it is clean, and prints time and memory.

`python -m tests.storage.cleaning_process <root>` prints `{"seconds": …, "peak_mib": …, "before_mib": …}`.
"""

from __future__ import annotations

import json
import re
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from stratalog.storage.clock import RandomIds, SystemClock
from stratalog.storage.delta.delta_table import DeltaLogTable
from stratalog.storage.log.partition_log import PartitionLog
from stratalog.storage.objects.opened import open_store
from stratalog.storage.topic_config import LogConfig
from stratalog.storage.upkeep.chore import UpkeepLimits, UpkeepWork
from stratalog.storage.upkeep.upkeep import Upkeep

CONFIG = LogConfig.from_properties(
    {
        "cleanup.policy": "compact",
        "segment.bytes": str(64 << 20),
        "file.delete.delay.ms": "0",
        "stratalog.snapshot.retention.ms": "0",
    }
)
LIMITS = UpkeepLimits(checkpoint_commits=2)
IDLE_S = 2.0


def open_log(root: Path) -> PartitionLog:
    table = DeltaLogTable(open_store(str(root), create=True), "t-0", RandomIds())
    return PartitionLog(table, CONFIG, SystemClock(), RandomIds())


def peak_mib() -> float:
    """The peak of this process's resident memory. Not ru_maxrss, which begins with the parent's."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text(encoding="utf-8"))
    assert found is not None
    return int(found[1]) / 1024


def main(root: Path) -> None:
    log, clock = open_log(root), SystemClock()
    before, started, cleaned_s = peak_mib(), time.monotonic(), 0.0
    with ThreadPoolExecutor(1) as executor:
        upkeep = Upkeep(log, LIMITS, executor)
        idle_since = started
        while time.monotonic() - idle_since < IDLE_S:
            done = upkeep.step(clock.wall_ms(), log.log_end_offset, log.leader_epoch)
            if done is not None or upkeep.rest_ms(clock.wall_ms()) == 0:
                idle_since = time.monotonic()
            if done is not None and done.work == UpkeepWork.COMPACTION:
                cleaned_s = time.monotonic() - started
            time.sleep(0.001)
    result = {"seconds": round(cleaned_s, 1), "peak_mib": round(peak_mib()), "before_mib": round(before)}
    print(json.dumps(result))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
