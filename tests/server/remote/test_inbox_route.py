"""Calls through inboxes over stores that fail, to brokers that are replaced, by clients that die."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from stratalog.replication.broker.inbox import ANSWER_KEEP_MS
from stratalog.replication.config import BrokerConfig
from stratalog.replication.coordinator.groups.shard import group_shard
from stratalog.replication.metadata.acls import ANONYMOUS, Operation, PatternType, Permission, ResourceType
from stratalog.replication.metadata.records import AccessControlEntryRecord, RegisterBrokerRecord
from stratalog.replication.requests.coordinators import CoordinatorType
from stratalog.replication.requests.groups import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from stratalog.replication.requests.inbox_frames import (
    ANSWERS_PREFIX,
    WHOLE_CHANNEL,
    FrameEntry,
    Frames,
    answers_path,
    decode_frames,
    encode_frames,
    frames_path,
)
from stratalog.replication.requests.produce import ProduceRequest
from stratalog.server.bootstrap import BrokerFace
from stratalog.server.remote.remote_cluster import RemoteCluster
from stratalog.server.request.endpoint import INBOX
from stratalog.storage.errors import (
    CoordinatorNotAvailableError,
    GroupAuthorizationFailedError,
    LeaderNotAvailableError,
    RequestTimedOutError,
    StoreUnavailableError,
    StratalogError,
)
from stratalog.storage.objects.memory import MemoryStore
from stratalog.storage.records import IdentifiedPartition, TopicPartition
from tests.clients.coordinating_cluster import CoordinatingCluster
from tests.clients.memory_cluster import ROOT
from tests.clients.served_cluster import InboxCluster
from tests.server.remote.test_remote_broker import Answers, batch
from tests.waiting import wait_until

GROUP = CoordinatorType.GROUP
T = TopicPartition("t", 0)
IDENTIFIED = IdentifiedPartition("ab" * 16, T)
COMMIT = OffsetCommitRequest("g", (OffsetCommitRequestTopic("t", (OffsetCommitRequestPartition(0, 1),)),))


class UnsteadyStore(MemoryStore):
    """Each call of `put`, `get_optional` and `delete` fails once, after it was performed, before it succeeds."""

    is_unsteady = False

    def __init__(self) -> None:
        super().__init__()
        self._failed: set[tuple[str, str]] = set()

    def put(self, path: str, data: bytes) -> None:
        super().put(path, data)
        self._fail_once("put", path)

    def get_optional(self, path: str) -> bytes | None:
        self._fail_once("get", path)
        return super().get_optional(path)

    def delete(self, path: str) -> None:
        super().delete(path)
        self._fail_once("delete", path)

    def _fail_once(self, operation: str, path: str) -> None:
        is_new = (operation, path) not in self._failed
        if self.is_unsteady and is_new and path.startswith(("inbox/", ANSWERS_PREFIX)):
            self._failed.add((operation, path))
            raise StoreUnavailableError(f"test: {operation} {path}")


@pytest.fixture
def memory() -> CoordinatingCluster:
    """Broker 1 leads topic `t` and coordinates all groups; its root is an unsteady store."""
    made = CoordinatingCluster({GROUP: group_shard})
    store = UnsteadyStore()
    store.objects = made.stores.stores[made.root_of(1)].objects  # type: ignore[attr-defined]
    made.stores.stores[made.root_of(1)] = store
    made.create_topic("t", topic_id=IDENTIFIED.topic_id)
    made.create_topic(GROUP.topic, 1)
    return made


@pytest.fixture
def served(memory: CoordinatingCluster) -> Iterator[InboxCluster]:
    with InboxCluster(memory, request_timeout_ms=20_000) as made:
        yield made


@pytest.fixture
def broker(served: InboxCluster) -> BrokerFace:
    return served.remote.brokers()[1]


def store_of(memory: CoordinatingCluster) -> UnsteadyStore:
    store = memory.stores.stores[memory.root_of(1)]
    assert isinstance(store, UnsteadyStore)
    return store


def register_again(memory: CoordinatingCluster, served: InboxCluster) -> None:
    """Broker 1 under a new epoch, as after a restart."""
    registration = memory.metadata.image.brokers[1].registration
    memory.commit(RegisterBrokerRecord(1, 99, "another", registration.root))
    served.inboxes[1].broker_epoch = 99


def waiting_member(broker: BrokerFace, memory: CoordinatingCluster) -> Answers:
    """A JoinGroup that arrived; its group's timers do not run, so it waits."""
    answers = Answers()
    request = JoinGroupRequest("g", 30_000, 60_000, "", "i", "consumer", (JoinGroupRequestProtocol("range", b""),))
    broker.coordinator(GROUP, "g", request, answers)
    wait_until(lambda: memory.waiting_count, "its arrival")
    assert answers.list == []
    return answers


