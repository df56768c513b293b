"""Damage on a real disk, in running brokers, stays in one replica and is repaired from the leader; clients see none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from stratalog.clients.admin.admin import Admin
from stratalog.clients.consumer.consumer import Consumer
from stratalog.clients.producer.producer import Producer
from stratalog.server.admin.admin import NewTopic
from stratalog.server.cluster import Cluster
from stratalog.server.view.cluster_view import ClusterView
from stratalog.storage.clock import RandomIds
from stratalog.storage.delta.delta_table import DeltaLogTable
from stratalog.storage.errors import StratalogError
from stratalog.storage.objects.opened import open_store
from stratalog.storage.records import TopicPartition
from tests.domains import only_in_roots
from tests.lab.real.harness.parties import replicas_are_equal
from tests.storage.files.test_damage import cut_short, in_a_page, in_the_footer
from tests.waiting import wait_until

BROKERS = (1, 2, 3)
SETTINGS = {
    "broker.session.timeout.ms": 1_500,
    "broker.heartbeat.interval.ms": 300,
    "stratalog.scrub.interval.ms": 2_000,
    "stratalog.upkeep.interval.ms": 100,
    "stratalog.tail.cache.bytes": 0,
}
CALM = TopicPartition("calm", 0)
_NUMBERS = count()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster.start(tmp_path_factory.mktemp("damaged"), fetcher="thread", config=SETTINGS) as running:
        Admin(running).create_topics([NewTopic("calm", 3, 3, {"min.insync.replicas": 3})])
        yield running


def replica(cluster: Cluster, broker_id: int, topic: str) -> Path:
    only_in_roots("one replica is damaged, in its broker's root")
    return cluster.path / f"broker-{broker_id}" / f"{topic}-0"


def data_files(table: Path) -> list[Path]:
    return sorted(table.glob("segment=*/**/*.parquet"))


def newest_commit(table: Path) -> Path:
    return max(table.glob("_delta_log/*.json"))


def a_flipped_bit(table: Path) -> None:
    in_a_page(data_files(table)[1])


def a_flipped_footer(table: Path) -> None:
    in_the_footer(data_files(table)[0])


def a_short_file(table: Path) -> None:
    cut_short(data_files(table)[2])


def a_lost_file(table: Path) -> None:
    data_files(table)[1].unlink()


def a_half_written_commit(table: Path) -> None:
    newest = newest_commit(table)
    (newest.parent / f"{int(newest.stem) + 1:020}.json").write_bytes(newest.read_bytes()[:100])


def garbage_as_a_commit(table: Path) -> None:
    newest = newest_commit(table)
    (newest.parent / f"{int(newest.stem) + 1:020}.json").write_bytes(b"\x00\xff" * 40)


DAMAGES = [a_flipped_bit, a_flipped_footer, a_short_file, a_lost_file, a_half_written_commit, garbage_as_a_commit]


def send(producer: Producer, topic: str, value: str, partition: int = 0) -> int:
    return producer.send(topic, value, partition=partition).result(30).offset


def send_in_the_end(producer: Producer, topic: str, value: str) -> int:
    """Send until it is stored: once, by an idempotent producer, also when a replica that goes offline refused it."""
    for _ in range(20):
        try:
            return send(producer, topic, value)
        except StratalogError:
            continue
    return send(producer, topic, value)


def isr_of(cluster: Cluster, topic: str) -> tuple[int, ...]:
    return tuple(sorted(Admin(cluster).describe_topics([topic])[topic].partitions[0].isr))


def is_whole(cluster: Cluster, broker_id: int, topic: str) -> bool:
    """The replica can be read from its first commit to the last bit, and no damage is recorded."""
    root = open_store(str(cluster.path / f"broker-{broker_id}"))
    table = DeltaLogTable(root, f"{topic}-0", RandomIds())
    try:
        snapshot = table.snapshot()
        if snapshot is None or table.damage() is not None:
            return False
        table.check_files([entry.file for entry in snapshot.files], bits=True)
    except StratalogError:
        return False
    return True


@pytest.mark.parametrize("harm", DAMAGES)
@pytest.mark.parametrize("is_leader", [False, True], ids=["follower", "leader"])
def test_a_damaged_replica_is_repaired_and_clients_see_none_of_it(
    cluster: Cluster, harm: Callable[[Path], None], is_leader: bool
) -> None:
    topic = f"orders-{next(_NUMBERS)}"
    place = TopicPartition(topic, 0)
    Admin(cluster).create_topics([NewTopic(topic, 1, 3, {"min.insync.replicas": 2})])
    with Producer(cluster, acks="all") as producer:
        for number in range(4):
            send(producer, topic, str(number))
        wait_until(lambda: replicas_are_equal(cluster.path, topic, BROKERS, 1), "equal replicas")
        view = ClusterView(cluster)
        leader = view.leader(place)
        damaged = leader if is_leader else next(each for each in BROKERS if each != leader)
        epoch_before = view.image.partition(place).leader_epoch
        harm(replica(cluster, damaged, topic))
        calm_before = send(producer, "calm", "before")
        send_in_the_end(producer, topic, "4")

        def has_left_the_isr() -> bool:
            view.refresh()
            return view.image.partition(place).leader_epoch > epoch_before

        wait_until(has_left_the_isr, f"an epoch in which broker {damaged} does not count")
        wait_until(lambda: is_whole(cluster, damaged, topic), f"a repaired replica of broker {damaged}")
        wait_until(lambda: isr_of(cluster, topic) == BROKERS, "all in sync again")
        send_in_the_end(producer, topic, "5")
        wait_until(lambda: replicas_are_equal(cluster.path, topic, BROKERS, 1), "equal replicas again")
        if is_leader:
            assert view.leader(place) != damaged
        assert send(producer, "calm", "after") == calm_before + 1
        assert isr_of(cluster, "calm") == BROKERS
    with Consumer(cluster.root, auto_offset_reset="earliest") as consumer:
        consumer.assign([place])
        assert [(record.offset, record.value) for record in consumer.poll(10_000)] == [
            (number, str(number).encode()) for number in range(6)
        ]


def test_a_damaged_replica_does_not_lead_while_a_clean_one_lives(tmp_path: Path) -> None:
    """Files are read once a day, so the damage is unknown at the election: a leader checks its replica at its start."""
    settings = {**SETTINGS, "stratalog.scrub.interval.ms": 86_400_000}
    place = TopicPartition("orders", 0)
    with Cluster.start(tmp_path / "cluster", fetcher="thread", config=settings) as cluster:
        Admin(cluster).create_topics([NewTopic("orders", 1, 3, {"min.insync.replicas": 1})])
        with Producer(cluster, acks="all") as producer:
            for number in range(4):
                send(producer, "orders", str(number))
        wait_until(lambda: replicas_are_equal(cluster.path, "orders", BROKERS, 1), "equal replicas")
        view = ClusterView(cluster)
        leader = view.leader(place)
        damaged, clean = (each for each in view.image.partition(place).replicas if each != leader)
        data_files(replica(cluster, damaged, "orders"))[3].unlink()
        cluster.kill(leader)
        wait_until(lambda: leads(view, place, clean), f"broker {clean} as leader, not {damaged}")
        with Producer(cluster, acks="all", delivery_timeout_ms=60_000) as producer:
            assert send_in_the_end(producer, "orders", "4") == 4
        wait_until(lambda: is_whole(cluster, damaged, "orders"), "a healed replica")
        wait_until(lambda: isr_of(cluster, "orders") == tuple(sorted((damaged, clean))), "both in sync")
        wait_until(lambda: replicas_are_equal(cluster.path, "orders", (damaged, clean), 1), "equal replicas again")


def leads(view: ClusterView, place: TopicPartition, broker_id: int) -> bool:
    view.refresh()
    return view.image.partition(place).leader == broker_id
