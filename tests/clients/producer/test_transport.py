"""A producer's batches have one outcome, whatever carries them: objects of this process, sockets, inboxes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack

import pytest

from stratalog.clients.producer.producer import Producer
from stratalog.replication.metadata.records import RegisterBrokerRecord
from stratalog.replication.requests.produce import ProduceRequest, ProduceResponse
from stratalog.server.bootstrap import Cluster
from stratalog.server.view.cluster_view import ClusterView
from stratalog.storage.errors import (
    InvalidRecordError,
    NotEnoughReplicasError,
    NotLeaderOrFollowerError,
    RecordTooLargeError,
    RequestTimedOutError,
)
from stratalog.storage.records import TopicPartition
from tests.clients.memory_cluster import ROOT, MemoryBroker, MemoryCluster
from tests.clients.served_cluster import InboxCluster, ServedCluster
from tests.waiting import wait_until

T0 = TopicPartition("t", 0)
HERE, SOCKETS, INBOX, BY_ROOT = "in process", "over sockets", "through inboxes", "of a root alone"
QUICK: dict[str, object] = {"retry_backoff_ms": 1, "request_timeout_ms": 400, "delivery_timeout_ms": 30_000}


class Producing:
    """A cluster whose broker 1 leads topic `t`, and the way to it."""

    def __init__(self, way: str, closing: ExitStack) -> None:
        self.memory = MemoryCluster()
        self.memory.create_topic("t")
        self.inboxes: InboxCluster | None = None
        self._cluster: Cluster = self.memory
        self._closing = closing
        if way == SOCKETS:
            self._cluster = closing.enter_context(ServedCluster(self.memory, request_timeout_ms=400)).remote
        elif way != HERE:
            self.inboxes = closing.enter_context(InboxCluster(self.memory, request_timeout_ms=400))
            self._cluster = ROOT if way == BY_ROOT else self.inboxes.remote

    @property
    def leader(self) -> MemoryBroker:
        return self.memory.running[1]

    def producer(self, **settings: object) -> Producer:
        view = ClusterView(ROOT, stores=self.memory.stores)
        return self._closing.enter_context(Producer(self._cluster, view=view, **(QUICK | settings)))

    def stored(self) -> list[bytes]:
        found: list[bytes] = self.memory.log(1, T0).read(0, 1 << 30)["value"].to_pylist()
        return found


class OtherProcess:
    """A running cluster whose brokers are none of those that lead."""

    root = ROOT

    def brokers(self) -> Mapping[int, MemoryBroker]:
        return {}

    def peers(self) -> Mapping[int, MemoryBroker]:
        return {}

    def hosts(self, broker_id: int) -> bool:
        return False


@pytest.fixture(params=[HERE, SOCKETS, INBOX, BY_ROOT])
def producing(request: pytest.FixtureRequest) -> Iterator[Producing]:
    with ExitStack() as closing:
        yield Producing(request.param, closing)


@pytest.fixture(params=[INBOX, BY_ROOT])
def through_inboxes(request: pytest.FixtureRequest) -> Iterator[Producing]:
    with ExitStack() as closing:
        yield Producing(request.param, closing)


def without_answer(leader: MemoryBroker, count: int) -> list[ProduceRequest]:
    """The leader stores so many batches and loses the answers; filled with what it was sent."""
    performed, sent = leader.produce_then, list[ProduceRequest]()

    def produce_then(request: ProduceRequest, complete: Callable[[ProduceResponse], None]) -> None:
        sent.append(request)
        is_lost = len(sent) <= count
        performed(request, (lambda _response: None) if is_lost else complete)

    leader.produce_then = produce_then  # type: ignore[method-assign]
    return sent


def test_batches_are_stored_once_and_in_order(producing: Producing) -> None:
    producer = producing.producer(batch_size=1)
    sent = [producer.send("t", b"%d" % number) for number in range(100)]
    assert [future.result(20).offset for future in sent] == list(range(100))
    assert producing.stored() == [b"%d" % number for number in range(100)]
    sequences = [request.batch for request in producing.leader.requests]
    assert len(sequences) == 100


def test_a_batch_whose_answer_is_lost_is_sent_again_and_stored_once(producing: Producing) -> None:
    sent = without_answer(producing.leader, 1)
    producer = producing.producer()
    assert producer.send("t", b"a").result(20).offset == 0
    assert producer.send("t", b"b").result(20).offset == 1
    assert producing.stored() == [b"a", b"b"]
    assert len(sent) == 3


def test_batches_behind_a_lost_answer_keep_their_order(producing: Producing) -> None:
    without_answer(producing.leader, 3)
    producer = producing.producer(batch_size=1)
    sent = [producer.send("t", b"%d" % number) for number in range(6)]
    assert [future.result(20).offset for future in sent] == list(range(6))
    assert producing.stored() == [b"%d" % number for number in range(6)]


@pytest.mark.parametrize("refusal", [NotLeaderOrFollowerError("moved"), NotEnoughReplicasError("alone")])
def test_a_refusal_that_passes_is_tried_again(
    producing: Producing, refusal: NotLeaderOrFollowerError | NotEnoughReplicasError
) -> None:
    producing.leader.script = [refusal, refusal]
    assert producing.producer().send("t", b"a").result(20).offset == 0
    assert producing.stored() == [b"a"]


@pytest.mark.parametrize("refusal", [RecordTooLargeError("1 byte too many"), InvalidRecordError("no key")])
def test_a_final_refusal_is_the_producers(
    producing: Producing, refusal: RecordTooLargeError | InvalidRecordError
) -> None:
    producing.leader.script = [refusal]
    producer = producing.producer()
    with pytest.raises(type(refusal)):
        producer.send("t", b"a").result(20)
    assert producer.send("t", b"b").result(20).offset == 0


def test_a_leader_that_never_answers_is_a_timeout(producing: Producing) -> None:
    producing.leader.script = [None] * 100
    with pytest.raises(RequestTimedOutError):
        producing.producer(delivery_timeout_ms=1_000).send("t", b"a").result(20)


def test_a_batch_for_a_deleted_topic_goes_to_the_next_one_of_its_name(producing: Producing) -> None:
    """The leader refuses the id; the producer looks the name up again."""
    producer = producing.producer()
    assert producer.send("t", b"old").result(20).offset == 0
    producing.memory.delete_topic("t")
    producing.memory.create_topic("t")
    assert producer.send("t", b"new").result(20).offset == 0
    assert producing.stored() == [b"new"]


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_acks_say_what_is_waited_for(producing: Producing, acks: str) -> None:
    producer = producing.producer(acks=acks, enable_idempotence=False)
    offset = producer.send("t", b"a").result(20).offset
    assert offset == (-1 if acks == "0" else 0)
    wait_until(lambda: producing.stored() == [b"a"], "the record")
    assert [request.acks for request in producing.leader.requests] == [{"0": 0, "1": 1, "all": -1}[acks]]


def test_a_producer_of_a_root_is_led_past_no_listener_that_it_asks_for(through_inboxes: Producing) -> None:
    """No broker has a listener here. By default it goes to their inboxes."""
    view = ClusterView(ROOT, stores=through_inboxes.memory.stores)
    settings = {"stratalog.transport": "listener", "delivery.timeout.ms": 600, "request.timeout.ms": 300}
    with Producer(ROOT, settings, view=view) as producer, pytest.raises(RequestTimedOutError):
        producer.send("t", b"a").result(20)
    assert through_inboxes.leader.requests == []


def test_a_leader_in_another_process_beside_a_cluster_is_called_through_its_inbox(through_inboxes: Producing) -> None:
    with Producer(OtherProcess(), view=ClusterView(ROOT, stores=through_inboxes.memory.stores)) as producer:
        assert [producer.send("t", b"%d" % number).result(20).offset for number in range(3)] == [0, 1, 2]
    assert through_inboxes.stored() == [b"0", b"1", b"2"]


def test_a_broker_that_registers_again_gets_the_batch_again_and_stores_it_once(through_inboxes: Producing) -> None:
    """As after a crash between the append and the answer: the former registration's requests are not performed."""
    memory, served = through_inboxes.memory, through_inboxes.inboxes
    assert served is not None
    sent = without_answer(through_inboxes.leader, 1)
    first = through_inboxes.producer(request_timeout_ms=20_000).send("t", b"a")
    wait_until(lambda: bool(sent), "the request")
    served.withdraw(1)
    memory.commit(RegisterBrokerRecord(1, 99, "another", memory.root_of(1)))
    served.inboxes[1].broker_epoch = 99
    served.serve_again(1)
    assert first.result(20).offset == 0
    assert through_inboxes.stored() == [b"a"]
    assert len(sent) == 2
