"""Topics that move between brokers' roots and storage domains, or have copies there, while clients use them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from stratalog.clients.admin.groups import GroupAdmin, StoredGroups
from stratalog.clients.testing.in_memory_cluster import InMemoryCluster
from stratalog.replication.metadata.records import PartitionRecord
from stratalog.server.admin.admin import NewTopic
from stratalog.server.view.cluster_view import ClusterView
from stratalog.storage.errors import InvalidRequestError, StoreUnavailableError
from stratalog.storage.objects.memory import forget_memory, memory_store
from stratalog.storage.records import CONTROL_ATTRIBUTE, TopicPartition
from tests.waiting import wait_until

ORDERS = TopicPartition("orders", 0)
HOME, COPIES = "stratalog.storage.domain", "stratalog.storage.copies"
DOMAINS = ("lake", "sea")


@pytest.fixture
def cluster() -> Iterator[InMemoryCluster]:
    with InMemoryCluster.start_new(4) as made:
        for name in DOMAINS:
            made.admin().add_storage_domain(name, place_of(made, name))
        yield made
    for name in DOMAINS:
        forget_memory(place_of(made, name))


def place_of(cluster: InMemoryCluster, name: str) -> str:
    return f"{cluster.root.rpartition('/')[0]}/{name}"


def made(cluster: InMemoryCluster, factor: int = 3, **configs: str) -> None:
    named = {name.replace("_", "."): value for name, value in configs.items()}
    cluster.admin().create_topics(
        [NewTopic("orders", 1, factor, {"min.insync.replicas": str(min(2, factor)), **named})]
    )


def sent(cluster: InMemoryCluster, *values: bytes) -> None:
    with cluster.producer(acks="all") as producer:
        for future in [producer.send("orders", value, partition=0) for value in values]:
            future.result(30)


def values_of(cluster: InMemoryCluster) -> list[bytes]:
    """What a reader of storage sees, that has just come."""
    tables = ClusterView(cluster.root).records.committed_rows(ORDERS, 1 << 20)
    rows = [row for table in tables for row in table.select(["value", "attributes"]).to_pylist()]
    return [row["value"] for row in rows if not row["attributes"] & CONTROL_ATTRIBUTE]


def moved(cluster: InMemoryCluster, **configs: str | None) -> PartitionRecord:
    """The partition's state once the move that these configs ask for is over."""
    named = {name.replace("_", "."): value for name, value in configs.items()}
    cluster.admin().alter_configs("orders", named)
    return settled(cluster)


def settled(cluster: InMemoryCluster) -> PartitionRecord:
    view = ClusterView(cluster.root)

    def is_settled() -> bool:
        view.refresh()
        found = view.partition_state(ORDERS)
        return not found.target and len(found.isr) == len(found.replicas) and found.leader >= 0

    wait_until(is_settled, f"{ORDERS} settles")
    return view.partition_state(ORDERS)


def tables_in(cluster: InMemoryCluster, name: str) -> set[str]:
    found = memory_store(place_of(cluster, name)).list("orders.")
    return {meta.path.partition("/_delta_log/")[0] for meta in found if "/_delta_log/" in meta.path}


def tables_in_roots(cluster: InMemoryCluster) -> list[int]:
    brokers = cluster.admin().describe_cluster().brokers
    return [each.broker_id for each in brokers if memory_store(each.root).list("orders-0/_delta_log/")]


def test_from_roots_to_a_domain_and_back(cluster: InMemoryCluster) -> None:
    made(cluster)
    sent(cluster, b"a", b"b")
    before = settled(cluster)
    state = moved(cluster, stratalog_storage_domain="lake")
    assert state.has_one_table
    assert (set(state.replicas), state.domain, state.left) == (set(before.replicas), "lake", ())
    assert len(tables_in(cluster, "lake")) == 1
    sent(cluster, b"c")
    assert values_of(cluster) == [b"a", b"b", b"c"]
    state = moved(cluster, stratalog_storage_domain="")
    assert (state.domain, state.elsewhere, set(state.replicas)) == ("", (), set(before.replicas))
    sent(cluster, b"d")
    assert values_of(cluster) == [b"a", b"b", b"c", b"d"]
    assert set(tables_in_roots(cluster)) >= set(before.replicas)


