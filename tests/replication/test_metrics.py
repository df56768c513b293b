"""Metrics by Kafka's names: what the metadata says, what a broker counts, and how Prometheus gets it."""

from __future__ import annotations

import re
import urllib.request
from collections.abc import Mapping
from urllib.error import HTTPError

import pytest

from stratalog.clients.admin.admin import Admin
from stratalog.clients.producer.producer import Producer
from stratalog.replication import cadence
from stratalog.replication.follower.metrics import CopyClock, CopyTimes, ThreadFetch, fetch_metrics
from stratalog.replication.metadata.image import ClusterImage
from stratalog.replication.metadata.records import CLUSTER_WIDE, NO_LEADER, ConfigRecord
from stratalog.replication.metrics import (
    BrokerMetrics,
    Histogram,
    Metric,
    RunState,
    counter_metrics,
    image_metrics,
    prometheus_text,
)
from stratalog.server.cluster import Cluster
from stratalog.server.process.metrics_server import MetricsServer
from stratalog.storage.errors import KafkaStorageError
from tests.replication.images import TOPIC, image_of, partition
from tests.waiting import wait_until

MIN_ISR_2 = ConfigRecord(TOPIC, "min.insync.replicas", "2")


def gauges(image: ClusterImage, broker_id: int) -> dict[str, float | Histogram]:
    """The image's metrics that are not 0, by the last part of their names."""
    return {
        metric.name.rsplit("_", 1)[1]: value
        for metric in image_metrics(image, broker_id)
        for value in metric.values.values()
        if value
    }


@pytest.mark.parametrize("min_isr", [MIN_ISR_2, ConfigRecord(CLUSTER_WIDE, "min.insync.replicas", "2")])
def test_a_broker_tells_of_what_it_leads_and_the_controller_of_all(min_isr: ConfigRecord) -> None:
    image = image_of(
        (1, 2, 3),
        partition((1, 2, 3), 1, (1, 2, 3)),
        partition((1, 2, 3), 1, (1, 2), number=1),
        partition((1, 2, 3), 1, (1,), number=2),
        partition((2, 3), NO_LEADER, (3,), number=3),
        partition((2, 3), 2, (2,), number=4),
        fenced={3: False},
    )
    image = image.fold(min_isr)
    assert gauges(image, 1) == {
        "LeaderCount": 3,
        "PartitionCount": 3,
        "UnderReplicatedPartitions": 2,
        "UnderMinIsrPartitionCount": 1,
        "AtMinIsrPartitionCount": 1,
        "ActiveControllerCount": 1,
        "OfflinePartitionsCount": 1,
        "PreferredReplicaImbalanceCount": 1,
        "GlobalTopicCount": 1,
        "GlobalPartitionCount": 5,
        "ActiveBrokerCount": 2,
        "FencedBrokerCount": 1,
    }
    assert gauges(image, 2) == {
        "LeaderCount": 1,
        "PartitionCount": 5,
        "UnderReplicatedPartitions": 1,
        "UnderMinIsrPartitionCount": 1,
    }


def test_a_topic_with_fewer_replicas_than_min_insync_replicas_is_not_under_it() -> None:
    image = image_of((1, 2), partition((1,), 1, (1,)), partition((1, 2), 1, (1,), number=1))
    image = image.fold(ConfigRecord(CLUSTER_WIDE, "min.insync.replicas", "2"))
    found = gauges(image, 1)
    assert (found["UnderMinIsrPartitionCount"], found["AtMinIsrPartitionCount"]) == (1, 1)


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ((1, 2, 3), (1, 2), (1, 0)),
        ((1, 2), (1, 2, 3), (0, 1)),
        ((1, 2), (1, 3), (1, 1)),
        ((1, 2), (2, 1), (0, 0)),
    ],
)
def test_isr_changes_are_counted(before: tuple[int, ...], after: tuple[int, ...], expected: tuple[int, int]) -> None:
    counted = BrokerMetrics()
    counted.isr_changed(before, after)
    assert (counted.isr_shrinks, counted.isr_expands) == expected


@pytest.mark.parametrize(
    ("times", "percent", "expected"),
    [
        ([], 50, 0),
        ([0], 50, 1),
        ([-3], 99, 1),
        ([1, 3, 3, 40], 50, 5),
        ([1, 3, 3, 40], 99, 50),
        ([40_000], 50, float("inf")),
    ],
)
def test_percentiles_are_the_bounds_of_buckets(times: list[int], percent: float, expected: float) -> None:
    histogram = Histogram()
    for took_ms in times:
        histogram.observe(took_ms)
    assert histogram.percentile_ms(percent) == expected


