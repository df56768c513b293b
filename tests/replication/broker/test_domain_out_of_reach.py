"""Brokers that cannot write to a storage domain: another one leads, nobody bounces, and nothing is lost or doubled."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from stratalog.replication import cadence
from stratalog.replication.broker.broker import Broker
from stratalog.replication.broker.hosted_replicas import BrokerIdentity, BrokerSetup
from stratalog.replication.config import BrokerConfig
from stratalog.replication.leader.domain_reach import out_of_reach
from stratalog.replication.metadata.domain_claim import check_claim, claim_domain
from stratalog.replication.metadata.records import PartitionRecord, StorageDomainRecord, TopicRecord
from stratalog.replication.requests.produce import ACKS_ALL, ProduceRequest, ProduceResponse
from stratalog.replication.stores import Ports
from stratalog.storage.errors import (
    InconsistentClusterIdError,
    LogDirNotFoundError,
    NotLeaderOrFollowerError,
    StoreUnavailableError,
)
from stratalog.storage.objects.memory import MemoryStore
from stratalog.storage.records import TopicPartition
from tests.replication.memory_stores import METADATA_ROOT, FailingDisk, MemoryStores, commit, led_by
from tests.storage.logs import idempotent, values
from tests.storage.memory_table import MemoryFiles

TP = TopicPartition("t", 0)
LAKE = "memory:///lake"
CONFIG = BrokerConfig.from_properties({"stratalog.upkeep.interval.ms": 100_000_000})
UNANSWERED_MS = CONFIG.broker_session_timeout_ms // cadence.DOMAIN_UNANSWERED_PART
SEVERAL_TURNS_MS = 500


class OfBroker(MemoryStores):
    """The stores of all, as one broker reaches them: `refuses` names the operations that the domain refuses it."""

    def __init__(self, shared: MemoryStores) -> None:
        super().__init__(shared.clock, shared.ids)
        self._shared = shared
        self.refuses: Callable[[str], bool] = lambda _operation: False
        self.unmounted: tuple[dict[str, bytes], dict[str, MemoryFiles]] | None = None
        """The objects and tables that this broker finds in place of the domain's."""
        self.has_directory = True

    def objects(self, root: str) -> MemoryStore:
        shared = self._shared.objects(root)
        if root != LAKE:
            return shared
        if not self.has_directory:
            raise LogDirNotFoundError(f"{root} is not a directory")
        own = MemoryStore(shared.objects if self.unmounted is None else self.unmounted[0], self.clock.wall_ms, root)
        own.access = self._access
        return own

    def _access(self) -> None:
        if self.refuses("create"):
            raise StoreUnavailableError("test: 403")

    def disk(self, root: str) -> FailingDisk:
        shared = self._shared.disk(root)
        if not root.startswith(LAKE):
            return shared
        if not self.has_directory:
            raise LogDirNotFoundError(f"{root} is not a directory")
        own = FailingDisk(self.clock)
        own.tables = shared.tables if self.unmounted is None else self.unmounted[1]
        own.fault = lambda operation, _table, _detail: self.refuses(operation)
        return own


