"""Which objects of a table are named, once everything that is due in some days has been cleaned up.

I/O: through the log's table. `make bucket-storm` and the simulation judge by it what kills leave behind.
"""

from __future__ import annotations

from stratalog.storage.cadence import DAY_MS, HOUR_MS
from stratalog.storage.delta.removed import is_list, listed_files, producers_path
from stratalog.storage.log.partition_log import PartitionLog
from stratalog.storage.log.state import live_paths
from stratalog.storage.topic_config import LogConfig
from stratalog.storage.upkeep.chore import UpkeepLimits
from stratalog.storage.upkeep.upkeep import Upkeep

LATER_MS = 9 * DAY_MS
"""The time after which nothing is within its grace: the vacuum keeps unnamed files for a week, and a day."""
KEEPS_ALL = LogConfig.from_properties({"retention.ms": "-1", "cleanup.policy": "delete"})
LIMITS = UpkeepLimits(checkpoint_commits=20, keep_commits=10)
QUIET_STEPS, STEPS_MAX = 30, 600
"""Steps without work after which none is left: more than a day, the vacuum's interval."""


def clean_later(log: PartitionLog, now_ms: int) -> None:
    """Have the product do all upkeep of a log that is due nine days after `now_ms`, an hour a step. AssertionError when
    it finds no end."""
    write, is_written = log.checkpoint()  # clean-up deletes commits below one
    write()
    is_written()
    upkeep, quiet = Upkeep(log, LIMITS), 0
    upkeep.step(now_ms, log.log_end_offset, log.leader_epoch)  # the vacuum waits for its next interval
    for step in range(STEPS_MAX):
        done = upkeep.step(now_ms + LATER_MS + step * HOUR_MS, log.log_end_offset, log.leader_epoch)
        quiet = 0 if done is not None else quiet + 1
        if quiet == QUIET_STEPS:
            return
    raise AssertionError(f"{log.name}: {STEPS_MAX} steps of upkeep were not enough")


def named_by(log: PartitionLog) -> set[str]:
    """The files and objects beside the commits that a log names: its files, what waits for deletion, and the whole
    producer state."""
    state = log.state
    listed = {
        path
        for each in state.removed
        if is_list(each)
        for path, _ in listed_files(log.table.read_object(each), f"{log.name}/{each}")
    }
    return live_paths(state.files) | set(state.removed) | listed | {producers_path(state.producers_number)}
