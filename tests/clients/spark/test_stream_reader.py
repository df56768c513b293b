"""The planning side of a stream: where it starts, how far a batch goes, and that nothing is skipped after a crash."""

from __future__ import annotations

import json
import pickle
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from stratalog.clients.spark.conditions import DataLossError, TopicRecreatedError
from stratalog.clients.spark.options import stream_options
from stratalog.clients.spark.source.batch_reader import RangesPartition
from stratalog.clients.spark.source.plan import TOPIC_IDS
from stratalog.clients.spark.source.stream_reader import (
    GATHER_MS_MAX,
    LONG_POLL_MS,
    LONG_POLL_SHARE,
    PAUSE_MS_MIN,
    REMOTE_PAUSE_MS_MIN,
    REQUEST_MS,
    StratalogStreamReader,
)
from stratalog.storage.objects.store_settings import StoreSettings
from stratalog.storage.records import TopicPartition
from tests.clients.still_cluster import StillCluster
from tests.storage.logs import FakeClock
from tests.stores.s3_double import BUCKET, s3_double

LIMIT = ReadMaxRows(2**63 - 1)
IDS = {TOPIC_IDS: {"t": "id-of-t"}}
"""The ids of topics, which every offset of a query carries."""


@pytest.fixture
def cluster(tmp_path: Path) -> StillCluster:
    return StillCluster(tmp_path)


def reader(cluster: StillCluster, **options: object) -> StratalogStreamReader:
    given: dict[str, Any] = {"stratalog.root": cluster.root, "fetchOffset.retryIntervalMs": 1, **options}
    if not {"subscribePattern", "assign"} & set(given):
        given["subscribe"] = "t"
    return StratalogStreamReader(stream_options({name: str(value) for name, value in given.items()}))


def ranges(stream: StratalogStreamReader, start: Any, end: Any) -> list[tuple[int, int, int]]:
    return [shape for part in stream.partitions(start, end) for shape in shapes(part)]


def shapes(part: InputPartition) -> list[tuple[int, int, int]]:
    assert isinstance(part, RangesPartition)
    return [(wanted.topic_partition.partition, wanted.start, wanted.end) for wanted in part.wanted]


def begun(stream: StratalogStreamReader) -> dict[str, Any]:
    """The stream after its first batch, which the topic had no records for; where it ended."""
    start = stream.initialOffset()
    end = stream.latestOffset(start, LIMIT)
    assert ranges(stream, start, end) == []
    return end


def test_the_end_of_the_first_batch_keeps_its_start(cluster: StillCluster) -> None:
    (t0,) = cluster.create_topic("t", 1)
    cluster.commit(t0, list("abc"))
    first_life = reader(cluster)
    start = first_life.initialOffset()
    cluster.commit(t0, list("de"))
    assert first_life.initialOffset() == start == {"t": {"0": 3}, **IDS}
    end = first_life.latestOffset(start, LIMIT)
    assert end == {"t": {"0": 5}, "t@start": {"0": 3}, **IDS}
    assert ranges(first_life, start, end) == [(0, 3, 5)]
    # it dies before batch 0 is committed; in the next life the start is asked again
    cluster.commit(t0, ["f"])
    second_life = reader(cluster)
    asked_anew = second_life.initialOffset()
    assert asked_anew == {"t": {"0": 6}, **IDS}
    assert ranges(second_life, asked_anew, end) == [(0, 3, 5)]
    assert second_life.latestOffset(end, LIMIT) == {"t": {"0": 6}, **IDS}
    assert ranges(second_life, end, {"t": {"0": 6}}) == [(0, 5, 6)]


def test_a_first_batch_that_ended_where_a_later_life_would_start_is_still_read(cluster: StillCluster) -> None:
    (t0,) = cluster.create_topic("t", 1)
    start = reader(cluster).initialOffset()
    cluster.commit(t0, ["a"])
    end = {"t": {"0": 1}, "t@start": start["t"]}
    second_life = reader(cluster)
    assert ranges(second_life, second_life.initialOffset(), end) == [(0, 0, 1)]


