"""A look-up that began in a topic's table does not go on in that of the next topic of the name."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from stratalog.storage.errors import UnknownTopicOrPartitionError
from stratalog.storage.log.partition_log import PartitionLog
from stratalog.storage.log.reader import LogReader
from tests.storage.logs import NO_SNAPSHOTS, Replicas, started, write

LOOK_UPS: dict[str, Callable[[LogReader], object]] = {
    "records": lambda log: log.read(0, 1 << 20),
    "a range": lambda log: list(log.read_range(0, 2)),
    "the first record of a time": lambda log: log.offset_for_timestamp(1),
    "the newest record": lambda log: log.offset_of_max_timestamp(2),
}


@pytest.mark.parametrize("name", LOOK_UPS)
def test_what_was_looked_for_is_not_there_any_more(name: str) -> None:
    replicas = Replicas.new()
    write(replicas.leader(), "old", "older")
    reader = LogReader(replicas.table("1"), replicas.clock)
    reader.refresh()
    replicas.table("1").drop()
    made = PartitionLog(replicas.table("1"), NO_SNAPSHOTS, replicas.clock, replicas.ids)
    made.exists_or_create("the next one")
    started(made, 0)
    write(made, "new", "newer", "newest")
    with pytest.raises(UnknownTopicOrPartitionError, match="the next one, not of topic-id any more"):
        LOOK_UPS[name](reader)
    assert reader.read(0, 1 << 20)["value"].to_pylist() == [b"new", b"newer", b"newest"], "asked for as what it is"