def test_a_store_that_loses_every_first_answer_performs_each_request_once(
    memory: CoordinatingCluster, broker: BrokerFace
) -> None:
    store_of(memory).is_unsteady = True
    answers = Answers()
    for number in range(5):
        broker.produce_then(ProduceRequest(IDENTIFIED, batch(b"%d" % number)), answers)
    assert sorted(each.base_offset for each in answers.first(5)) == list(range(5))
    assert memory.log(1, T).log_end_offset == 5
    broker.coordinator(GROUP, "g", COMMIT, answers)
    assert answers.first(6)[5].topics[0].partitions[0].error is None


def test_nothing_is_left_when_clients_have_closed(memory: CoordinatingCluster, served: InboxCluster) -> None:
    answers = Answers()
    for number in range(5):
        served.remote.brokers()[1].produce_then(ProduceRequest(IDENTIFIED, batch(b"%d" % number)), answers)
        answers.first(number + 1)
    served.remote.close()
    wait_until(lambda: not left(served), "the end of the channel")


def left(served: InboxCluster) -> list[str]:
    return [path for path in list(served.objects(1)) if path.startswith(("inbox/", ANSWERS_PREFIX))]


def test_a_broker_that_is_replaced_answers_nothing_twice_and_what_waits_is_retriable(
    memory: CoordinatingCluster, served: InboxCluster, broker: BrokerFace
) -> None:
    waiting = waiting_member(broker, memory)
    served.withdraw(1)
    unread = Answers()
    broker.produce_then(ProduceRequest(IDENTIFIED, batch(b"unread")), unread)
    wait_until(lambda: bool(left(served)), "the request")
    register_again(memory, served)
    served.serve_again(1)
    error = unread.one.error
    assert isinstance(error, RequestTimedOutError | LeaderNotAvailableError)
    assert error.retriable
    assert isinstance(waiting.one, CoordinatorNotAvailableError)
    wait_until(lambda: served.remote.brokers()[1] is not broker, "the new registration")
    served.remote.brokers()[1].produce_then(ProduceRequest(IDENTIFIED, batch(b"x")), unread)
    assert unread.first(2)[1].base_offset == 0
    assert memory.log(1, T).log_end_offset == 1


def test_a_broker_that_does_not_answer_any_more_is_one_that_is_away(
    memory: CoordinatingCluster, served: InboxCluster
) -> None:
    with RemoteCluster(
        ROOT, {"stratalog.transport": "inbox", "request.timeout.ms": 200}, stores=memory.stores
    ) as remote:
        broker, answers = remote.brokers()[1], Answers()
        served.withdraw(1)
        broker.coordinator(GROUP, "g", COMMIT, answers)
        assert isinstance(answers.one, CoordinatorNotAvailableError)
        broker.produce_then(ProduceRequest(IDENTIFIED, batch(b"x")), answers)
        assert isinstance(answers.first(2)[1].error, RequestTimedOutError)


def test_answers_to_calls_that_were_given_up_are_deleted_at_the_end(
    memory: CoordinatingCluster, served: InboxCluster
) -> None:
    config = {"stratalog.transport": "inbox", "request.timeout.ms": 100}
    with RemoteCluster(ROOT, config, stores=memory.stores) as remote:
        served.withdraw(1)
        answers = Answers()
        remote.brokers()[1].coordinator(GROUP, "g", COMMIT, answers)
        assert isinstance(answers.one, CoordinatorNotAvailableError)
        served.serve_again(1)
        wait_until(lambda: any(path.startswith(ANSWERS_PREFIX) for path in left(served)), "the late answer")
    wait_until(lambda: not left(served), "the end of the channel")


