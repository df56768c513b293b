"""A live data file that is gone: the work that needs it names the file, instead of trying again for ever."""

from __future__ import annotations

import pytest

from stratalog.storage.errors import DamagedFileError
from stratalog.storage.log.partition_log import PartitionLog
from stratalog.storage.upkeep.chore import UpkeepLimits, UpkeepView, Work
from stratalog.storage.upkeep.erase import Erase, ErasePredicate
from stratalog.storage.upkeep.erasure import Erasure
from stratalog.storage.upkeep.upkeep import Upkeep
from tests.storage.keyed import clean, compacted, keyed
from tests.storage.logs import Replicas, append, write


def without(log: PartitionLog, number: int) -> str:
    """Remove a live file from storage; its path."""
    path = log.files[number].path
    log.table.delete_objects([path])
    return path


@pytest.mark.parametrize("number", [0, 3])
def test_the_cleaner_names_it(replicas: Replicas, number: int) -> None:
    log = replicas.leader(config=compacted())
    for records in ("a=1 b=1", "a=2 c=1", "d=1 a=3", "b=2 e=1", "c f=1", "g=1 g=2", "a=4 h=1"):
        append(log, keyed(records), epoch=0)
    path = without(log, number)
    with pytest.raises(DamagedFileError) as found:
        clean(log)
    assert found.value.path == path


def test_a_merge_names_it(replicas: Replicas) -> None:
    log = replicas.leader()
    for value in "abcdefgh":
        write(log, value)
    path = without(log, 2)
    upkeep = Upkeep(log, UpkeepLimits(merge_files_min=4, merge_spread_files=0))
    with pytest.raises(DamagedFileError) as found:
        upkeep.step(1_000_000, log.log_end_offset, 0)
    assert found.value.path == path


def test_an_erasure_names_it(replicas: Replicas) -> None:
    log = replicas.leader()
    for value in "abcd":
        write(log, value)
    path = without(log, 1)
    chore = Erasure(lambda: [Erase(1, log.log_end_offset, ErasePredicate.parse({"value": {"in": ["c"]}}))])
    work = chore.begin(UpkeepView(log, 1_000, log.log_end_offset, 0))
    assert isinstance(work, Work)
    result = work.run()
    with pytest.raises(DamagedFileError) as found:
        work.finish(result)
    assert found.value.path == path


def test_a_file_that_another_session_replaced_is_none(replicas: Replicas) -> None:
    log = replicas.leader()
    for value in "abcdefgh":
        write(log, value)
    view = UpkeepView(log, 1_000_000, log.log_end_offset, 0)
    files = list(log.files)
    other = Upkeep(replicas.log(), UpkeepLimits(merge_files_min=4, merge_spread_files=0))
    for _ in range(4):
        other.step(1_000_000, log.log_end_offset, 0)
    log.table.delete_objects([entry.path for entry in files])
    view.check_there(files)
    assert log.files != files
