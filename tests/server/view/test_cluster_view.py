"""A view shows committed records and nothing else, whoever leads and whatever storage is out of reach."""

from __future__ import annotations

from pathlib import Path

import pytest

from stratalog.replication.metadata.image import Result
from stratalog.replication.metadata.log import open_metadata
from stratalog.replication.metadata.records import NO_LEADER, ConfigRecord
from stratalog.replication.progress.progress import UNKNOWN
from stratalog.server.offset_spec import OffsetAndTimestamp
from stratalog.server.view.cluster_view import ClusterView
from stratalog.storage.errors import (
    LeaderNotAvailableError,
    LogDirNotFoundError,
    OffsetOutOfRangeError,
    StratalogError,
    UnknownTopicOrPartitionError,
)
from stratalog.storage.records import TopicPartition
from tests.clients.memory_cluster import ROOT, MemoryCluster
from tests.clients.still_cluster import StillCluster

T0 = TopicPartition("t", 0)


def view_of(cluster: MemoryCluster, timeout_ms: int = 20) -> ClusterView:
    return ClusterView(ROOT, stores=cluster.stores, timeout_ms=timeout_ms)


def values(view: ClusterView, offset: int, end_offset: int | None = None) -> list[bytes]:
    found: list[bytes] = view.records.read(T0, offset, 1 << 20, end_offset)["value"].to_pylist()
    return found


def test_topics_partitions_and_leaders_come_from_the_metadata_log(cluster: MemoryCluster) -> None:
    view = view_of(cluster)
    cluster.create_topic("u", 2, started=False)
    assert view.topics() == ["t", "u"]
    assert view.partitions("u") == (TopicPartition("u", 0), TopicPartition("u", 1))
    assert view.available_partitions("u") == (0, 1)
    assert view.leader(T0) == 1
    with pytest.raises(UnknownTopicOrPartitionError, match="topic 'x' does not exist"):
        view.partitions("x")
    with pytest.raises(UnknownTopicOrPartitionError, match="topic 't' has 1 partitions"):
        view.leader(TopicPartition("t", 1))


def test_a_clusters_folder_is_answered_with_its_metadata_root(tmp_path: Path) -> None:
    StillCluster(tmp_path)
    with pytest.raises(LogDirNotFoundError) as refusal:
        ClusterView(str(tmp_path))
    text = "no cluster metadata here. This is a cluster's folder: use its metadata root, "
    assert str(refusal.value).endswith(f"{text}{tmp_path}/metadata")
    with pytest.raises(LogDirNotFoundError, match=r"no cluster metadata here\. Give the cluster's metadata root"):
        ClusterView(f"{tmp_path}/broker-1")


def test_reading_stops_at_the_high_watermark(cluster: MemoryCluster) -> None:
    view = view_of(cluster)
    cluster.append(T0, b"a", b"b", b"c")
    cluster.publish(T0, 2)
    assert values(view, 0) == [b"a", b"b"]
    assert values(view, 0, 1) == [b"a"]
    assert values(view, 2) == []
    assert view.offsets.end_offsets([T0]) == {T0: 2}
    cluster.publish(T0, 3)
    assert values(view, 2) == [b"c"]


def test_reading_outside_the_log_names_its_bounds(cluster: MemoryCluster) -> None:
    view = view_of(cluster)
    cluster.append(T0, b"a", b"b", b"c")
    cluster.publish(T0, 3, log_start=1)
    assert view.offsets.beginning_offsets([T0]) == {T0: 1}
    for offset in (0, 4):
        with pytest.raises(OffsetOutOfRangeError, match=rf"t-0: offset {offset} is outside \[1, 3\]"):
            view.records.read(T0, offset, 1)


def test_a_leader_that_has_not_started_is_waited_for_and_then_named(cluster: MemoryCluster) -> None:
    view = view_of(cluster)
    cluster.elect(T0, 2)
    with pytest.raises(LeaderNotAvailableError, match="leader 2 of epoch 1 has not started within 20 ms"):
        view.offsets.end_offsets([T0])


def test_with_nobody_leading_the_isr_is_read_up_to_the_last_high_watermark(cluster: MemoryCluster) -> None:
    """As after the whole cluster was stopped: readers need no broker (promise 19)."""
    cluster.append(T0, b"a", b"b")
    cluster.publish(T0, 1)
    cluster.elect(T0, -1)
    view = view_of(cluster)
    assert view.offsets.end_offsets([T0]) == {T0: 1}
    assert view.records.read(T0, 0, 1000)["value"].to_pylist() == [b"a"]