def test_a_first_batch_without_records_is_answered_as_it_was_until_something_comes(cluster: StillCluster) -> None:
    (t0,) = cluster.create_topic("t", 1)
    cluster.commit(t0, ["a"])
    stream = reader(cluster)
    end = begun(stream)
    assert end == {"t": {"0": 1}, "t@start": {"0": 1}, **IDS}
    assert json.dumps(stream.latestOffset(end, LIMIT)) == json.dumps(end)
    assert ranges(stream, end, end) == []
    cluster.commit(t0, ["b"])
    assert stream.latestOffset(end, LIMIT) == {"t": {"0": 2}, **IDS}


def test_a_replayed_first_batch_does_not_end_an_available_now_query(cluster: StillCluster) -> None:
    (t0,) = cluster.create_topic("t", 1)
    cluster.commit(t0, ["a"])
    second_life = reader(cluster, startingOffsets="earliest")
    second_life.prepareForTriggerAvailableNow()
    empty = {**second_life.initialOffset(), "t@start": {"0": 0}}
    assert ranges(second_life, second_life.initialOffset(), empty) == []  # batch 0 again
    assert second_life.latestOffset(empty, LIMIT) == {"t": {"0": 1}, **IDS}


def test_trigger_once_reads_everything_in_its_only_batch(cluster: StillCluster) -> None:
    (t0,) = cluster.create_topic("t", 1)
    cluster.commit(t0, list("abc"))
    stream = reader(cluster, startingOffsets="earliest", maxOffsetsPerTrigger=1)
    assert stream.getDefaultReadLimit() == ReadMaxRows(1)
    end = stream.latestOffset(stream.initialOffset(), ReadAllAvailable())
    assert end == {"t": {"0": 3}, "t@start": {"0": 0}, **IDS}


def test_limits_of_a_trigger(cluster: StillCluster) -> None:
    (t0,) = cluster.create_topic("t", 1)
    cluster.commit(t0, list("abcde"))
    stream = reader(cluster, startingOffsets="earliest", maxOffsetsPerTrigger=3)
    assert stream.latestOffset(stream.initialOffset(), LIMIT) == {"t": {"0": 3}, "t@start": {"0": 0}, **IDS}
    assert stream.reportLatestOffset() == {"t": {"0": 5}}
    assert stream.latestOffset({"t": {"0": 3}}, LIMIT) == {"t": {"0": 5}, **IDS}


def test_a_limit_in_bytes_counts_what_lies_on_storage(cluster: StillCluster) -> None:
    t0, t1 = cluster.create_topic("t", 2)
    for each in ("a", "b", "c", "d"):
        cluster.commit(t0, [each * 100_000])
    size_bytes = cluster.log(t0, 1).files[0].file.size_bytes
    cluster.commit(t1, ["e"])
    small_bytes = cluster.log(t1, 1).files[0].file.size_bytes
    stream = reader(cluster, startingOffsets="earliest", maxBytesPerTrigger=2 * size_bytes + small_bytes + 4_000)
    start = stream.initialOffset()
    end = stream.latestOffset(start, LIMIT)
    assert end["t"] == {"0": 2, "1": 1}
    assert stream.latestOffset(end, LIMIT)["t"] == {"0": 4, "1": 1}
    of_both = reader(cluster, startingOffsets="earliest", maxBytesPerTrigger=1, maxOffsetsPerTrigger=2)
    assert of_both.latestOffset(of_both.initialOffset(), LIMIT)["t"] == {"0": 1, "1": 1}


