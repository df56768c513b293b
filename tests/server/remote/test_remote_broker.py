"""A broker's entrance: calls have the same outcome in its own process and over sockets, and broken connections one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from struct import unpack_from
from typing import Any

import pytest

from stratalog.clients.producer.producer import Producer
from stratalog.replication.config import BrokerConfig
from stratalog.replication.coordinator.groups.shard import group_shard
from stratalog.replication.metadata.records import RegisterBrokerRecord
from stratalog.replication.requests.coordinators import CoordinatorType, FindCoordinatorRequest
from stratalog.replication.requests.delete_records import DeletedRecords, DeleteRecordsRequest
from stratalog.replication.requests.groups import (
    HeartbeatRequest,
    JoinGroupRequest,
    ListGroupsRequest,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    PartitionsDeleted,
    SyncGroupRequest,
)
from stratalog.replication.requests.produce import ACKS_ALL, ACKS_NONE, ProduceRequest, ProduceResponse
from stratalog.server.bootstrap import RunningCluster
from stratalog.server.endpoint.admission import RequestBound
from stratalog.server.endpoint.endpoint_metrics import EndpointMetrics
from stratalog.server.endpoint.loops import NetworkThread
from stratalog.server.endpoint.socket_server import SocketServer, bind
from stratalog.server.remote.connections.config import ConnectionConfig
from stratalog.server.remote.places import InboxPlace
from stratalog.server.remote.remote_broker import RemoteBroker
from stratalog.server.remote.remote_cluster import RemoteCluster, RemotePeers
from stratalog.server.remote.routes import ListenerRoute
from stratalog.server.request.api import Connection
from stratalog.server.request.endpoint import Endpoint
from stratalog.server.view.cluster_view import ClusterView
from stratalog.storage.errors import (
    CoordinatorNotAvailableError,
    IllegalGenerationError,
    InvalidRequestError,
    LeaderNotAvailableError,
    NotCoordinatorError,
    OffsetOutOfRangeError,
    RecordTooLargeError,
    RequestTimedOutError,
    UnknownServerError,
    UnknownTopicIdError,
)
from stratalog.storage.records import IdentifiedPartition, NewRecordBatch, TopicPartition, payload_table
from stratalog.storage.transactions import EndMarker, marker_batch
from stratalog.wire.api_keys import ApiKey
from stratalog.wire.messages.frames import Answer, Frame, decode_request, encode_response, served_versions
from stratalog.wire.messages.schema import response_type
from tests.clients.coordinating_cluster import CoordinatingCluster
from tests.clients.memory_cluster import ROOT
from tests.clients.served_cluster import LISTENER, InboxCluster, ServedCluster
from tests.waiting import wait_until

GROUP = CoordinatorType.GROUP
T = TopicPartition("t", 0)
IDENTIFIED = IdentifiedPartition("ab" * 16, T)
ANSWER_S = 60
HERE, SOCKETS, INBOX = "in process", "over sockets", "through the inbox"


class Answers:
    """The answers received, in order; each may come once only."""

    def __init__(self) -> None:
        self.list: list[Any] = []

    def __call__(self, answer: object) -> None:
        self.list.append(answer)

    def first(self, count: int) -> list[Any]:
        wait_until(lambda: len(self.list) >= count, f"{count} answers")
        return self.list[:count]

    @property
    def one(self) -> Any:
        return self.first(1)[0]


def batch(*values: bytes, **fields: Any) -> NewRecordBatch:
    return NewRecordBatch(payload_table([(1, None, value, None) for value in values]), **fields)


# -- the contract ------------------------------------------------------------------------------------------------


@pytest.fixture
def memory() -> CoordinatingCluster:
    """Broker 1 leads topic `t` and coordinates all groups."""
    made = CoordinatingCluster({GROUP: group_shard})
    made.create_topic("t", 2, topic_id=IDENTIFIED.topic_id)
    made.create_topic(GROUP.topic, 2)
    return made


@pytest.fixture(params=[HERE, SOCKETS, INBOX])
def cluster(request: pytest.FixtureRequest, memory: CoordinatingCluster) -> Iterator[RunningCluster]:
    served_in = {HERE: nullcontext, SOCKETS: ServedCluster, INBOX: InboxCluster}[request.param]
    with nullcontext() if request.param == HERE else served_in(memory) as served:
        yield memory if served is None else served.remote


def test_batches_are_appended_in_order(cluster: RunningCluster, memory: CoordinatingCluster) -> None:
    answers = Answers()
    for number in range(20):
        cluster.brokers()[1].produce_then(ProduceRequest(IDENTIFIED, batch(b"%d" % number, b"x")), answers)
    responses: list[ProduceResponse] = answers.first(20)
    assert [(each.base_offset, each.last_offset, each.error) for each in responses] == [
        (2 * number, 2 * number + 1, None) for number in range(20)
    ]
    assert memory.log(1, T).log_end_offset == 40


def test_what_a_leader_refuses_is_in_the_response(cluster: RunningCluster, memory: CoordinatingCluster) -> None:
    answers, memory.running[1].script = Answers(), [RecordTooLargeError("1 byte too many")]
    cluster.brokers()[1].produce_then(ProduceRequest(IDENTIFIED, batch(b"large")), answers)
    assert isinstance(answers.one.error, RecordTooLargeError)
    assert "1 byte too many" in str(answers.one.error)
    assert answers.one.topic_partition == T


def test_acks_0_is_complete_when_it_is_sent(cluster: RunningCluster, memory: CoordinatingCluster) -> None:
    answers = Answers()
    face = cluster.brokers()[1]
    face.produce_then(ProduceRequest(IDENTIFIED, batch(b"a"), ACKS_NONE), answers)
    face.produce_then(ProduceRequest(IDENTIFIED, batch(b"b"), ACKS_ALL), answers)
    assert [each.error for each in answers.first(2)] == [None, None]
    assert answers.list[1].base_offset == 1


def test_a_marker_is_written_by_the_leader(cluster: RunningCluster, memory: CoordinatingCluster) -> None:
    answers, face = Answers(), cluster.brokers()[1]
    for number in range(5):
        face.produce_then(ProduceRequest(IDENTIFIED, marker_batch(number, 0, EndMarker(True, 3), 1)), answers)
    assert [each.error for each in answers.first(5)] == [None] * 5
    assert [each.batch.producer_id for each in memory.running[1].requests] == list(range(5))
    rows = memory.log(1, T).read(0, 1 << 20).to_pylist()
    assert [row["key"] for row in rows] == [b"\0\0\0\1"] * 5


def test_records_are_deleted_by_the_leader_who_gets_the_request_as_it_is(
    cluster: RunningCluster, memory: CoordinatingCluster
) -> None:
    answers, face = Answers(), cluster.brokers()[1]
    for number in range(4):
        face.produce_then(ProduceRequest(IDENTIFIED, batch(b"%d" % number)), answers)
    answers.first(4)
    other = IdentifiedPartition(IDENTIFIED.topic_id, TopicPartition("t", 1))
    request = DeleteRecordsRequest({IDENTIFIED: 3, other: -1}, timeout_ms=1_234)
    face.delete_records(request, answers)
    assert answers.first(5)[4] == {IDENTIFIED: DeletedRecords(3), other: DeletedRecords(0)}
    assert memory.running[1].deletions == [request]
    assert memory.log(1, T).log_start_offset == 3


def test_a_refused_deletion_has_the_leaders_error(cluster: RunningCluster, memory: CoordinatingCluster) -> None:
    answers, memory.running[1].script = Answers(), [OffsetOutOfRangeError("9 > 8")]
    cluster.brokers()[1].delete_records(DeleteRecordsRequest({IDENTIFIED: 9}), answers)
    (answer,) = answers.one.values()
    assert isinstance(answer.error, OffsetOutOfRangeError)


def test_a_deletion_for_an_earlier_topic_of_the_name_deletes_nothing(
    cluster: RunningCluster, memory: CoordinatingCluster
) -> None:
    answers, face = Answers(), cluster.brokers()[1]
    face.produce_then(ProduceRequest(IDENTIFIED, batch(b"x")), answers)
    answers.first(1)
    face.delete_records(DeleteRecordsRequest({IdentifiedPartition("cd" * 16, T): -1}), answers)
    (answer,) = answers.first(2)[1].values()
    assert isinstance(answer.error, UnknownTopicIdError)
    assert memory.log(1, T).log_start_offset == 0


def test_a_deletion_that_waits_holds_up_nobody(cluster: RunningCluster, memory: CoordinatingCluster) -> None:
    waiting, answers, face = Answers(), Answers(), cluster.brokers()[1]
    memory.running[1].script = [None]
    face.delete_records(DeleteRecordsRequest({IDENTIFIED: 0}), waiting)
    wait_until(lambda: memory.running[1].deletions, "its arrival")
    face.delete_records(DeleteRecordsRequest({IDENTIFIED: 0}), answers)
    face.produce_then(ProduceRequest(IDENTIFIED, batch(b"x")), answers)
    answers.first(2)
    assert waiting.list == []


def test_any_broker_names_the_coordinator(cluster: RunningCluster) -> None:
    answers = Answers()
    for broker_id in (1, 2):
        cluster.brokers()[broker_id].find_coordinator(FindCoordinatorRequest(GROUP, ("g", "h")), answers)
    for response in answers.first(2):
        found = [(each.key, each.node_id, each.error) for each in response.coordinators]
        assert found == [("g", 1, None), ("h", 1, None)]


def test_a_coordinator_that_registered_after_the_broker_asked_is_known(
    cluster: RunningCluster, memory: CoordinatingCluster
) -> None:
    """By a client that asks for coordinators and nothing else, which would make the broker look at the metadata."""
    for partition in range(2):
        memory.elect(TopicPartition(GROUP.topic, partition), 3)
    wait_until(lambda: asked_for_the_coordinator(cluster) == (3, None))


def open_connections(metrics: EndpointMetrics) -> int:
    """Those of all listeners."""
    (found,) = [each for each in metrics.metrics() if each.name.endswith("connection_count")]
    return sum(value for value in found.values.values() if isinstance(value, int))


def asked_for_the_coordinator(cluster: RunningCluster) -> tuple[int, object]:
    """The node and the error that broker 1 answers; until it has seen the newcomer, that clients are to ask again."""
    answers = Answers()
    cluster.brokers()[1].find_coordinator(FindCoordinatorRequest(GROUP, ("g",)), answers)
    (found,) = answers.one.coordinators
    assert found.error is None or found.error.retriable
    return found.node_id, found.error


def test_another_broker_is_not_the_coordinator(cluster: RunningCluster) -> None:
    commit = OffsetCommitRequest("g", (OffsetCommitRequestTopic("t", (OffsetCommitRequestPartition(0, 1),)),))
    for request in (HeartbeatRequest("g", 1, "m"), commit, SyncGroupRequest("g", 1, "m")):
        answers = Answers()
        cluster.brokers()[2].coordinator(GROUP, "g", request, answers)
        assert isinstance(answers.one, NotCoordinatorError)


def test_a_coordinator_answers_and_refuses(cluster: RunningCluster) -> None:
    answers = Answers()
    face = cluster.brokers()[1]
    commit = OffsetCommitRequest("g", (OffsetCommitRequestTopic("t", (OffsetCommitRequestPartition(0, 1),)),))
    face.coordinator(GROUP, "g", commit, answers)
    assert answers.one.topics[0].partitions[0].error is None
    late = OffsetCommitRequest("g", commit.topics, 7, "m")
    face.coordinator(GROUP, "g", late, answers)
    error = answers.first(2)[1].topics[0].partitions[0].error
    assert error is not None
    face.every_coordinator(GROUP, ListGroupsRequest(), answers)
    listed = answers.first(3)[2]
    assert [group.group_id for response in listed for group in response.groups] == ["g"]


# -- connections that end ----------------------------------------------------------------------------------------


class ScriptedBroker:
    """A socket whose requests the test answers: `answers` by correlation id."""

    def __init__(self, port: int = 0) -> None:
        self.frames: list[Frame] = []
        self.callers: list[Connection] = []
        self._answers: list[Callable[[Answer | None], None]] = []
        config = BrokerConfig()
        (bound,) = bind([replace(LISTENER, port=port)])
        self.endpoint = Endpoint("127.0.0.1", bound.listener.port)
        self._server = SocketServer(config, RequestBound(config.queued_max_requests))
        self._server.serve(1, [bound], self)

    def handle(self, frame: Frame, connection: Connection, answer: Callable[[Answer | None], None]) -> None:
        self.frames.append(frame)
        self.callers.append(connection)
        self._answers.append(answer)

    def await_count(self, count: int) -> list[int]:
        """The APIs of the requests so far, once there are so many."""
        wait_until(lambda: len(self._answers) >= count, f"{count} requests")
        return [unpack_from(">h", frame)[0] for frame in self.frames]

    def answer(self, which: int, values: dict[str, Any]) -> None:
        api_key, version = unpack_from(">hh", self.frames[which])
        request = decode_request(self.frames[which], {api_key: served_versions(api_key)})
        self._answers[which](encode_response(request.correlation_id, values, response_type(api_key, version)))

    def stop(self) -> None:
        self._server.withdraw(1)
        self._server.stop()


@pytest.fixture
def scripted() -> Iterator[ScriptedBroker]:
    made = ScriptedBroker()
    yield made
    made.stop()


@pytest.fixture
def network() -> Iterator[NetworkThread]:
    thread = NetworkThread("test-brokers")
    thread.start()
    yield thread
    thread.stop(0)


def remote(endpoint: Endpoint, network: NetworkThread, **settings: object) -> RemoteBroker:
    config = ConnectionConfig.from_settings(None, settings)
    return RemoteBroker(1, ListenerRoute(network, config, endpoint), network, config)


def test_a_group_that_waits_holds_up_nobody(scripted: ScriptedBroker, network: NetworkThread) -> None:
    """A broker answers one request of a connection after the other: a JoinGroup has a connection of its own."""
    broker, answers = remote(scripted.endpoint, network), Answers()
    for member in ("a", "b"):
        broker.coordinator(GROUP, "g", JoinGroupRequest("g", 10_000, 60_000, member), answers)
    broker.coordinator(GROUP, "g", HeartbeatRequest("g", 1, "c"), answers)
    broker.produce_then(ProduceRequest(IDENTIFIED, batch(b"x")), answers)
    assert sorted(scripted.await_count(4)) == [ApiKey.PRODUCE, ApiKey.JOIN_GROUP, ApiKey.JOIN_GROUP, ApiKey.HEARTBEAT]
    which = scripted.await_count(4).index(ApiKey.HEARTBEAT)
    scripted.answer(which, {"error_code": 22})
    assert isinstance(answers.one.error, IllegalGenerationError)
    for which in [n for n, api in enumerate(scripted.await_count(4)) if api == ApiKey.JOIN_GROUP]:
        scripted.answer(which, {"generation_id": 1, "member_id": "m"})
    assert [each.generation_id for each in answers.first(3)[1:]] == [1, 1]
    broker.coordinator(GROUP, "g", JoinGroupRequest("g", 10_000, 60_000, "a"), answers)
    scripted.await_count(5)
    assert scripted.callers[4] in scripted.callers[:4]  # a connection on which nobody waits any more is used again


def test_markers_that_come_meanwhile_go_together(scripted: ScriptedBroker, network: NetworkThread) -> None:
    broker, answers = remote(scripted.endpoint, network), Answers()
    for number in range(4):
        broker.produce_then(ProduceRequest(IDENTIFIED, marker_batch(number, 0, EndMarker(True, 3), 1)), answers)
    scripted.await_count(1)

    def written(*producers: int) -> dict[str, Any]:
        topics = [{"name": "t", "partitions": [{"partition_index": 0, "error_code": 0}]}]
        return {"markers": [{"producer_id": number, "topics": topics} for number in producers]}

    sent = decode_request(
        scripted.frames[0], {ApiKey.WRITE_TXN_MARKERS: served_versions(ApiKey.WRITE_TXN_MARKERS)}
    ).entity
    first = [marker.producer_id for marker in sent.markers]
    scripted.answer(0, written(*first))
    rest = [number for number in range(4) if number not in first]
    scripted.await_count(2)
    sent = decode_request(
        scripted.frames[1], {ApiKey.WRITE_TXN_MARKERS: served_versions(ApiKey.WRITE_TXN_MARKERS)}
    ).entity
    assert [marker.producer_id for marker in sent.markers] == rest
    scripted.answer(1, written(*rest))
    assert [each.error for each in answers.first(4)] == [None] * 4


def test_a_broken_connection_answers_each_request_once(scripted: ScriptedBroker, network: NetworkThread) -> None:
    broker, produced, asked = remote(scripted.endpoint, network), Answers(), Answers()
    for _ in range(3):
        broker.produce_then(ProduceRequest(IDENTIFIED, batch(b"x")), produced)
    broker.coordinator(GROUP, "g", HeartbeatRequest("g", 1, "m"), asked)
    scripted.await_count(4)
    for caller in scripted.callers:
        caller.close("")
    for response in produced.first(3):
        assert isinstance(response.error, RequestTimedOutError)
        assert "whether it stored this is unknown" in str(response.error)
    assert isinstance(asked.one, CoordinatorNotAvailableError)
    broker.produce_then(ProduceRequest(IDENTIFIED, batch(b"y")), produced)
    scripted.await_count(5)
    part = {"index": 0, "base_offset": 4, "error_code": None}
    scripted.answer(4, {"responses": [{"name": "t", "partition_responses": [part]}]})
    assert (produced.first(4)[3].base_offset, len(produced.list), len(asked.list)) == (4, 4, 1)


def test_a_deletion_whose_answer_is_lost_is_one_to_ask_for_again(
    scripted: ScriptedBroker, network: NetworkThread
) -> None:
    broker, answers = remote(scripted.endpoint, network), Answers()
    broker.delete_records(DeleteRecordsRequest({IDENTIFIED: 1}), answers)
    assert scripted.await_count(1) == [ApiKey.DELETE_RECORDS]
    scripted.callers[0].close("")
    (answer,) = answers.one.values()
    assert isinstance(answer.error, LeaderNotAvailableError)
    broker.delete_records(DeleteRecordsRequest({IDENTIFIED: 1}), answers)
    scripted.await_count(2)
    part = {"partition_index": 0, "low_watermark": 1, "error_code": None}
    scripted.answer(1, {"topics": [{"name": "t", "partitions": [part]}]})
    assert answers.first(2)[1] == {IDENTIFIED: DeletedRecords(1)}
    broker.delete_records(DeleteRecordsRequest({IDENTIFIED: 1}), answers)
    scripted.await_count(3)
    scripted.answer(2, {"topics": [{"name": "another", "partitions": [part]}]})
    assert isinstance(answers.first(3)[2][IDENTIFIED].error, UnknownServerError)


def test_a_request_without_an_answer_in_its_time_ends_its_connection(
    scripted: ScriptedBroker, network: NetworkThread
) -> None:
    broker, answers = remote(scripted.endpoint, network, request_timeout_ms=50), Answers()
    broker.produce_then(ProduceRequest(IDENTIFIED, batch(b"x")), answers)
    assert isinstance(answers.one.error, RequestTimedOutError)
    broker.coordinator(GROUP, "g", HeartbeatRequest("g", 1, "m"), answers)
    assert isinstance(answers.first(2)[1], CoordinatorNotAvailableError)


def test_a_broker_that_is_away_is_reached_when_it_returns(network: NetworkThread) -> None:
    away = ScriptedBroker()
    endpoint = away.endpoint
    away.stop()
    broker, answers = remote(endpoint, network, reconnect_backoff_ms=10, reconnect_backoff_max_ms=20), Answers()
    broker.produce_then(ProduceRequest(IDENTIFIED, batch(b"x")), answers)
    assert isinstance(answers.one.error, LeaderNotAvailableError)  # certainly not stored
    broker.coordinator(GROUP, "g", HeartbeatRequest("g", 1, "m"), answers)
    assert isinstance(answers.first(2)[1], CoordinatorNotAvailableError)
    back = ScriptedBroker(endpoint.port)
    try:
        broker.coordinator(GROUP, "g", HeartbeatRequest("g", 1, "m"), answers)
        back.await_count(1)
        back.answer(0, {"error_code": 0})
        assert answers.first(3)[2].error is None
    finally:
        back.stop()


def test_a_closed_broker_answers_what_waits_and_what_comes(scripted: ScriptedBroker, network: NetworkThread) -> None:
    broker, answers = remote(scripted.endpoint, network), Answers()
    broker.coordinator(GROUP, "g", HeartbeatRequest("g", 1, "m"), answers)
    scripted.await_count(1)
    broker.close()
    broker.produce_then(ProduceRequest(IDENTIFIED, batch(b"x")), answers)
    found = answers.first(2)
    assert {type(getattr(each, "error", None) or each) for each in found} == {
        CoordinatorNotAvailableError, LeaderNotAvailableError,
    }  # fmt: skip


def test_what_cannot_be_sent_is_refused_for_good(scripted: ScriptedBroker, network: NetworkThread) -> None:
    broker, answers = remote(scripted.endpoint, network), Answers()
    broker.coordinator(GROUP, "g", PartitionsDeleted(()), answers)
    broker.coordinator(GROUP, "g", HeartbeatRequest("g", 1 << 40, "m"), answers)
    assert [type(each) for each in answers.first(2)] == [InvalidRequestError, InvalidRequestError]


# -- clusters of remote brokers ----------------------------------------------------------------------------------


@pytest.mark.parametrize("served_in", [ServedCluster, InboxCluster])
def test_a_producer_sends_to_leaders_of_other_processes(
    memory: CoordinatingCluster, served_in: type[ServedCluster | InboxCluster]
) -> None:
    with served_in(memory) as served:
        view = ClusterView(ROOT, stores=memory.stores)
        with Producer(served.remote, view=view) as producer:
            sent = [producer.send("t", b"%d" % number, partition=0) for number in range(100)]
            assert [each.result(ANSWER_S).offset for each in sent] == list(range(100))
    assert memory.log(1, T).log_end_offset == 100


def test_a_broker_without_a_listener_is_called_through_its_inbox_unless_a_listener_is_asked_for(
    memory: CoordinatingCluster,
) -> None:
    with ServedCluster(memory) as served:
        registration = memory.metadata.image.brokers[3].registration
        newer = RegisterBrokerRecord(3, registration.broker_epoch + 1, "another", registration.root)
        memory.commit(newer)
        for settings, others in (({}, [3]), ({"stratalog_transport": "listener"}, [])):
            with RemoteCluster(ROOT, stores=memory.stores, **settings) as remote:
                assert sorted(remote.brokers()) == [1, 2, *others]
                assert remote.hosts(3) is bool(others)
                assert remote.hosts(4)  # unknown so far: asked again later
                remote.check()
        login = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN", "sasl_username": "alice"}
        with RemoteCluster(ROOT, stores=memory.stores, **login) as remote:
            assert sorted(remote.brokers()) == [1, 2]  # what logs in is never led past a login
        place = InboxPlace(registration.root, newer.broker_epoch)
        wait_until(lambda: served.remote.peers()[3].route.place == place, "the new registration is known")


def test_where_no_listener_is_reachable_brokers_are_called_through_their_inboxes(memory: CoordinatingCluster) -> None:
    """As on a machine beyond a firewall. Once one listener was reached, a broker without a connection is one that is
    away."""
    with InboxCluster(memory) as served, RemoteCluster(ROOT, stores=memory.stores) as remote:
        (closed,) = bind([LISTENER])
        registration = memory.metadata.image.brokers[1].registration
        memory.commit(replace(registration, endpoint=closed.listener.connection_string))
        closed.close()
        wait_until(lambda: asked_for_the_coordinator(remote)[0] == -1)
        wait_until(lambda: asked_for_the_coordinator(remote) == (1, None))
        (bound,) = bind([LISTENER])
        server = SocketServer(BrokerConfig(), RequestBound(100))
        listeners = server.serve(1, [bound], served.handlers[1])
        memory.commit(replace(registration, endpoint=bound.listener.connection_string))
        wait_until(lambda: asked_for_the_coordinator(remote) == (1, None) and open_connections(listeners) > 0)
        server.stop()
        assert asked_for_the_coordinator(remote)[0] == -1
        assert asked_for_the_coordinator(remote)[0] == -1


def test_peers_are_the_own_broker_and_those_elsewhere(memory: CoordinatingCluster) -> None:
    with ServedCluster(memory), RemotePeers() as peers:
        own = memory.running[2]
        peers[2] = own
        assert (list(peers), peers.get(1)) == ([2], None)
        memory.metadata.refresh()
        peers.follow(lambda: memory.metadata.image)
        assert (list(peers), len(peers), peers[2]) == ([1, 2, 3], 3, own)
        answers = Answers()
        peers[1].produce_then(ProduceRequest(IDENTIFIED, marker_batch(7, 0, EndMarker(False, 3), 1)), answers)
        assert answers.one.error is None
        assert peers[1] is peers[1]
