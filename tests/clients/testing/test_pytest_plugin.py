"""The fixtures as a user has them: pytest runs the page's example and a test of each failure in its own process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, read_page

CONFTEST = """
import pytest

@pytest.fixture(scope="session")
def kafka_cluster_options():
    return {"config": {"default.replication.factor": 3}}
"""

FAILURES = """
import time

import pytest
from kafka import KafkaConsumer, KafkaProducer
from stratalog.storage.errors import ProducerFencedError, StoreUnavailableError
from stratalog.storage.objects.opened import open_store


def sent(cluster, topic, value=b"x"):
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, acks="all", retries=50) as producer:
        return producer.send(topic, value).get(20)


@pytest.mark.kafka_topic(partitions=2, config={"min.insync.replicas": 2})
def test_a_topic_as_its_marker_says(kafka_cluster, kafka_topic):
    described = kafka_cluster.admin().describe_topics([kafka_topic])[kafka_topic]
    assert kafka_topic.startswith("test_a_topic_as_its_marker_says-")
    assert [len(each.replicas) for each in described.partitions] == [3, 3]
    assert described.configs["min.insync.replicas"] == "2"


def test_another_leads_when_a_broker_is_killed(kafka_cluster, kafka_topic):
    sent(kafka_cluster, kafka_topic)
    leader = kafka_cluster.admin().describe_topics([kafka_topic])[kafka_topic].partitions[0].leader
    kafka_cluster.kill(leader)
    assert kafka_cluster.stopped_brokers() == [leader]
    assert sent(kafka_cluster, kafka_topic).offset == 1


def test_brokers_run_again_in_the_next_test(kafka_cluster, kafka_topic):
    assert kafka_cluster.stopped_brokers() == []
    assert sorted(kafka_cluster.brokers()) == [1, 2, 3]


def test_a_slow_store_delays_acknowledgements(kafka_cluster, kafka_topic):
    sent(kafka_cluster, kafka_topic)
    kafka_cluster.slow_store(150)
    begun_s = time.monotonic()
    sent(kafka_cluster, kafka_topic)
    assert time.monotonic() - begun_s >= 0.3  # a file and a commit, at the leader alone


def test_a_store_that_fails(kafka_cluster, kafka_topic):
    store = open_store(kafka_cluster.root.replace("metadata", "broker-2"))
    kafka_cluster.fail_store(2)
    with pytest.raises(StoreUnavailableError, match="a test asked for that"):
        store.get_optional("meta.properties")
    kafka_cluster.heal()
    assert store.get_optional("meta.properties")


def test_a_producer_is_fenced(kafka_cluster, kafka_topic):
    with kafka_cluster.producer(transactional_id="orders") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(kafka_topic, b"lost").result(20)
        kafka_cluster.fence_producer("orders")
        with pytest.raises(ProducerFencedError):
            producer.commit_transaction()
    sent(kafka_cluster, kafka_topic, b"kept")
    assert [each.value for each in kafka_cluster.records(kafka_topic)] == [b"kept"]


def test_a_leader_moves(kafka_cluster, kafka_topic):
    before = kafka_cluster.admin().describe_topics([kafka_topic])[kafka_topic].partitions[0].leader
    moved = kafka_cluster.move_leader(kafka_topic)
    assert moved != before
    assert kafka_cluster.admin().describe_topics([kafka_topic])[kafka_topic].partitions[0].leader == moved
    sent(kafka_cluster, kafka_topic)


def test_a_group_reads(kafka_cluster, kafka_topic):
    sent(kafka_cluster, kafka_topic)
    consumer = KafkaConsumer(
        kafka_topic, bootstrap_servers=kafka_cluster.bootstrap_servers, group_id="readers",
        auto_offset_reset="earliest", consumer_timeout_ms=20_000,
    )
    assert next(consumer).value == b"x"
    consumer.close()
    ours = kafka_cluster.consumer(kafka_topic)
    assert [each.value for each in ours.poll(20_000)] == [b"x"]
    ours.close()
"""


@pytest.mark.slow
def test_the_pages_example_and_every_failure(tmp_path: Path) -> None:
    (example,) = [each for each in read_page("docs/testing.md").blocks if each.language == "python"]
    (tmp_path / "test_orders.py").write_text(example.text, encoding="utf-8")
    (tmp_path / "test_failures.py").write_text(FAILURES, encoding="utf-8")
    (tmp_path / "conftest.py").write_text(CONFTEST, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--strict-markers", str(tmp_path)],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert "9 passed" in done.stdout
    left = [path for path in tmp_path.rglob("*") if path.is_dir() and path.name.startswith("memory-")]
    assert left == []