def test_an_erasure_shows_what_was_left_in_a_domain(cluster: InMemoryCluster) -> None:
    made(cluster, stratalog_storage_domain="lake", file_delete_delay_ms="3600000")
    sent(cluster, b"a")
    assert moved(cluster, stratalog_storage_domain="sea").left == ("lake",)
    admin = cluster.admin()
    erase_id = admin.delete_where("orders", {"key": {"equals": "nobody"}})
    (leftover,) = admin.describe_erasure("orders", erase_id).leftovers
    assert (leftover.file_count, "/lake/orders." in leftover.directory, leftover.error) == (1, True, None)


def test_one_replica_moves_between_domains_by_another_broker(cluster: InMemoryCluster) -> None:
    made(cluster, 1, stratalog_storage_domain="lake")
    sent(cluster, b"a")
    before = settled(cluster)
    state = moved(cluster, stratalog_storage_domain="sea")
    assert (state.replicas, state.domain, state.elsewhere) == (before.replicas, "sea", ())
    sent(cluster, b"b")
    assert values_of(cluster) == [b"a", b"b"]
    state = moved(cluster, stratalog_storage_domain="")
    assert (state.replicas, state.domain, state.elsewhere) == (before.replicas, "", ())
    sent(cluster, b"c")
    assert values_of(cluster) == [b"a", b"b", b"c"]


def test_a_copy_follows_and_leads(cluster: InMemoryCluster) -> None:
    made(cluster, 2, stratalog_storage_domain="lake", stratalog_storage_copies="sea")
    state = settled(cluster)
    at_home, copies = state.replicas[:2], state.replicas[2:]
    assert [state.domain_of(each) for each in state.replicas] == ["lake", "lake", "sea", "sea"]
    assert state.leader in at_home
    sent(cluster, b"a", b"b")
    assert len(tables_in(cluster, "sea")) == 1
    for broker_id in at_home:
        cluster.kill(broker_id)
    view = ClusterView(cluster.root)

    def leader() -> bool:
        view.refresh()
        return view.partition_state(ORDERS).leader in copies

    wait_until(leader, "a copy leads")
    sent(cluster, b"c")
    assert values_of(cluster) == [b"a", b"b", b"c"]
    cluster.admin().alter_configs("orders", {HOME: "sea", COPIES: "lake"})
    for broker_id in at_home:
        cluster.restart(broker_id)
    state = settled(cluster)
    assert (state.domain, state.domain_of(at_home[0]), state.leader in copies) == ("sea", "lake", True)
    sent(cluster, b"d")
    state = moved(cluster, stratalog_storage_domain="lake", stratalog_storage_copies="sea")
    assert state.leader in at_home
    assert values_of(cluster) == [b"a", b"b", b"c", b"d"]


EAST, WEST = (1, 2), (3, 4)
REGIONS = {**dict.fromkeys(EAST, "east"), **dict.fromkeys(WEST, "west")}
TWO_REGIONS = {
    "offsets.topic.replication.factor": 2,
    "transaction.state.log.replication.factor": 2,
    "transaction.state.log.min.isr": 2,
}


@pytest.fixture
def regions() -> Iterator[InMemoryCluster]:
    """The lake is used by brokers 1 and 2, the sea by 3 and 4. All topics are led in the lake and copied to the sea."""
    with InMemoryCluster.start_new(4, TWO_REGIONS, REGIONS) as made:
        for name, rack in zip(DOMAINS, ("east", "west"), strict=True):
            made.admin().add_storage_domain(name, place_of(made, name), racks=[rack])
        made.admin().alter_cluster_configs({HOME: "lake", COPIES: "sea"})
        yield made
    for name in DOMAINS:
        forget_memory(place_of(made, name))


def all_are(cluster: InMemoryCluster, is_so: Callable[[PartitionRecord], bool], what: str) -> None:
    view = ClusterView(cluster.root)

    def are() -> bool:
        view.refresh()
        return all(is_so(state) for state in view.image.partitions.values())

    wait_until(are, what)