def test_a_topic_that_was_created_again_is_named(cluster: StillCluster, caplog: pytest.LogCaptureFixture) -> None:
    (t0,) = cluster.create_topic("t", 1)
    cluster.commit(t0, list("abc"))
    stream = reader(cluster, startingOffsets="earliest")
    first_end = stream.latestOffset(stream.initialOffset(), LIMIT)
    cluster.create_again("t", 1, "another-id")
    cluster.commit(t0, list("defgh"))
    text = "Topic t was deleted and created again: the query read the topic with id id-of-t, the one with id another-id"
    for life in (stream, reader(cluster)):  # one that is running, and one that goes on after a restart
        life.fetcher.view.refresh()
        with pytest.raises(TopicRecreatedError, match=r"KAFKA_DATA_LOSS\.TOPIC_RECREATED") as refusal:
            life.latestOffset(first_end, LIMIT)
        assert text in str(refusal.value)
        with pytest.raises(TopicRecreatedError):
            life.partitions(stream.initialOffset(), first_end)
    tolerant = reader(cluster, failOnDataLoss=False)
    end = tolerant.latestOffset(first_end, LIMIT)
    assert end == {"t": {"0": 5}, TOPIC_IDS: {"t": "another-id"}}
    assert ranges(tolerant, first_end, end) == [(0, 0, 5)]
    assert [text in message for message in caplog.messages] == [True]


def test_a_checkpoint_without_topic_ids_goes_on_and_gets_them(cluster: StillCluster) -> None:
    (t0,) = cluster.create_topic("t", 1)
    cluster.commit(t0, list("abc"))
    assert reader(cluster).latestOffset({"t": {"0": 2}}, LIMIT) == {"t": {"0": 3}, **IDS}
    assert reader(cluster).latestOffset({"t": {"0": 3}}, LIMIT) == {"t": {"0": 3}}


def test_a_batch_waits_for_the_least_number_of_records(cluster: StillCluster) -> None:
    (t0,) = cluster.create_topic("t", 1)
    cluster.commit(t0, ["a"])
    stream = reader(cluster, startingOffsets="earliest", minOffsetsPerTrigger=3, maxTriggerDelay="5m")
    first = stream.latestOffset(stream.initialOffset(), LIMIT)
    # as the connector: the delay counts from 1970 for the first batch
    assert first == {"t": {"0": 1}, "t@start": {"0": 0}, **IDS}
    cluster.commit(t0, list("bc"))
    assert stream.latestOffset(first, LIMIT) == first
    cluster.commit(t0, ["d"])
    assert stream.latestOffset(first, LIMIT) == {"t": {"0": 4}, **IDS}


def test_available_now_stops_where_the_log_ended_when_it_began(cluster: StillCluster) -> None:
    (t0,) = cluster.create_topic("t", 1)
    cluster.commit(t0, ["a"])
    stream = reader(cluster, startingOffsets="earliest")
    stream.prepareForTriggerAvailableNow()
    start = stream.initialOffset()
    end = stream.latestOffset(start, LIMIT)
    assert end == {"t": {"0": 1}, "t@start": {"0": 0}, **IDS}
    cluster.commit(t0, ["b"])
    assert ranges(stream, start, end) == [(0, 0, 1)]
    assert stream.latestOffset(end, LIMIT) == end


def test_an_idle_stream_waits_the_longer_the_longer_nothing_came(cluster: StillCluster) -> None:
    (t0,) = cluster.create_topic("t", 1)
    stream = reader(cluster)
    start = begun(stream)
    polls, began = 0, time.monotonic()
    while time.monotonic() - began < 1.5:
        assert stream.latestOffset(start, LIMIT) == start
        polls += 1
    assert 10 < polls < 400
    began = time.monotonic()
    assert stream.latestOffset(start, LIMIT) == start
    assert time.monotonic() - began >= 1.5 * LONG_POLL_SHARE
    cluster.commit(t0, ["a"])
    began = time.monotonic()
    end = stream.latestOffset(start, LIMIT)
    assert end == {"t": {"0": 1}, **IDS}
    assert time.monotonic() - began < LONG_POLL_MS / 1000
    began = time.monotonic()
    assert stream.latestOffset(end, LIMIT) == end
    assert time.monotonic() - began < LONG_POLL_MS / 1000


