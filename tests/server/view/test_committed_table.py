"""A topic's committed records as an Arrow stream: what a read_committed consumer gets, again and again; in memory."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from stratalog.server.view.committed_table import COMMITTED_SCHEMA, CommittedTable, table_of
from stratalog.server.view.read_committed import view_of
from stratalog.storage.errors import (
    InvalidConfigError,
    OffsetOutOfRangeError,
    UnknownTopicOrPartitionError,
)
from stratalog.storage.records import Header, NewRecordBatch, payload_table
from tests.clients.memory_cluster import MemoryCluster
from tests.server.view.test_read_committed import Writer


@pytest.fixture
def writer() -> Writer:
    return Writer(MemoryCluster())


def table(writer: Writer, level: str = "read_committed", **how: Any) -> CommittedTable:
    return table_of(view_of(level)(writer.cluster.root, stores=writer.cluster.stores, timeout_ms=100), "t", **how)


def mixed(writer: Writer) -> None:
    """Offsets 0 a, 1 p, 2 commits a, 3 x, 4 aborts x, 5 q, 6 open."""
    writer.put(7, "a")
    writer.plain("p")
    writer.end(7, committed=True)
    writer.put(8, "x")
    writer.end(8, committed=False)
    writer.plain("q")
    writer.put(9, "open")


def test_committed_records_have_their_offsets_and_every_stream_begins_anew(writer: Writer) -> None:
    mixed(writer)
    made = table(writer)
    assert made.ranges == {writer.partition: (0, 6)}
    for _ in range(2):
        found = pa.table(made)
        assert found.schema.names == ["topic", "partition", "offset", "timestamp", "key", "value", "headers"]
        assert found["offset"].to_pylist() == [0, 1, 5]
        assert found["value"].to_pylist() == [b"a", b"p", b"q"]
        assert set(found["topic"].to_pylist()) == {"t"}
    writer.end(9, committed=True)
    assert pa.table(made).num_rows == 3  # of the moment when it was made
    assert pa.table(table(writer)).num_rows == 4


def test_without_isolation_everything_below_the_high_watermark_is_read_but_markers(writer: Writer) -> None:
    mixed(writer)
    assert table(writer, "read_uncommitted").read_all()["offset"].to_pylist() == [0, 1, 3, 5, 6]


def test_only_the_named_columns_are_there_in_the_given_order(writer: Writer) -> None:
    rows = payload_table([(1_700_000_000_001, b"k", None, [Header("h", b"1")]), (None, None, b"v", None)])
    writer.add(NewRecordBatch(rows))
    made = table(writer, columns=["timestamp", "offset", "headers", "leader_epoch", "timestamp_type"])
    assert made.schema == pa.schema([COMMITTED_SCHEMA.field(name) for name in made.schema.names])
    found = made.read_all().to_pylist()
    assert found[0]["timestamp"].isoformat() == "2023-11-14T22:13:20.001000+00:00"
    rest = {name: value for name, value in found[0].items() if name != "timestamp"}
    headers = [{"key": "h", "value": b"1"}]
    assert rest == {"offset": 0, "headers": headers, "leader_epoch": 0, "timestamp_type": 0}
    assert (found[1]["timestamp"], found[1]["headers"]) == (None, None)
    with pytest.raises(InvalidConfigError, match="base_offset"):
        table(writer, columns=["base_offset"])


def test_an_empty_topic_is_a_table_without_rows(writer: Writer) -> None:
    assert table(writer).read_all().num_rows == 0
    assert table(writer, partitions=[]).read_all().num_rows == 0
    with pytest.raises(UnknownTopicOrPartitionError, match="t-1 does not exist"):
        table(writer, partitions=[1])


def test_records_that_are_gone_are_an_error_and_not_fewer_records(writer: Writer) -> None:
    writer.plain("a", "b")
    made = table(writer)
    log = writer.cluster.logs[1, writer.partition]
    log.start_epoch(0, as_leader=True, log_start=1)
    writer.cluster.publish(writer.partition)
    with pytest.raises(OffsetOutOfRangeError):
        made.read_all()


def test_another_topic_of_the_name_is_not_read(writer: Writer) -> None:
    writer.plain("a")
    made = table(writer)
    writer.cluster.delete_topic("t")
    writer.cluster.create_topic("t")
    writer.plain("b")
    with pytest.raises(UnknownTopicOrPartitionError):
        made.read_all()