def transaction(cluster: InMemoryCluster, *values: bytes) -> None:
    with cluster.producer(transactional_id="tx") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        for value in values:
            producer.send("orders", value, partition=0)
        producer.commit_transaction()


def consumed(cluster: InMemoryCluster, count: int) -> list[bytes | None]:
    """What a member of the group gets next; it commits behind that."""
    found: list[bytes | None] = []
    with cluster.consumer("orders", group_id="g", auto_offset_reset="earliest") as consumer:

        def has_read() -> bool:
            found.extend(record.value for record in consumer.poll(500))
            return len(found) >= count

        wait_until(has_read, f"{count} records are read")
        consumer.commit_sync()
    return found


def committed_by_group(cluster: InMemoryCluster) -> int:
    view = ClusterView(cluster.root)
    return GroupAdmin(StoredGroups(view), view).committed("g")[ORDERS].offset


def out_of_reach() -> None:
    raise StoreUnavailableError("the region is gone")


def test_a_lost_region(regions: InMemoryCluster) -> None:
    """The lake and its brokers are gone for good. Records, committed offsets and transactions go on in the sea, and
    later in another place of the old region."""
    admin = regions.admin()
    made(regions, 2)
    sent(regions, b"a", b"b")
    transaction(regions, b"c")
    assert consumed(regions, 3) == [b"a", b"b", b"c"]
    all_are(regions, lambda state: len(state.isr) == 4 and state.domain == "lake", "all copies are in sync")
    before = committed_by_group(regions)
    for broker_id in EAST:
        regions.kill(broker_id)
    memory_store(place_of(regions, "lake")).access = out_of_reach
    all_are(regions, lambda state: state.leader in WEST, "the sea leads")
    admin.promote_storage_domain("sea", leave=["lake"])
    all_are(regions, lambda state: not state.target and state.has_one_table, "nothing of the lake is left")
    with pytest.raises(InvalidRequestError, match="is in use"):
        admin.remove_storage_domain("lake")
    admin.remove_storage_domain("lake", is_lost=True)
    assert committed_by_group(regions) == before
    transaction(regions, b"d")
    assert consumed(regions, 1) == [b"d"]
    assert values_of(regions) == [b"a", b"b", b"c", b"d"]
    admin.add_storage_domain("pond", place_of(regions, "pond"), racks=["east"])
    for broker_id in EAST:
        regions.restart(broker_id)
    for topic in admin.list_topics():
        admin.alter_configs(topic, {COPIES: "pond"})
    all_are(regions, lambda state: not state.target and len(state.isr) == 4, "the pond has copies")
    promoted = admin.promote_storage_domain("pond")
    assert promoted.unclean == ()
    all_are(regions, lambda state: state.domain == "pond" and state.leader in EAST, "the pond leads")
    assert committed_by_group(regions) > before
    transaction(regions, b"e")
    assert consumed(regions, 1) == [b"e"]
    forget_memory(place_of(regions, "pond"))


def test_a_reader_whose_metadata_are_old_reads_nothing_that_waits_for_a_copy(cluster: InMemoryCluster) -> None:
    """It takes the lake's table for the only one. What is appended under the next leader epoch waits for the sea."""
    made(cluster, 1, stratalog_storage_domain="lake")
    sent(cluster, b"a")
    old = ClusterView(cluster.root)
    known = old.watermarks.published(ORDERS)
    assert known is not None
    assert known.high_watermark == 1
    changes = {COPIES: "sea", "min.insync.replicas": "2"}
    cluster.admin().alter_configs("orders", changes)
    state = settled(cluster)
    assert len(state.replicas) == 2
    cluster.kill(state.replicas[1])
    view = ClusterView(cluster.root)
    wait_until(lambda: view.refresh() and view.partition_state(ORDERS).isr == state.replicas[:1], "the copy is fenced")
    with cluster.producer(acks=1) as producer:
        producer.send("orders", b"b", partition=0).result(30)
    found = old.watermarks.published(ORDERS)
    assert found is not None
    assert found.high_watermark == 1
    cluster.restart(state.replicas[1])
    settled(cluster)
    wait_until(lambda: values_of(cluster) == [b"a", b"b"], "the copy has it")
