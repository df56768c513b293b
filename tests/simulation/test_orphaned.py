"""Which commits the invariant `CommitsFollow` takes for orphaned."""

from __future__ import annotations

import pytest

from stratalog.storage.delta.commit_race import StoredCommit
from stratalog.storage.delta.snapshot import TableFold
from stratalog.storage.delta.table import Commit
from tests.simulation.stores import is_orphaned
from tests.storage.memory_table import MemoryFiles


def files_of(commits: dict[int, tuple[str, str | None]], checkpoint: int) -> MemoryFiles:
    """A table's files. `commits`: by version the id of the commit and of the one before it."""
    files = MemoryFiles()
    for version, (commit_id, previous_id) in commits.items():
        files.commits[version] = StoredCommit(Commit(commit_id, "WRITE", 0), previous_id)
    if checkpoint >= 0:
        files.checkpoints[checkpoint] = TableFold(None, "t-0").snapshot()
    return files


LOG = {4: ("d", "c"), 5: ("e", "d"), 6: ("f", "e"), 7: ("g", "f")}


@pytest.mark.parametrize(
    ("commits", "checkpoint", "expected"),
    [
        pytest.param(LOG, 5, False, id="it follows the checkpoint"),
        pytest.param({3: ("late", "b"), **LOG}, 5, False, id="below the checkpoint a late request was applied"),
        pytest.param({**LOG, 4: ("late", "c")}, 5, False, id="right below the checkpoint"),
        pytest.param({**LOG, 6: ("other", "e")}, 5, True, id="it follows another commit than the one that stands"),
        pytest.param({**LOG, 5: ("other", "d")}, 5, True, id="the one at the checkpoint is another one"),
        pytest.param({7: ("g", "f")}, 5, True, id="the one before it is gone, and is above the checkpoint"),
        pytest.param({7: ("g", "f")}, 6, False, id="the one before it is the checkpoint's, and is gone"),
        pytest.param({7: ("g", "f")}, 9, True, id="it stands alone below the checkpoint"),
        pytest.param(LOG, -1, True, id="neither a checkpoint nor version 0 is below it"),
    ],
)
def test_an_orphaned_commit_is_not_led_to(
    commits: dict[int, tuple[str, str | None]], checkpoint: int, expected: bool
) -> None:
    assert is_orphaned(files_of(commits, checkpoint), 7, "g") is expected