def test_the_text_is_prometheus() -> None:
    counted = BrokerMetrics(
        isr_shrinks=2, waiting_count=lambda: 7, live_files_max=lambda: 6_000, append_pause_ms_max=lambda: 20
    )
    counted.topic("a").appended(10, 1_000, 3)
    counted.topic("b").appended(1, 5, 1)
    counted.fetched("a", 700)
    counted.fetched("c", 30)
    for took_ms in (1, 4, 4, 100_000):
        counted.total_time.observe(took_ms)
    lines = prometheus_text({2: counter_metrics(counted), 1: counter_metrics(BrokerMetrics())}).splitlines()
    assert lines[:4] == [
        "# HELP kafka_server_ReplicaManager_IsrShrinks_total ISRs that shrank.",
        "# TYPE kafka_server_ReplicaManager_IsrShrinks_total counter",
        'kafka_server_ReplicaManager_IsrShrinks_total{broker="1"} 0',
        'kafka_server_ReplicaManager_IsrShrinks_total{broker="2"} 2',
    ]
    found = values_in(lines)
    assert found['kafka_server_BrokerTopicMetrics_BytesIn_total{broker="2",topic="a"}'] == 1_000
    assert found['kafka_server_BrokerTopicMetrics_MessagesIn_total{broker="2",topic="b"}'] == 1
    out = 'kafka_server_BrokerTopicMetrics_BytesOut_total{{broker="2",topic="{}"}}'
    assert [found[out.format(topic)] for topic in "abc"] == [700, 0, 30]
    assert counted.bytes_out == 730
    assert found['kafka_server_DelayedOperationPurgatory_PurgatorySize{broker="2",delayedOperation="Produce"}'] == 7
    assert found['stratalog_server_Upkeep_LiveFilesMax{broker="2"}'] == 6_000
    assert found['stratalog_server_Upkeep_AppendPauseMsMax{broker="2"}'] == 20
    time = 'kafka_network_RequestMetrics_TotalTimeMs{}{{broker="2",request="Produce"{}}}'
    buckets = {le: found[time.format("_bucket", f',le="{le}"')] for le in ("1", "2", "5", "30000", "+Inf")}
    assert buckets == {"1": 1, "2": 1, "5": 3, "30000": 3, "+Inf": 4}
    assert (found[time.format("_sum", "")], found[time.format("_count", "")]) == (100_009, 4)


def test_copy_times_are_of_the_last_seconds() -> None:
    clock = CopyClock(1, now_ms=1_000)
    for took_ms in (2, 4, 9):
        clock.copied(took_ms)
    told = clock.read(now_ms=3_000, wall_ms=70_000, live_files_max=6_000, pause_ms_max=20)
    assert told == CopyTimes(1, 70_000, 2_000, 3, 15, 9, 6_000, 20)
    assert CopyTimes.from_json(told.to_json()) == told
    assert clock.read(now_ms=4_000, wall_ms=71_000).turns == 0
    values = {m.name.rsplit("_", 1)[1]: dict(m.values) for m in fetch_metrics([told, None], wall_ms=72_000)}
    assert values.pop("InThreads") == {(): 0}
    share = (("share", "1"),)
    assert values == {"CopiesPerSec": {share: 1.5}, "CopyTimeMs": {share: 5.0}, "CopyTimeMsMax": {share: 9}} | {
        "LiveFilesMax": {share: 6_000},
        "CopyPauseMsMax": {share: 20},
    }
    stale = fetch_metrics([told], wall_ms=70_000 + cadence.COPY_TIMES_STALE.ms + 1)
    assert all(not m.values for m in stale if not m.name.endswith("_InThreads"))
    assert CopyTimes.from_json(b"{}") is None


def test_a_broker_that_fetches_in_threads_says_so() -> None:
    state = ThreadFetch("no module", 70_000)
    assert ThreadFetch.from_json(state.to_json()) == state
    (in_threads,) = [m for m in fetch_metrics([], 71_000, state) if m.name.endswith("_InThreads")]
    assert dict(in_threads.values) == {(): 1}
    assert ThreadFetch.from_json(b"[]").reason == "unknown"


