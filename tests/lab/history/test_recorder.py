"""A producer and a consumer that write down what they do; their histories are clean, and what is planted is found."""

from __future__ import annotations

from pathlib import Path

import pytest

from stratalog.clients.consumer.consumer import Consumer
from stratalog.clients.producer.producer import Producer
from stratalog.server.view.cluster_view import ClusterView
from stratalog.storage.errors import RecordTooLargeError
from stratalog.storage.records import TopicPartition
from tests.clients.memory_cluster import ROOT, MemoryCluster
from tests.clients.still_cluster import StillCluster
from tests.lab.history.checker import check
from tests.lab.history.history import ACK, FAIL, POLL, SEEK, SEND
from tests.lab.history.recorder import History, RecordingConsumer, RecordingProducer, read_events
from tests.lab.history.stored import stored_events

TP = TopicPartition("t", 0)


def test_a_history_survives_its_file_and_loses_only_a_torn_line(tmp_path: Path) -> None:
    history = History(tmp_path / "run.jsonl")
    history.add("p1", SEND, value="a:1")
    history.add("p1", ACK, 0, 7, 2, "a:1")
    history.close()
    with (tmp_path / "run.jsonl").open("a") as torn:
        torn.write('[12,"p1","se')
    found = read_events(tmp_path / "run.jsonl")
    assert [(e.client, e.kind, e.partition, e.offset, e.epoch, e.value) for e in found] == [
        ("p1", SEND, -1, -1, -1, "a:1"),
        ("p1", ACK, 0, 7, 2, "a:1"),
    ]
    assert history.counts == {SEND: 1, ACK: 1}
    assert read_events(tmp_path / "absent.jsonl") == []


def test_what_is_sent_and_polled_is_written_down(tmp_path: Path) -> None:
    cluster = MemoryCluster()
    cluster.create_topic("t")
    history = History(tmp_path / "run.jsonl")
    producer = RecordingProducer(memory_producer(cluster), history, "p1")
    for number in (1, 2):
        producer.send("t", f"a:{number}", key=b"a").result(5)
    with pytest.raises(RecordTooLargeError):
        producer.send("t", b"x" * 2_000_000).result(5)
    producer.close(5)
    reader = RecordingConsumer(memory_consumer(cluster), history, "c1")
    reader.assign([TP])
    assert [record.value for record in reader.poll(1_000)] == [b"a:1", b"a:2"]
    reader.seek_to_beginning()
    reader.seek(TP, 1)
    assert [record.value for record in reader.poll(1_000)] == [b"a:2"]
    reader.close()
    events = history.events()
    told = [(e.client, e.kind, e.offset, e.value, e.call) for e in events if e.kind in (ACK, POLL, SEEK)]
    assert told == [
        ("p1", ACK, 0, "a:1", 1),
        ("p1", ACK, 1, "a:2", 2),
        ("c1", SEEK, -1, "", -1),
        ("c1", POLL, 0, "a:1", 1),
        ("c1", POLL, 1, "a:2", 1),
        ("c1", SEEK, 0, "", -1),
        ("c1", SEEK, 1, "", -1),
        ("c1", POLL, 1, "a:2", 2),
    ]
    assert history.counts[SEND] == 3
    assert [e.value.split()[1] for e in events if e.kind == FAIL] == ["MESSAGE_TOO_LARGE"]
    assert {e.topic for e in events} == {"t"}
    assert check(events) == []


def memory_producer(cluster: MemoryCluster) -> Producer:
    return Producer(cluster, view=ClusterView(ROOT, stores=cluster.stores))


def memory_consumer(cluster: MemoryCluster) -> Consumer:
    return Consumer(ROOT, view=ClusterView(ROOT, stores=cluster.stores), auto_offset_reset="earliest")


@pytest.fixture
def recorded(tmp_path: Path) -> tuple[StillCluster, Path]:
    """Three records on both replicas, and the history of how they came there and were read."""
    cluster = StillCluster(tmp_path)
    cluster.create_topic("t", 1)
    history = History(tmp_path / "run.jsonl")
    values = [f"k:{number}" for number in range(3)]
    for call, value in enumerate(values):
        history.add("p1", SEND, value=value, topic="t", call=call)
    cluster.commit(TP, values)
    for call, value in enumerate(values):
        history.add("p1", ACK, 0, call, value=value, topic="t", call=call)
    copy = cluster.log(TP, 2)
    copy.exists_or_create("id-of-t")
    copy.start_epoch(0, as_leader=False)
    copy.copy_from(cluster.log(TP, 1), 0, 1 << 30)
    for call, value in enumerate(values[:2]):
        history.add("c1", POLL, 0, call, value=value, topic="t", call=call)
    history.close()
    return cluster, history.path


def test_what_the_replicas_hold_ends_the_history(recorded: tuple[StillCluster, Path]) -> None:
    cluster, path = recorded
    stored = list(stored_events(cluster.view(), "t"))
    assert [(e.client, e.kind, e.where, e.value) for e in stored] == [
        (f"broker-{broker}", kind, f"t-0@{offset}", value)
        for broker in (1, 2)
        for kind, offset, value in (("holds", 0, ""), *(("stored", n, f"k:{n}") for n in range(3)))
    ]
    assert check([*read_events(path), *stored]) == []