def test_an_idle_stream_on_an_object_store_makes_five_requests_a_second_at_most() -> None:
    with s3_double() as double:
        settings = {name.lower().replace("_", "."): text for name, text in double.environment().items()}
        cluster = StillCluster(f"s3://{BUCKET}/c", StoreSettings.of(settings))
        t0, t1 = cluster.create_topic("t", 2)
        cluster.lead(t1, 2, 1)
        cluster.publish(t1, 0)
        stream = reader(cluster, **{f"stratalog.storage.{name}": text for name, text in settings.items()})
        end = begun(stream)
        clock = stream.fetcher.view.clock = Sleeps()
        counts = []
        for _ in range(10):
            began_ms, before = clock.now_ms, len(double.requests)
            while clock.now_ms - began_ms < 5_000:
                assert stream.latestOffset(end, LIMIT) == end
                clock.now_ms += 10  # Spark's pollingDelay
            counts.append(len(double.requests) - before)
        assert all(count <= 5 * 5.5 for count in counts[2:]), counts
        assert sum(counts[2:]) <= 5 * 5 * len(counts[2:]), counts
        cluster.commit(t0, ["a"])
        began_ms = clock.now_ms
        assert stream.latestOffset(end, LIMIT)["t"] == {"0": 1, "1": 0}
        assert clock.now_ms - began_ms <= 3 * REQUEST_MS + GATHER_MS_MAX
        busy = stream.latestOffset(end, LIMIT)
        before, began_ms = len(double.requests), clock.now_ms
        assert stream.latestOffset(busy, LIMIT) == busy
        assert clock.now_ms - began_ms <= REMOTE_PAUSE_MS_MIN, "not idle any more"


class Sleeps(FakeClock):
    """Each sleep does the next of some things; the last ones do nothing."""

    def __init__(self, *actions: Callable[[], object]) -> None:
        self.actions = list(actions)

    def sleep_ms(self, duration_ms: float) -> None:
        super().sleep_ms(duration_ms)
        if self.actions:
            self.actions.pop(0)()


def test_what_comes_right_after_a_record_that_was_waited_for_is_in_its_batch(cluster: StillCluster) -> None:
    t0, t1, t2 = cluster.create_topic("t", 3)
    stream = reader(cluster)
    start = begun(stream)
    quiet: Callable[[], object] = lambda: None  # noqa: E731
    sleeps = Sleeps(
        lambda: cluster.commit(t0, ["a"]),
        lambda: cluster.commit(t1, ["b"]),
        lambda: cluster.commit(t0, ["c"]),
        quiet,
        lambda: cluster.commit(t2, ["too late"]),
    )
    stream.fetcher.view.clock = sleeps
    end = stream.latestOffset(start, LIMIT)
    assert end == {"t": {"0": 2, "1": 1, "2": 0}, **IDS}
    assert len(sleeps.actions) == 1
    # busy: what is there is taken at once
    cluster.commit(t0, ["d"])
    assert stream.latestOffset(end, LIMIT) == {"t": {"0": 3, "1": 1, "2": 0}, **IDS}
    assert len(sleeps.actions) == 1


def test_a_stream_that_waited_and_found_something_is_not_idle_any_more(cluster: StillCluster) -> None:
    (t0,) = cluster.create_topic("t", 1)
    stream = reader(cluster)
    start = begun(stream)
    sleeps = Sleeps()
    stream.fetcher.view.clock = sleeps

    def waited_ms(offsets: dict[str, Any], end: dict[str, Any]) -> float:
        began_ms = sleeps.now_ms
        assert stream.latestOffset(offsets, LIMIT) == end
        return sleeps.now_ms - began_ms

    waited_ms(start, start)
    sleeps.now_ms += 2_000
    assert waited_ms(start, start) >= LONG_POLL_SHARE * 2_000
    sleeps.actions = [lambda: cluster.commit(t0, ["a"])]
    end = {"t": {"0": 1}, **IDS}
    waited_ms(start, end)
    assert waited_ms(end, end) == PAUSE_MS_MIN