def test_progress_of_an_older_epoch_or_an_older_topic_does_not_count(cluster: MemoryCluster) -> None:
    cluster.append(T0, b"a")
    cluster.publish(T0)
    cluster.elect(T0, 1)
    assert view_of(cluster).watermarks.published(T0) is None
    cluster.start_leader(T0)
    cluster.publish(T0)
    marks = view_of(cluster).watermarks.published(T0)
    assert marks is not None
    assert (marks.high_watermark, marks.leader_epoch) == (1, 1)


def test_the_high_watermark_never_goes_back_but_for_an_unclean_election(cluster: MemoryCluster) -> None:
    view = view_of(cluster)
    cluster.append(T0, b"a", b"b", b"c")
    cluster.publish(T0)
    cluster.follow(2, T0)
    assert view.offsets.end_offsets([T0]) == {T0: 3}
    cluster.elect(T0, 2)
    cluster.start_leader(T0)
    cluster.publish(T0, 1)
    assert view.offsets.end_offsets([T0]) == {T0: 3}
    cluster.elect(T0, 2, unclean=True)
    cluster.start_leader(T0)
    cluster.publish(T0, 1)
    assert view.offsets.end_offsets([T0]) == {T0: 1}


def test_without_a_leader_what_was_published_before_an_unclean_election_does_not_count(cluster: MemoryCluster) -> None:
    cluster.append(T0, b"a", b"b", b"c")
    cluster.publish(T0)
    cluster.elect(T0, 2, unclean=True)
    cluster.start_leader(T0)
    cluster.append(T0, b"d", b"e")
    cluster.publish(T0, 1)
    cluster.elect(T0, NO_LEADER)
    assert view_of(cluster).offsets.end_offsets([T0]) == {T0: 1}
    assert view_of(cluster).offsets.beginning_offsets([T0]) == {T0: 0}


def test_offsets_of_a_topic_are_not_looked_up_in_the_next_one_of_its_name(cluster: MemoryCluster) -> None:
    cluster.append(T0, b"a", b"b", b"c")
    cluster.publish(T0)
    view = view_of(cluster)
    marks = view.watermarks.of(T0)
    cluster.delete_topic("t")
    cluster.create_topic("t")
    cluster.append(T0, b"not committed")
    view.refresh()
    with pytest.raises(LeaderNotAvailableError, match="created again"):
        view.records.readable_log(T0, marks)


def test_a_leader_that_commits_nothing_is_read_up_to_what_was_committed_before(cluster: MemoryCluster) -> None:
    """KIP-966: with an ISR under min.insync.replicas an epoch may begin without a high watermark, for long."""
    cluster.append(T0, b"a", b"b", b"c")
    cluster.publish(T0, 2)
    cluster.commit(ConfigRecord("t", "min.insync.replicas", "2"))
    cluster.follow(2, T0)
    state = cluster.state(T0)
    cluster.commit(state.changed(leader=2, isr=(2,), bump_leader_epoch=True))
    cluster.start_leader(T0)
    view = view_of(cluster)
    with pytest.raises(LeaderNotAvailableError):
        view.records.read(T0, 0, 1 << 20)  # it has not started, as far as it told
    cluster.publish(T0, UNKNOWN)
    assert values(view, 0) == [b"a", b"b"], "as the leader before published"
    assert values(view, 2) == []
    assert view.offsets.beginning_offsets([T0]) == {T0: 0}
    with pytest.raises(LeaderNotAvailableError):
        view.offsets.end_offsets([T0])  # there may be more: nobody is to begin in the middle
    with pytest.raises(LeaderNotAvailableError):
        view.records.read(T0, 3, 1 << 20)  # nor is a reader who was further told that it is out of range
    cluster.stores.lost.add(cluster.root_of(1))
    assert values(view_of(cluster), 0) == [], "nobody who knows is left"
    cluster.publish(T0, UNKNOWN, known_committed=1)
    assert values(view_of(cluster), 0) == [b"a"], "but for the leader itself"
    cluster.publish(T0, 3)
    assert values(view, 0) == [b"a", b"b", b"c"]
    assert view.offsets.end_offsets([T0]) == {T0: 3}


def test_an_isr_that_is_large_enough_is_waited_for(cluster: MemoryCluster) -> None:
    """Its high watermark comes at once."""
    cluster.append(T0, b"a")
    cluster.publish(T0)
    cluster.follow(2, T0)
    cluster.elect(T0, 2)
    cluster.start_leader(T0)
    cluster.publish(T0, UNKNOWN, known_committed=1)
    with pytest.raises(LeaderNotAvailableError):
        view_of(cluster).records.read(T0, 0, 1 << 20)


