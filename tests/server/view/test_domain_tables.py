"""Topics in a storage domain, with brokers and clients of this process, and readers of others."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from stratalog.clients.consumer.consumer import Consumer
from stratalog.clients.spark.source.read import RangeReaders, RangeToRead, ReadManner
from stratalog.clients.testing.in_memory_cluster import InMemoryCluster
from stratalog.replication.metadata.image import Result
from stratalog.replication.metadata.log import open_metadata
from stratalog.replication.requests.delete_records import DeletedRecords
from stratalog.replication.stores import DeltaStores
from stratalog.server.admin.admin import NewTopic
from stratalog.server.view.cluster_view import ClusterView
from stratalog.server.view.read_committed import ReadCommittedView
from stratalog.storage.clock import RandomIds, SystemClock
from stratalog.storage.errors import InconsistentClusterIdError, InvalidRequestError
from stratalog.storage.objects.memory import forget_memory, memory_store
from stratalog.storage.records import CONTROL_ATTRIBUTE, TopicPartition
from tests.domains import only_in_roots
from tests.waiting import wait_until

ORDERS = TopicPartition("orders", 0)
DOMAIN = {"stratalog.storage.domain": "lake"}


@pytest.fixture
def cluster() -> Iterator[InMemoryCluster]:
    only_in_roots("it makes its own")
    with InMemoryCluster.start_new(3) as made:
        admin = made.admin()
        admin.add_storage_domain("lake", lake_of(made))
        admin.create_topics([NewTopic("orders", 1, 3, {**DOMAIN, "min.insync.replicas": "2"})])
        yield made
    forget_memory(lake_of(made))


def lake_of(cluster: InMemoryCluster) -> str:
    return cluster.root.rpartition("/")[0] + "/lake"


def sent(cluster: InMemoryCluster, *values: bytes) -> None:
    with cluster.producer(acks="all") as producer:
        for future in [producer.send("orders", value, partition=0) for value in values]:
            future.result(30)


def values_in(view: ClusterView) -> list[bytes]:
    """Without the markers of transactions."""
    tables = view.records.committed_rows(ORDERS, 1 << 20)
    rows = [row for table in tables for row in table.select(["value", "attributes"]).to_pylist()]
    return [row["value"] for row in rows if not row["attributes"] & CONTROL_ATTRIBUTE]


def test_three_brokers_have_one_table(cluster: InMemoryCluster) -> None:
    sent(cluster, b"a", b"b")
    tables = {meta.path.partition("/_delta_log/")[0] for meta in memory_store(lake_of(cluster)).list("orders.")}
    (topic_id,) = {each.topic_id for each in cluster.admin().describe_topics(["orders"]).values()}
    assert tables & {f"orders.{topic_id}/orders-0"} == {f"orders.{topic_id}/orders-0"}
    roots = [memory_store(each.root) for each in cluster.admin().describe_cluster().brokers]
    assert [store.list("orders-0/") for store in roots] == [[], [], []]
    (described,) = cluster.admin().describe_storage_domains()
    assert (described.topics, described.partitions, described.durable) == (("orders",), 1, True)


def test_a_reader_elsewhere_has_what_was_acknowledged_before_anything_else_is_published(
    cluster: InMemoryCluster,
) -> None:
    """The brokers' progress objects say it with their next beat; a reader of the table does not wait for that."""
    view = ClusterView(cluster.root)
    for number in range(5):
        sent(cluster, b"%d" % number)
        assert view.watermarks.published(ORDERS) is not None
        assert values_in(view) == [b"%d" % each for each in range(number + 1)]


def test_a_reader_that_asks_for_several_again_has_what_came_since(cluster: InMemoryCluster) -> None:
    """As each batch read of one Spark session does: one view, several partitions, no wait in between."""
    cluster.admin().create_topics([NewTopic("refunds", 1, 3, DOMAIN)])
    both = [ORDERS, TopicPartition("refunds", 0)]
    views = [ClusterView(cluster.root), ReadCommittedView(cluster.root)]
    for number in range(3):
        sent(cluster, b"%d" % number)
        for view in views:
            assert view.offsets.end_offsets(both) == {ORDERS: number + 1, both[1]: 0}


@pytest.mark.parametrize("is_elsewhere", [False, True])
def test_a_consumer_that_waits_is_woken_by_a_commit(cluster: InMemoryCluster, is_elsewhere: bool) -> None:
    """By what a leader of this process says, or by the table's log, which is watched."""
    sent(cluster, b"before")
    found: list[bytes | None] = []
    with Consumer(cluster.root if is_elsewhere else cluster, auto_offset_reset="latest") as consumer:
        consumer.assign([ORDERS])
        assert consumer.position(ORDERS) == 1
        sent(cluster, b"now")
        wait_until(lambda: bool(found.extend(each.value for each in consumer.poll(1_000)) or found))
    assert found == [b"now"]


def test_another_broker_leads_with_all_that_was_committed(cluster: InMemoryCluster) -> None:
    sent(cluster, b"a", b"b")
    leader = cluster.admin().describe_topics(["orders"])["orders"].partitions[0].leader
    cluster.kill(leader)
    sent(cluster, b"c")
    state = cluster.admin().describe_topics(["orders"])["orders"].partitions[0]
    assert state.leader != leader
    assert leader not in state.isr
    cluster.restart(leader)
    wait_until(lambda: len(cluster.admin().describe_topics(["orders"])["orders"].partitions[0].isr) == 3)
    assert values_in(ClusterView(cluster.root)) == [b"a", b"b", b"c"]