def values_in(lines: list[str]) -> dict[str, float]:
    """Each value by name and labels; every line is a comment or a value as Prometheus wants it."""
    shape = re.compile(r'[a-zA-Z_]\w*\{(\w+="[^"]*",?)+\} [0-9.+-]+')
    values = [line for line in lines if not line.startswith("# ")]
    assert [line for line in values if not shape.fullmatch(line)] == []
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in values)}


@pytest.mark.slow
def test_brokers_that_run_are_told_over_http(tmp_path_factory: pytest.TempPathFactory) -> None:
    port = free_port()
    settings = {"stratalog.metrics.port": port, "broker.session.timeout.ms": 1_000, "broker.heartbeat.interval.ms": 200}
    with Cluster.start(tmp_path_factory.mktemp("m"), fetcher="thread", config=settings) as cluster:
        Admin(cluster).create_topic("t", 2, 3)
        with Producer(cluster, acks="all") as producer:
            for number in range(50):
                producer.send("t", b"x" * 100, partition=number % 2).result(10)
        found = fetched(port)
        assert total(found, "BrokerTopicMetrics_MessagesIn_total") == 50
        assert total(found, "BrokerTopicMetrics_BytesIn_total") >= 5_000
        assert total(found, "RequestMetrics_TotalTimeMs_count") == 50
        assert total(found, "RequestMetrics_RequestQueueTimeMs_count") == 50
        assert total(found, "KafkaController_ActiveControllerCount") == 1
        assert total(found, "ReplicaManager_LeaderCount") == 2
        assert total(found, "ReplicaManager_UnderReplicatedPartitions") == 0
        assert total(found, "KafkaController_GlobalPartitionCount") == 2
        assert total(found, "KafkaServer_BrokerState") == 3 * RunState.RUNNING
        of_log = [total(found, f"Log_{name}") for name in ("LogStartOffset", "LogEndOffset", "NumLogSegments")]
        assert of_log == [0, 50, 2]
        assert total(found, "Log_Size") > 0
        wait_until(lambda: total(fetched(port), "FetchSession_CopiesPerSec") > 0, "the fetch sessions' times")
        assert 0 < total(fetched(port), "FetchSession_CopyTimeMsMax") < 60_000
        follower = next(b for b in map(cluster.broker, cluster.brokers()) if not b.leaders)
        cluster.kill(follower.broker_id)
        wait_until(lambda: total(fetched(port), "ReplicaManager_UnderReplicatedPartitions") == 2, "smaller ISRs")
        wait_until(lambda: total(fetched(port), "KafkaController_FencedBrokerCount") == 1, "a broker that is down")
        cluster.restart(follower.broker_id)
        wait_until(lambda: total(fetched(port), "ReplicaManager_UnderReplicatedPartitions") == 0, "whole ISRs")
        assert total(fetched(port), "ReplicaManager_IsrExpands_total") >= 2
        described = Admin(cluster.root).describe_metrics()
        assert sum(told["kafka_server_ReplicaManager_LeaderCount"] for told in described.values()) == 2
        assert sum(told["kafka_controller_KafkaController_ActiveControllerCount"] for told in described.values()) == 1
        assert f"metrics at http://localhost:{port}/metrics" in cluster.describe()
        known = names(cluster.metrics())
        told = {name.partition("{")[0] for name in fetched(port)}
        assert {name for name in told if not {name, re.sub("_(bucket|sum|count)$", "", name)} & known} == set()
        with pytest.raises(HTTPError, match="404"):
            urllib.request.urlopen(f"http://localhost:{port}/other", timeout=5)
        with pytest.raises(KafkaStorageError, match=f"stratalog.metrics.port {port} cannot be listened on"):
            MetricsServer(port, cluster.brokers)


def names(metrics: Mapping[int, list[Metric]]) -> set[str]:
    return {metric.name for told in metrics.values() for metric in told}


def total(found: Mapping[str, float], name: str) -> float:
    """Over all brokers and topics."""
    return sum(value for labelled, value in found.items() if labelled.partition("{")[0].endswith(f"_{name}"))


def fetched(port: int) -> dict[str, float]:
    with urllib.request.urlopen(f"http://localhost:{port}/metrics", timeout=5) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        return values_in(answer.read().decode().splitlines())


def free_port() -> int:
    """One that a server may listen on."""
    server = MetricsServer(0, dict)
    server.close()
    return server.port