def test_another_replica_serves_once_its_table_shows_the_epoch(cluster: MemoryCluster) -> None:
    view = view_of(cluster)
    cluster.append(T0, b"a", b"b")
    cluster.publish(T0)
    cluster.follow(2, T0)
    assert values(view, 0) == [b"a", b"b"]
    cluster.append(T0, b"c")
    cluster.publish(T0)
    assert view.offsets.end_offsets([T0]) == {T0: 3}
    fresh = view_of(cluster)
    assert fresh.offsets.end_offsets([T0]) == {T0: 3}
    cluster.stores.lost.add(cluster.root_of(1))
    assert values(fresh, 0) == [b"a", b"b"]


def test_a_replica_whose_retention_went_further_tells_where_it_begins(cluster: MemoryCluster) -> None:
    """Who reads from the start is sent there, instead of to the leader's start again and again."""
    view = view_of(cluster)
    cluster.append(T0, b"a", b"b", b"c")
    cluster.publish(T0)
    cluster.follow(2, T0)
    assert view.offsets.beginning_offsets([T0]) == {T0: 0}
    follower = cluster.log(2, T0)
    follower.replace_files((), (), leader_epoch=0, operation="RETENTION", now_ms=0, data_change=True, log_start=2)
    cluster.elect(T0, -1)
    cluster.stores.lost.add(cluster.root_of(1))
    with pytest.raises(OffsetOutOfRangeError):
        values(view, 0)
    assert view.offsets.beginning_offsets([T0]) == {T0: 2}
    assert values(view, 2) == [b"c"]


def test_what_a_leader_removed_from_an_idle_log_is_not_read_once_it_has_published_that(cluster: MemoryCluster) -> None:
    view = view_of(cluster)
    for value in (b"a", b"b", b"c"):
        cluster.append(T0, value)
    cluster.publish(T0)
    assert values(view, 0) == [b"a", b"b", b"c"]
    log = cluster.log(1, T0)
    log.replace_files([log.files[1]], [], leader_epoch=0, operation="COMPACT", now_ms=1)
    cluster.publish(T0)
    view.changes.poll()
    assert values(view, 0) == [b"a", b"c"]


def test_no_replica_of_the_current_epoch_means_nothing_to_read(cluster: MemoryCluster) -> None:
    view = view_of(cluster)
    cluster.append(T0, b"a", b"b")
    cluster.publish(T0)
    cluster.follow(2, T0)
    assert view.offsets.end_offsets([T0]) == {T0: 2}
    cluster.elect(T0, 3)
    view.refresh()
    with pytest.raises(StratalogError) as refusal:
        values(view, 0)
    assert refusal.value.retriable


def test_a_timestamp_finds_the_first_committed_record_at_or_after_it(cluster: MemoryCluster) -> None:
    view = view_of(cluster)
    for time_ms in (100, 200, 300):
        cluster.append(T0, b"v", time_ms=time_ms)
    cluster.publish(T0, 2)
    assert view.offsets.offset_for_timestamp(T0, 150) == OffsetAndTimestamp(1, 200)
    assert view.offsets.offset_for_timestamp(T0, 0) == OffsetAndTimestamp(0, 100)
    assert view.offsets.offset_for_timestamp(T0, 250) is None


@pytest.mark.parametrize("proposes", [False, True])
def test_a_view_folds_the_metadata_anew_when_a_power_cut_took_what_it_had_folded(
    cluster: MemoryCluster, proposes: bool
) -> None:
    lost = ConfigRecord("t", "retention.ms", "1")
    cluster.commit(lost)
    view = view_of(cluster)
    commits = cluster.stores.disks[ROOT].tables["__cluster_metadata-0"].commits
    del commits[max(commits)]
    cluster.metadata = open_metadata(cluster.stores, ROOT, cluster.clock, cluster.ids)
    cluster.commit(ConfigRecord("t", "retention.ms", "2"))
    cluster.create_topic("u")
    if proposes:
        assert view.propose(lambda image: Result((), image.configs["t"])) == {"retention.ms": "2"}
    view.refresh()
    assert view.topics() == ["t", "u"]
    assert view.topic_config("t").retention_ms == 2


def test_a_view_that_does_not_know_that_a_topic_was_created_again_returns_none_of_its_records() -> None:
    """The new topic's table lies where the old one's did."""
    cluster = MemoryCluster()
    (partition,) = cluster.create_topic("t")
    cluster.append(partition, b"a", b"b", b"c")
    cluster.publish(partition)
    view = ClusterView(ROOT, stores=cluster.stores)
    assert view.records.fetch(partition, 0, 1).rows["value"].to_pylist() == [b"a", b"b", b"c"]
    cluster.delete_topic("t")
    cluster.create_topic("t")
    cluster.append(partition, b"x", b"y", b"z")
    with pytest.raises(UnknownTopicOrPartitionError, match="the table is of topic id"):
        view.records.fetch(partition, 1, 1)