class Cluster:
    """Brokers 1, 2 and 3, and `t-0` in the domain `lake`, which 1 leads first."""

    def __init__(self) -> None:
        self.shared = MemoryStores()
        self.clock = self.shared.clock
        self.metadata = self.shared.metadata()
        self.stores = {i: OfBroker(self.shared) for i in (1, 2, 3)}
        self.brokers = {i: self._broker(i) for i in (1, 2, 3)}
        placed = replace(led_by(1, replicas=(1, 2, 3)), controller_epoch=0, domain="lake")
        lake = StorageDomainRecord("lake", LAKE, durable=True)
        claim_domain(self.shared.objects(LAKE), self.metadata.image.cluster_id, "lake")
        commit(self.metadata, lake, TopicRecord("t", "id"), placed)
        self.answers: list[ProduceResponse] = []
        self.rest(SEVERAL_TURNS_MS)

    def _broker(self, broker_id: int) -> Broker:
        stores = self.stores[broker_id]
        setup = BrokerSetup(BrokerIdentity(broker_id, f"broker-{broker_id}"), CONFIG, METADATA_ROOT)
        broker = Broker(setup, Ports(stores, self.clock, stores.ids))
        broker.start()
        return broker

    def rest(self, duration_ms: int) -> None:
        """Time passes, and each broker makes its turns."""
        end_ms = self.clock.now_ms + duration_ms
        while self.clock.now_ms < end_ms:
            self.clock.now_ms += 50
            for broker in self.brokers.values():
                broker.step()
        self.metadata.refresh()

    @property
    def state(self) -> PartitionRecord:
        self.metadata.refresh()
        return self.metadata.image.partitions[TP]

    def brief(self) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
        return self.state.leader, self.state.isr, self.state.offline

    def produce(self, value: str, *, to: int | None = None, sequence: int = 0) -> None:
        sent = idempotent([value], sequence)
        request = ProduceRequest(self.metadata.image.identified(TP), sent, ACKS_ALL, timeout_ms=60_000)
        self.brokers[to or self.state.leader].calls.produce_then(request, self.answers.append)

    def refuse(self, *broker_ids: int, operation: str = "") -> None:
        """The domain refuses these brokers everything, or one operation, and the others nothing."""
        for broker_id, stores in self.stores.items():
            refused = broker_id in broker_ids
            stores.refuses = lambda each, refused=refused: refused and operation in each  # type: ignore[misc]

    def cut_after_a_commit(self, broker_id: int) -> None:
        """The broker's next commit stands, and neither its answer nor any other reaches it."""
        is_cut: list[str] = []

        def refuses(operation: str) -> bool:
            if operation == "create:done":
                is_cut.append(operation)
            return bool(is_cut)

        self.stores[broker_id].refuses = refuses

    def values(self) -> list[str]:
        return values(self.brokers[self.state.leader].leaders[TP].log).split()


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.mark.parametrize("operation", ["", "create", "put"])
def test_a_leader_whose_writes_are_refused_gives_way_and_its_client_moves_on(cluster: Cluster, operation: str) -> None:
    cluster.produce("a")
    cluster.rest(SEVERAL_TURNS_MS)
    cluster.refuse(1, operation=operation)
    cluster.produce("b", sequence=1)
    cluster.rest(UNANSWERED_MS - SEVERAL_TURNS_MS)
    assert cluster.brief() == (1, (1, 2, 3), ())
    cluster.rest(3 * SEVERAL_TURNS_MS)
    assert cluster.brief() == (2, (2, 3), (1,))
    assert isinstance(cluster.answers[-1].error, NotLeaderOrFollowerError)
    cluster.produce("b", sequence=1)
    cluster.rest(SEVERAL_TURNS_MS)
    assert [answer.error for answer in cluster.answers[:1] + cluster.answers[2:]] == [None, None]
    assert cluster.values() == ["a", "b"]


def test_it_returns_to_the_isr_when_the_domain_answers_it(cluster: Cluster) -> None:
    cluster.refuse(1)
    cluster.produce("a")
    cluster.rest(60_000)
    assert cluster.brief() == (2, (2, 3), (1,)), "no live replica is added that cannot serve"
    cluster.refuse()
    cluster.rest(cadence.DOMAIN_RETRY.most_ms + 2 * SEVERAL_TURNS_MS)
    assert cluster.brief() == (2, (1, 2, 3), ())


def test_an_epoch_that_cannot_begin_gives_way_too(cluster: Cluster) -> None:
    cluster.refuse(2)
    cluster.brokers[1].shut_down()
    del cluster.brokers[1]
    cluster.rest(SEVERAL_TURNS_MS)
    assert cluster.state.leader == 2
    cluster.rest(UNANSWERED_MS + 2 * SEVERAL_TURNS_MS)
    assert cluster.brief() == (3, (3,), (2,))


def test_where_nobody_reaches_the_domain_the_last_one_serves_as_soon_as_it_answers(cluster: Cluster) -> None:
    cluster.refuse(1, 2, 3)
    for _ in range(3):
        cluster.produce("a")
        cluster.rest(UNANSWERED_MS + 3 * SEVERAL_TURNS_MS)
    assert cluster.brief() == (3, (3,), (1, 2, 3))
    epoch = cluster.state.leader_epoch
    cluster.rest(120_000)
    assert (cluster.state.leader, cluster.state.leader_epoch) == (3, epoch), "it does not bounce"
    cluster.refuse()
    cluster.rest(SEVERAL_TURNS_MS)
    assert cluster.answers[-1].error is None
    assert cluster.values() == ["a"]
    cluster.rest(cadence.DOMAIN_RETRY.most_ms + 2 * SEVERAL_TURNS_MS)
    assert cluster.brief() == (3, (1, 2, 3), ())


def test_where_nobody_reached_the_domain_the_first_one_that_does_leads(cluster: Cluster) -> None:
    cluster.refuse(1, 2, 3)
    for _ in range(3):
        cluster.produce("a")
        cluster.rest(UNANSWERED_MS + 3 * SEVERAL_TURNS_MS)
    cluster.refuse(2, 3)
    cluster.rest(cadence.DOMAIN_RETRY.most_ms + 2 * SEVERAL_TURNS_MS)
    assert cluster.brief() == (1, (1,), (2, 3))
    cluster.produce("a")
    cluster.rest(SEVERAL_TURNS_MS)
    assert cluster.answers[-1].error is None


