"""What published dashboards and alerts ask for is in a scrape of a running broker; so is the lag of groups."""

from __future__ import annotations

import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import kafka
import pytest
from deltalake import DeltaTable
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from stratalog.clients.admin.admin import Admin
from stratalog.server.cluster import Cluster
from tests.deploy.test_monitoring import PROMETHEUS_OWN, expressions, names_of
from tests.lab.dashboards.expressions import asked, published
from tests.server.metrics.test_broker_page import three_free_ports
from tests.waiting import wait_until

LAG_INTERVAL_MS = 200


class Scraped:
    """A broker with traffic and a group, and its metrics port."""

    def __init__(self, cluster: Cluster, port: int) -> None:
        self.cluster = cluster
        self.port = port

    def samples(self) -> list[Sample]:
        with urllib.request.urlopen(f"http://localhost:{self.port}/metrics", timeout=10) as answer:
            text = answer.read().decode()
        return [sample for family in text_string_to_metric_families(text) for sample in family.samples]

    def value(self, name: str, **labels: str) -> float | None:
        """Of the series with these labels; None without one."""
        return next((s.value for s in self.samples() if s.name == name and labels.items() <= s.labels.items()), None)


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scraped]:
    port = three_free_ports()
    config = {
        "stratalog.metrics.port": port,
        "listeners": "PLAINTEXT://localhost:0",
        "offsets.topic.replication.factor": 1,
        "offsets.topic.num.partitions": 2,
        "group.initial.rebalance.delay.ms": 0,
        "stratalog.lag.interval.ms": LAG_INTERVAL_MS,
    }
    with Cluster.start(tmp_path_factory.mktemp("scraped"), brokers=1, fetcher="thread", config=config) as cluster:
        Admin(cluster).create_topic("t", 2, 1)
        produce(cluster, 10)
        consume(cluster, "g")
        made = Scraped(cluster, port)
        wait_until(lambda: made.value("kafka_consumergroup_lag", consumergroup="g") is not None, "a measured group")
        yield made


def produce(cluster: Cluster, count: int) -> None:
    with kafka.KafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for number in range(count):
            producer.send("t", b"%d" % number, partition=0).get(30)


def consume(cluster: Cluster, group: str) -> None:
    """Read all that is there, and commit."""
    settings = {"auto_offset_reset": "earliest", "enable_auto_commit": False, "consumer_timeout_ms": 10_000}
    with kafka.KafkaConsumer(bootstrap_servers=cluster.bootstrap_servers, group_id=group, **settings) as consumer:
        consumer.assign([kafka.TopicPartition("t", 0)])
        end = consumer.end_offsets([kafka.TopicPartition("t", 0)])[kafka.TopicPartition("t", 0)]
        while consumer.position(kafka.TopicPartition("t", 0)) < end:
            consumer.poll(500)
        consumer.commit()


def settled(lacking: Callable[[], object]) -> None:
    """Wait until nothing is lacking. A broker shows some series only while it leads or is the controller, which it is
    not for a moment when its session has lapsed on a busy machine."""
    wait_until(lambda: not lacking(), f"series that are asked for: {lacking()}")


def test_every_expression_finds_its_series(scraped: Scraped) -> None:
    def lacking() -> list[tuple[str, str, str, list[str]]]:
        found = scraped.samples()
        return [
            (board, title, each.name, sorted(each.labels))
            for board, title, expression in published().all
            for each in asked(expression)
            if not any(
                sample.name == each.name and all(sample.labels.get(name) for name in each.labels) for sample in found
            )
        ]

    settled(lacking)


def test_our_own_dashboard_and_alerts_find_their_series(scraped: Scraped) -> None:
    asked_for = [(where, name) for where, text in expressions() for name in names_of(text) - PROMETHEUS_OWN]

    def lacking() -> list[tuple[str, str]]:
        names = {sample.name for sample in scraped.samples()}
        return [(where, name) for where, name in asked_for if name not in names]

    settled(lacking)