def test_records_without_a_pause_are_not_gathered_for_long(cluster: StillCluster) -> None:
    (t0,) = cluster.create_topic("t", 1)
    stream = reader(cluster)
    start = begun(stream)
    sleeps = Sleeps(*[lambda: cluster.commit(t0, ["a"])] * 100)
    stream.fetcher.view.clock = sleeps
    stream.latestOffset(start, LIMIT)
    assert sleeps.now_ms - Sleeps.now_ms <= PAUSE_MS_MIN + GATHER_MS_MAX


def test_partitions_with_little_to_read_share_a_task(cluster: StillCluster) -> None:
    partitions = cluster.create_topic("t", 3)
    for topic_partition in partitions:
        cluster.commit(topic_partition, ["a", "b"])
    stream = reader(cluster, startingOffsets="earliest")
    start = stream.initialOffset()
    (task,) = stream.partitions(start, stream.latestOffset(start, LIMIT))
    assert shapes(task) == [(0, 0, 2), (1, 0, 2), (2, 0, 2)]
    assert [b["partition"].to_pylist() for b in stream.read(task)] == [[0, 0], [1, 1], [2, 2]]
    each_its_own = reader(cluster, startingOffsets="earliest", minPartitions=3)
    assert len(each_its_own.partitions(start, {"t": {"0": 2, "1": 2, "2": 2}})) == 3


def test_a_partition_without_a_started_leader_stays_while_the_others_go_on(cluster: StillCluster) -> None:
    t0, t1 = cluster.create_topic("t", 2)
    stream = reader(cluster)
    start = begun(stream)
    cluster.commit(t0, ["a"])
    assert stream.latestOffset(start, LIMIT) == {"t": {"0": 1, "1": 0}, **IDS}
    cluster.lead(t0, 2, 1)  # and publishes nothing yet
    cluster.commit(t1, ["b"])
    assert stream.latestOffset({"t": {"0": 1, "1": 0}}, LIMIT) == {"t": {"0": 1, "1": 1}, **IDS}


def test_new_and_deleted_partitions(cluster: StillCluster) -> None:
    cluster.create_topic("t", 1)
    stream = reader(cluster, subscribePattern="t")
    start = begun(stream)
    new = TopicPartition("t", 1)
    cluster.lead(new, 1, 0)
    cluster.commit(new, ["a"])
    time.sleep(0.1)  # metadata is looked at every 50 ms
    end = stream.latestOffset(start, LIMIT)
    assert end == {"t": {"0": 0, "1": 1}, **IDS}
    assert ranges(stream, start, end) == [(1, 0, 1)]
    with pytest.raises(DataLossError, match=r"Partitions Set\(gone-0\) have been deleted"):
        stream.partitions({**start, "gone": {"0": 4}}, end)


def test_a_start_beyond_the_end_is_reported_once_it_is_read(cluster: StillCluster) -> None:
    cluster.create_topic("t", 1)
    stream = reader(cluster, startingOffsets='{"t":{"0":7}}')
    start = stream.initialOffset()
    end = stream.latestOffset(start, LIMIT)
    assert end == {"t": {"0": 0}, "t@start": {"0": 7}, **IDS}
    with pytest.raises(DataLossError, match="Partition t-0 offset was changed from 7 to 0"):
        reader(cluster).partitions(start, end)


def test_a_reader_and_its_partitions_travel_to_executors(cluster: StillCluster) -> None:
    (t0,) = cluster.create_topic("t", 1)
    cluster.commit(t0, ["a"])
    stream = reader(cluster, startingOffsets="earliest")
    start = stream.initialOffset()
    (part,) = stream.partitions(start, stream.latestOffset(start, LIMIT))
    elsewhere = pickle.loads(pickle.dumps(reader(cluster)))
    (batch,) = elsewhere.read(pickle.loads(pickle.dumps(part)))
    assert batch["value"].to_pylist() == [b"a"]
    assert list(elsewhere.read(InputPartition(None))) == []