def test_an_append_whose_answer_is_lost_is_neither_acknowledged_nor_doubled(cluster: Cluster) -> None:
    """The commit stands, and its leader cannot know: the next one has folded it, and recognizes what is sent again."""
    cluster.cut_after_a_commit(1)
    cluster.produce("a")
    cluster.rest(UNANSWERED_MS + 2 * SEVERAL_TURNS_MS)
    assert cluster.brief() == (2, (2, 3), (1,))
    assert [type(answer.error) for answer in cluster.answers] == [NotLeaderOrFollowerError]
    cluster.produce("a")
    cluster.rest(SEVERAL_TURNS_MS)
    assert (cluster.answers[-1].error, cluster.answers[-1].duplicate) == (None, True)
    assert cluster.values() == ["a"]


def test_a_place_without_its_claim_gets_no_table_and_loses_none(cluster: Cluster) -> None:
    """Nothing is mounted at the directory of the domain: an empty table there would be the broker's alone."""
    cluster.stores[2].unmounted = {}, {}
    cluster.produce("a")
    cluster.rest(SEVERAL_TURNS_MS)
    cluster.brokers[1].shut_down()
    del cluster.brokers[1]
    cluster.rest(UNANSWERED_MS + 4 * SEVERAL_TURNS_MS)
    assert cluster.brief() == (3, (3,), (2,))
    assert cluster.state.lost == ()
    assert all(not files.commits for files in cluster.stores[2].unmounted[1].values())
    assert cluster.values() == ["a"]


def test_a_domain_without_a_directory_here_costs_the_broker_nothing_else(cluster: Cluster) -> None:
    cluster.stores[2].has_directory = False
    cluster.produce("a")
    cluster.rest(SEVERAL_TURNS_MS)
    own = PartitionRecord("v", 0, (2,), 2, 0, (2,), 0, 0)
    commit(cluster.metadata, TopicRecord("v", "id-of-v"), own)
    cluster.brokers[1].shut_down()
    del cluster.brokers[1]
    cluster.rest(2_000)
    assert cluster.brief() == (3, (3,), (2,))
    assert cluster.values() == ["a"]
    assert cluster.brokers[2].leaders[own.topic_partition].partition is not None, "it leads what is in its own root"
    cluster.refuse(3)
    cluster.produce("b", sequence=1)
    cluster.rest(UNANSWERED_MS + 2 * SEVERAL_TURNS_MS)
    assert cluster.brief() == (3, (3,), (2, 3))
    cluster.stores[2].has_directory = True
    cluster.rest(cadence.DOMAIN_RETRY.most_ms + 2 * SEVERAL_TURNS_MS)
    assert cluster.brief() == (2, (2,), (3,))
    assert cluster.brokers[2].leaders[TP].partition is not None


def test_a_claim_of_another_cluster_is_named() -> None:
    place = MemoryStore({}, name="lake")
    with pytest.raises(StoreUnavailableError, match="as where nothing is mounted"):
        check_claim(place, "own", "lake")
    claim_domain(place, "another", "lake")
    with pytest.raises(InconsistentClusterIdError, match="another"):
        check_claim(place, "own", "lake")


def test_a_domain_that_answers_again_in_time_changes_no_leader(cluster: Cluster) -> None:
    cluster.refuse(1, 2, 3)
    cluster.produce("a")
    cluster.rest(UNANSWERED_MS - SEVERAL_TURNS_MS)
    cluster.refuse()
    cluster.rest(10 * SEVERAL_TURNS_MS)
    assert cluster.brief() == (1, (1, 2, 3), ())
    assert cluster.answers[-1].error is None


class Led:
    """What `out_of_reach` asks of a leader."""

    def __init__(self, domain: str, unanswered_ms: int | None, answered_ms: int | None) -> None:
        self.domain = domain
        self.answered_ms = answered_ms
        self._unanswered_ms = unanswered_ms

    def unanswered_ms(self, _now_ms: int) -> int | None:
        return self._unanswered_ms


@pytest.mark.parametrize(
    ("led", "expected"),
    [
        ([("lake", None, 5_000), ("lake", None, None)], []),
        ([("lake", 2_999, 5_000), ("lake", None, None)], []),
        ([("lake", 3_000, None), ("lake", None, 6_000), ("lake", None, None)], [0, 1, 2]),
        ([("lake", 3_000, None), ("lake", None, 8_000), ("lake", None, None)], [0]),
        ([("lake", 3_000, None), ("lake", 2_000, 7_500), ("sea", None, None)], [0]),
        ([("lake", 3_000, None), ("lake", 4_000, 5_500), ("sea", 100, None)], [0, 1]),
        ([("", 9_000, None), ("lake", None, None)], []),
    ],
)
def test_who_gives_way(led: list[tuple[str, int | None, int | None]], expected: list[int]) -> None:
    """At 10,000 ms, after 3,000 ms without an answer."""
    leaders = [Led(*each) for each in led]
    assert [leaders.index(each) for each in out_of_reach(leaders, 10_000, 3_000)] == expected
