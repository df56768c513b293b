"""ListOffsets: the admin client and the consumer give committed offsets by place and by time, and nothing above."""

from __future__ import annotations

import pytest

from stratalog.clients.admin.admin import Admin
from stratalog.clients.consumer.consumer import Consumer
from stratalog.server.offset_spec import ListedOffset, OffsetAndTimestamp, OffsetSpec
from stratalog.server.view.cluster_view import ClusterView
from stratalog.storage.errors import InvalidRequestError, LeaderNotAvailableError
from stratalog.storage.records import TopicPartition
from tests.clients.memory_cluster import ROOT, MemoryCluster

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def cluster() -> MemoryCluster:
    """t-0 holds records of 100, 300, 200, 300 and 900 ms, of which the last is not committed; t-1 is empty."""
    made = MemoryCluster()
    made.create_topic("t", 2)
    for time_ms in (100, 300):
        made.append(T0, b"v", time_ms=time_ms)
    made.elect(T0, 1)
    made.start_leader(T0)
    for time_ms in (200, 300, 900):
        made.append(T0, b"v", time_ms=time_ms)
    made.publish(T0, 4)
    return made


def admin_of(cluster: MemoryCluster) -> Admin:
    return Admin(ROOT, view=ClusterView(ROOT, stores=cluster.stores, timeout_ms=20))


@pytest.mark.parametrize(
    ("spec", "listed"),
    [
        (OffsetSpec.earliest(), ListedOffset(0)),
        (OffsetSpec.latest(), ListedOffset(4, leader_epoch=1)),
        (OffsetSpec.max_timestamp(), ListedOffset(1, 300, 0)),
        (OffsetSpec.for_timestamp(0), ListedOffset(0, 100, 0)),
        (OffsetSpec.for_timestamp(100), ListedOffset(0, 100, 0)),
        (OffsetSpec.for_timestamp(101), ListedOffset(1, 300, 0)),
        (OffsetSpec.for_timestamp(301), ListedOffset(-1)),
        (OffsetSpec.for_timestamp(901), ListedOffset(-1)),
    ],
)
def test_an_offset_by_place_or_time(cluster: MemoryCluster, spec: OffsetSpec, listed: ListedOffset) -> None:
    assert admin_of(cluster).list_offsets({T0: spec}) == {T0: listed}


def test_the_largest_timestamp_of_what_was_not_committed_does_not_count(cluster: MemoryCluster) -> None:
    assert admin_of(cluster).list_offsets({T0: OffsetSpec.max_timestamp()})[T0].timestamp_ms == 300
    cluster.publish(T0, 5)
    assert admin_of(cluster).list_offsets({T0: OffsetSpec.max_timestamp()})[T0] == ListedOffset(4, 900, 1)


def test_an_empty_partition_has_ends_and_no_records(cluster: MemoryCluster) -> None:
    places = [OffsetSpec.earliest(), OffsetSpec.latest(), OffsetSpec.max_timestamp(), OffsetSpec.for_timestamp(0)]
    assert [admin_of(cluster).list_offsets({T1: spec})[T1].offset for spec in places] == [0, 0, -1, -1]


def test_the_log_start_hides_records_from_times(cluster: MemoryCluster) -> None:
    log = cluster.log(1, T0)
    log.replace_files([], [], leader_epoch=1, operation="DELETE", now_ms=1, data_change=True, log_start=2)
    cluster.publish(T0, 4, log_start=2)
    assert admin_of(cluster).list_offsets({T0: OffsetSpec.earliest()})[T0].offset == 2
    assert admin_of(cluster).list_offsets({T0: OffsetSpec.for_timestamp(0)})[T0] == ListedOffset(2, 200, 1)
    assert admin_of(cluster).list_offsets({T0: OffsetSpec.max_timestamp()})[T0] == ListedOffset(3, 300, 1)


def test_the_first_error_is_raised_after_all_were_tried(cluster: MemoryCluster) -> None:
    cluster.elect(T1, 2)
    with pytest.raises(LeaderNotAvailableError, match="t-1: leader 2"):
        admin_of(cluster).list_offsets({T1: OffsetSpec.latest(), T0: OffsetSpec.latest()})


def test_a_negative_number_that_stands_for_nothing_is_refused() -> None:
    assert [OffsetSpec(number).timestamp for number in (-1, -2, -3, 0)] == [-1, -2, -3, 0]
    with pytest.raises(InvalidRequestError, match="timestamp -4"):
        OffsetSpec(-4)


def test_a_consumers_offsets_by_time_and_at_the_ends(cluster: MemoryCluster) -> None:
    consumer = Consumer(ROOT, view=ClusterView(ROOT, stores=cluster.stores, timeout_ms=20))
    assert consumer.beginning_offsets([T0, T1]) == {T0: 0, T1: 0}
    assert consumer.end_offsets([T0, T1]) == {T0: 4, T1: 0}
    found = consumer.offsets_for_times({T0: 250, T1: 0})
    assert found == {T0: OffsetAndTimestamp(1, 300), T1: None}
    with pytest.raises(InvalidRequestError, match=r"The target time for partition t-0 is -1\. The target time"):
        consumer.offsets_for_times({T0: -1})
