"""A table whose live files are all in one of our checkpoints: for tests with other Delta readers."""

from __future__ import annotations

from pathlib import Path

from stratalog.storage.upkeep.chore import UpkeepLimits
from stratalog.storage.upkeep.upkeep import Upkeep
from tests.storage.logs import Replicas, append, batch, idempotent

ODD_TIMES = (None, -1, 253_402_300_800_000)
"""Absent, before 1970, and after the year 9999, for which Delta's statistics have no text."""


def checkpointed_log(root: Path) -> tuple[str, list[str]]:
    """The table's directory and its values in order. No commit is left below the newest checkpoint: readers need it."""
    log = Replicas.new(root).leader()
    for time in ODD_TIMES:
        append(log, batch(["odd"], timestamps=[time]))
    for sequence in range(40):
        append(log, idempotent(f"{sequence % 10}", sequence))
    upkeep = Upkeep(
        log, UpkeepLimits(checkpoint_commits=10, keep_commits=0, keep_ms=0, merge_files_min=16, merge_spread_files=0)
    )
    while upkeep.step(10_000, 30, 0) is not None:
        pass
    assert len(log.state.removed) > 0, "there are tombstones"
    assert len(log.files) > 1
    log.table.checkpoint()
    assert list(log.table.clean_log(log.version, 1 << 60))
    append(log, batch("xy"))
    return f"{root}/1/t-0", ["odd"] * 3 + [str(i % 10) for i in range(40)] + ["x", "y"]