def test_groups_and_transactions_live_in_a_domain() -> None:
    """Also the topics in which coordinators keep their state."""
    with InMemoryCluster.start_new(3) as cluster:
        cluster.admin().add_storage_domain("lake", lake_of(cluster))
        cluster.admin().alter_cluster_configs(DOMAIN)
        cluster.admin().create_topics([NewTopic("orders", 1, 3)])
        with cluster.producer(transactional_id="t") as producer:
            producer.init_transactions()
            producer.begin_transaction()
            producer.send("orders", b"kept")
            producer.commit_transaction()
            producer.begin_transaction()
            producer.send("orders", b"aborted")
            producer.abort_transaction()
        found: list[bytes | None] = []
        with cluster.consumer("orders", group_id="g", isolation_level="read_committed") as consumer:
            wait_until(lambda: bool(found.extend(each.value for each in consumer.poll(500)) or found))
            consumer.commit_sync()
        assert found == [b"kept"]
        image = ClusterView(cluster.root).image
        assert {state.domain for state in image.partitions.values()} == {"lake"}
        assert {state.topic for state in image.partitions.values()} == {
            "orders",
            "__consumer_offsets",
            "__transaction_state",
        }
        assert values_in(ReadCommittedView(cluster.root)) == [b"kept"]
        kill_all(cluster)
        assert values_in(ReadCommittedView(cluster.root)) == [b"kept"]  # without a broker


def test_a_deleted_topic_leaves_nothing_and_one_of_its_name_begins_anew(cluster: InMemoryCluster) -> None:
    sent(cluster, b"old")
    admin, lake = cluster.admin(), memory_store(lake_of(cluster))
    first = {meta.path.partition("/")[0] for meta in lake.list("orders.")}
    admin.delete_topics(["orders"])
    admin.create_topics([NewTopic("orders", 1, 3, DOMAIN)])
    sent(cluster, b"new")
    wait_until(lambda: not admin.list_topic_deletions())
    assert {meta.path.partition("/")[0] for meta in lake.list("orders.")}.isdisjoint(first)
    assert values_in(ClusterView(cluster.root)) == [b"new"]


def test_a_domain_is_one_clusters(cluster: InMemoryCluster) -> None:
    with InMemoryCluster.start_new(1) as other:
        with pytest.raises(InconsistentClusterIdError, match="Two clusters in one place"):
            other.admin().add_storage_domain("sea", lake_of(cluster))
        assert other.admin().describe_storage_domains() == []
        with pytest.raises(InvalidRequestError, match="the metadata root is"):
            other.admin().add_storage_domain("sea", f"{other.root}/inside")


def test_brokers_verify_one_table_as_one_copy(cluster: InMemoryCluster) -> None:
    sent(cluster, b"a")
    described = cluster.admin().describe_log_dirs()
    assert [each.replicas[ORDERS].offset_lag for each in described.values()] == [0, 0, 0]


def test_what_was_committed_is_readable_before_the_next_leader_begins(cluster: InMemoryCluster) -> None:
    """A failover interrupts no reader: the table loses nothing by an election."""
    sent(cluster, b"a", b"b")
    kill_all(cluster)
    elect(cluster)
    for view in (ClusterView(cluster.root), ReadCommittedView(cluster.root)):
        assert view.offsets.end_offsets([ORDERS]) == {ORDERS: 2}
        assert values_in(view) == [b"a", b"b"]


def test_a_spark_task_reads_the_table_before_the_next_leader_begins(cluster: InMemoryCluster) -> None:
    sent(cluster, b"a", b"b")
    kill_all(cluster)
    epoch = elect(cluster)
    readers, manner = RangeReaders(ClusterView(cluster.root)), ReadManner(("value",), True, 200)
    batches = list(readers.record_batches(RangeToRead(ORDERS, 0, 2, epoch), manner))
    assert [value for batch in batches for value in batch.to_pydict()["value"]] == [b"a", b"b"]


def test_records_are_deleted_from_the_one_table(cluster: InMemoryCluster) -> None:
    """No follower has to delete them, too."""
    sent(cluster, b"a", b"b", b"c")
    assert cluster.admin().delete_records({ORDERS: 2}) == {ORDERS: DeletedRecords(2)}
    assert values_in(ClusterView(cluster.root)) == [b"c"]


def test_no_follower_of_the_one_table_lags(cluster: InMemoryCluster) -> None:
    sent(cluster, b"a", b"b")
    lags = [each for told in cluster.metrics().values() for each in told if each.name.endswith("_maxlag")]
    assert [list(each.values.values()) for each in lags] == [[0], [0], [0]]


def elect(cluster: InMemoryCluster) -> int:
    """The next leader epoch, which nobody has begun."""
    metadata = open_metadata(DeltaStores(RandomIds()), cluster.root, SystemClock(), RandomIds())
    metadata.refresh()
    elected = metadata.image.partition(ORDERS).changed(bump_leader_epoch=True)
    metadata.propose(lambda _image: Result((elected,), None))
    return elected.leader_epoch


def kill_all(cluster: InMemoryCluster) -> None:
    for broker in cluster.admin().describe_cluster().brokers:
        cluster.kill(broker.broker_id)