def test_what_is_no_request_ends_the_channel_and_nothing_else(
    memory: CoordinatingCluster, served: InboxCluster
) -> None:
    store, answers = store_of(memory), Answers()
    store.put(frames_path("bad", 0), b"no frames")
    store.put(frames_path("closed", 0), encode_frames(Frames(1, 0, [FrameEntry(3, b"\0\x63\0\0\0\0\0\1")])))
    wait_until(lambda: answers_path("bad", 0) in store.objects, "the refusal")
    assert decode_frames(store.objects[answers_path("bad", 0)]).entries == [FrameEntry(WHOLE_CHANNEL)]
    wait_until(lambda: answers_path("closed", 0) in store.objects, "the end")
    assert decode_frames(store.objects[answers_path("closed", 0)]).entries == [FrameEntry(3)]
    served.remote.brokers()[1].produce_then(ProduceRequest(IDENTIFIED, batch(b"x")), answers)
    assert answers.one.error is None


def test_answers_that_nobody_fetches_are_deleted_after_a_while(
    memory: CoordinatingCluster, served: InboxCluster
) -> None:
    store = store_of(memory)
    now_ms = memory.clock.wall_ms()
    store.put(answers_path("dead", 4), b"")
    store.put(answers_path("slow", 1), b"")
    store.modified_ms[answers_path("dead", 4)] = now_ms - ANSWER_KEEP_MS - 1_000
    store.modified_ms[answers_path("slow", 1)] = now_ms
    answers = Answers()
    served.remote.brokers()[1].produce_then(ProduceRequest(IDENTIFIED, batch(b"x")), answers)
    assert answers.one.error is None
    wait_until(lambda: answers_path("dead", 4) not in store.objects, "the clean-up")
    assert answers_path("slow", 1) in store.objects


def outcome_of_commit(memory: CoordinatingCluster, **settings: object) -> object:
    """The error of a commit through the inbox of brokers with these settings."""
    config = BrokerConfig.from_properties({name.replace("__", "."): value for name, value in settings.items()})
    with InboxCluster(memory, config, request_timeout_ms=2_000) as served:
        answers = Answers()
        served.remote.brokers()[1].coordinator(GROUP, "g", COMMIT, answers)
        found = answers.one
        return found if isinstance(found, StratalogError) else found.topics[0].partitions[0].error


def test_acls_hold_for_the_user_of_the_inbox(memory: CoordinatingCluster) -> None:
    acls = {"authorizer__class__name": "StandardAuthorizer", "super__users": "User:batch"}
    assert outcome_of_commit(memory) is None
    assert isinstance(outcome_of_commit(memory, **acls), GroupAuthorizationFailedError)
    assert outcome_of_commit(memory, **acls, stratalog__inbox__principal="User:batch") is None
    for kind, name, host in ((ResourceType.GROUP, "g", "*"), (ResourceType.TOPIC, "t", INBOX)):
        words = (kind, name, PatternType.LITERAL, ANONYMOUS, host, Operation.ALL, Permission.ALLOW)
        memory.commit(AccessControlEntryRecord(name, *words))
    assert outcome_of_commit(memory, **acls) is None


def test_an_inbox_without_a_user_is_not_answered(memory: CoordinatingCluster) -> None:
    assert isinstance(outcome_of_commit(memory, stratalog__inbox__principal=""), CoordinatorNotAvailableError)


def test_a_channel_that_was_idle_begins_anew(memory: CoordinatingCluster, served: InboxCluster) -> None:
    names = set[str]()
    store = store_of(memory)
    put, lock = store.put, threading.Lock()

    def noted(path: str, data: bytes) -> None:
        with lock:
            names.add(path)
        put(path, data)

    store.put = noted  # type: ignore[method-assign]
    config = {"stratalog.transport": "inbox", "connections.max.idle.ms": 1}
    with RemoteCluster(ROOT, config, stores=memory.stores) as remote:
        for number in range(2):
            answers = Answers()
            remote.brokers()[1].produce_then(ProduceRequest(IDENTIFIED, batch(b"%d" % number)), answers)
            assert answers.one.base_offset == number
            memory.clock.sleep_ms(5)
    first_objects = [path for path in names if path.endswith(".0000000000.frames")]
    assert len(first_objects) == 2