def test_the_dashboards_ask_for_as_many_names_as_they_did() -> None:
    """The file is whole: names of brokers' metrics by dashboard, and alerts."""
    names = {
        board: {each.name for _, text in rows for each in asked(text) if each.name.startswith("kafka_")}
        for board, rows in published().panels.items()
    }
    assert {board: len(found) for board, found in names.items()} == {
        "strimzi-kafka": 22, "strimzi-kraft": 13, "strimzi-kafka-exporter": 12,
    }  # fmt: skip
    assert (
        len([name for name, text in published().alerts.items() if "kafka_topic" not in text and "group" not in text])
        == 5
    )


def test_series_of_topics_are_there_with_and_without_the_topic(scraped: Scraped) -> None:
    name = "kafka_server_brokertopicmetrics_messagesin_total"
    by_topic = {sample.labels.get("topic", ""): sample.value for sample in scraped.samples() if sample.name == name}
    assert by_topic["t"] >= 10
    assert by_topic[""] == sum(value for topic, value in by_topic.items() if topic)


def test_no_series_has_a_label_of_the_broker(scraped: Scraped) -> None:
    """kafbat takes a rate with exactly one label for the broker's; Prometheus knows the broker by its target."""
    assert [sample for sample in scraped.samples() if "broker" in sample.labels] == []
    rates = [
        sample
        for sample in scraped.samples()
        if "brokertopicmetrics" in sample.name and sample.name.endswith("fifteenminuterate")
    ]
    of_broker = {sample.labels["name"] for sample in rates if len(sample.labels) == 1}
    assert {"BytesInPerSec", "BytesOutPerSec"} <= of_broker
    assert {tuple(sample.labels) for sample in rates if len(sample.labels) > 1} == {("name", "topic")}


def test_every_api_has_the_parts_of_its_time(scraped: Scraped) -> None:
    parts = ("requestqueue", "local", "remote", "responsequeue", "responsesend", "total")
    counts = {
        part: {
            sample.labels["request"]: sample.value
            for sample in scraped.samples()
            if sample.name == f"kafka_network_requestmetrics_{part}timems_count"
        }
        for part in parts
    }
    assert {"Produce", "Fetch", "Metadata", "OffsetCommit", "ApiVersions"} <= set(counts["total"])
    assert {part: set(found) for part, found in counts.items()} == {part: set(counts["total"]) for part in parts}


def test_lag_in_seconds_is_what_the_table_says(scraped: Scraped) -> None:
    consume(scraped.cluster, "late")
    of_group = {"consumergroup": "late", "partition": "0"}
    wait_until(lambda: scraped.value("kafka_consumergroup_lag_seconds", **of_group) == 0, "a group without lag")
    committed = scraped.value("kafka_consumergroup_current_offset", **of_group)
    produce(scraped.cluster, 3)
    wait_until(lambda: scraped.value("kafka_consumergroup_lag", **of_group) == 3, "three unread records")
    wait_until(lambda: (scraped.value("kafka_consumergroup_lag_seconds", **of_group) or 0) > 0, "their age")
    root = Path(scraped.cluster.root).parent / "broker-1" / "t-0"
    rows = DeltaTable(str(root)).to_pyarrow_table(columns=["base_offset", "offset_delta", "timestamp"]).to_pylist()
    (written,) = (row["timestamp"] for row in rows if row["base_offset"] + row["offset_delta"] == committed)
    before_s = time.time()
    lag_s = scraped.value("kafka_consumergroup_lag_seconds", **of_group)
    after_s = time.time()
    assert lag_s is not None
    kept_s = 1.0  # a page is kept for so long at most
    assert before_s - written.timestamp() - kept_s - 0.01 <= lag_s <= after_s - written.timestamp() + 0.01
    assert scraped.value("kafka_consumergroup_members", consumergroup="late") == 0
