"""The broker's end of the inbox: every hand-over is accepted and answered once, also over a restart."""

from __future__ import annotations

import json

import pytest

from stratalog.replication.broker.inbox import ANSWER_KEEP_MS, BrokerInbox
from stratalog.replication.leader.replica import WaitingAppend
from stratalog.replication.requests.hand_over import (
    answer_path,
    decode_answer,
    decode_damage_report,
    decode_request,
    encode_request,
    request_path,
)
from stratalog.replication.requests.inbox_bell import BELL_PATH, ring
from stratalog.replication.requests.inbox_frames import channel_and_number
from stratalog.replication.requests.produce import HandOverRequest, ProduceResponse
from stratalog.storage.errors import CorruptMessageError, StoreUnavailableError
from stratalog.storage.files.data_file import DataFile
from stratalog.storage.log.append import HandedFiles
from stratalog.storage.objects.distance import FAR
from stratalog.storage.objects.memory import MemoryStore
from stratalog.storage.objects.port import ObjectMeta
from stratalog.storage.records import IdentifiedPartition, TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
EPOCH = 7
FILE = DataFile("segment=0/x.parquet", 100, 3, 0, 2, None, None)


class UnsteadyStore(MemoryStore):
    """Fails the operations named in `failing`."""

    failing: tuple[str, ...] = ()

    def put(self, path: str, data: bytes) -> None:
        self._perhaps_fail("put")
        super().put(path, data)

    def delete(self, path: str) -> None:
        self._perhaps_fail("delete")
        super().delete(path)

    def _perhaps_fail(self, operation: str) -> None:
        if operation in self.failing:
            raise StoreUnavailableError(f"test: {operation}")


class FarStore(UnsteadyStore):
    """Counts its listings, which are paid."""

    distance = FAR
    listings = 0

    def list(self, prefix: str) -> list[ObjectMeta]:
        self._perhaps_fail("list")
        self.listings += 1
        return super().list(prefix)

    def get_optional(self, path: str) -> bytes | None:
        self._perhaps_fail("get")
        return super().get_optional(path)


class Inbox:
    """A broker's inbox over a store, and what it queued."""

    def __init__(self, store: UnsteadyStore | None = None, broker_epoch: int = EPOCH) -> None:
        self.store = store or UnsteadyStore()
        self.queued: list[WaitingAppend] = []
        self.inbox = BrokerInbox(self.store, self.queued.append)
        self.inbox.broker_epoch = broker_epoch

    def ask(self, request_id: str, *handed: HandOverRequest, broker_epoch: int = EPOCH) -> None:
        self.store.put(request_path(request_id), encode_request(handed, broker_epoch))

    def stored(self, base_offset: int) -> None:
        """The leader answers the oldest hand-over that it has."""
        waiting = self.queued.pop(0)
        tp = waiting.request.topic_partition
        waiting.complete(ProduceResponse(IdentifiedPartition("id", tp), base_offset, base_offset + 2, leader_epoch=4))

    def answer(self, request_id: str) -> list[str] | None:
        """Offsets or error name of each part; None without an answer."""
        content = self.store.get_optional(answer_path(request_id))
        if content is None:
            return None
        return [r.error.name if r.error else f"{r.topic_partition} {r.base_offset}" for r in decode_answer(content)]

    def is_asked(self, request_id: str) -> bool:
        return self.store.exists(request_path(request_id))


def handed(partition: TopicPartition = T0, *files: DataFile) -> HandOverRequest:
    return HandOverRequest(IdentifiedPartition("id", partition), HandedFiles(files or (FILE,), "query", 1))


def test_a_request_is_queued_answered_and_removed() -> None:
    inbox = Inbox()
    inbox.ask("r", handed())
    assert inbox.inbox.poll()
    assert [w.request for w in inbox.queued] == [handed()]
    assert inbox.answer("r") is None
    inbox.stored(10)
    assert inbox.inbox.poll()
    assert inbox.answer("r") == ["t-0 10"]
    assert not inbox.is_asked("r")
    assert not inbox.inbox.poll()


def test_an_open_request_is_not_accepted_twice() -> None:
    inbox = Inbox()
    inbox.ask("r", handed())
    for _ in range(3):
        inbox.inbox.poll()
    assert len(inbox.queued) == 1


def test_the_answer_waits_for_all_parts() -> None:
    inbox = Inbox()
    inbox.ask("r", handed(T0), handed(T1))
    inbox.inbox.poll()
    inbox.stored(10)
    inbox.inbox.poll()
    assert inbox.answer("r") is None
    inbox.stored(20)
    inbox.inbox.poll()
    assert inbox.answer("r") == ["t-0 10", "t-1 20"]


def test_a_request_to_an_earlier_incarnation_is_refused() -> None:
    """Its writer finds the new leader in the metadata log; the sink state shows whether it was stored."""
    inbox = Inbox()
    inbox.ask("r", handed(), broker_epoch=EPOCH - 1)
    inbox.inbox.poll()
    inbox.inbox.poll()
    assert inbox.queued == []
    assert inbox.answer("r") == ["NOT_LEADER_OR_FOLLOWER"]


def test_what_a_dead_broker_left_open_its_next_incarnation_refuses() -> None:
    first = Inbox()
    first.ask("r", handed())
    first.inbox.poll()
    second = Inbox(first.store, broker_epoch=EPOCH + 1)
    second.inbox.poll()
    second.inbox.poll()
    assert second.queued == []
    assert second.answer("r") == ["NOT_LEADER_OR_FOLLOWER"]


def test_a_hand_over_without_files_is_an_error() -> None:
    inbox = Inbox()
    inbox.ask("r", HandOverRequest(IdentifiedPartition("id", T0), HandedFiles((), "query", 1)), handed(T1))
    inbox.inbox.poll()
    inbox.stored(3)
    inbox.inbox.poll()
    assert inbox.answer("r") == ["INVALID_REQUEST", "t-1 3"]


def test_rubbish_and_nothing_are_answered_too() -> None:
    inbox = Inbox()
    inbox.store.put(request_path("rubbish"), b"{")
    inbox.ask("nothing")
    inbox.inbox.poll()
    inbox.inbox.poll()
    assert (inbox.answer("rubbish"), inbox.answer("nothing")) == ([], [])
    assert not inbox.is_asked("rubbish")


def test_an_answer_that_could_not_be_written_is_written_later() -> None:
    for failing in ("put", "delete"):
        inbox = Inbox()
        inbox.ask("r", handed())
        inbox.inbox.poll()
        inbox.stored(10)
        inbox.store.failing = (failing,)
        for _ in range(2):
            try:
                inbox.inbox.poll()
            except StoreUnavailableError:
                continue
        inbox.store.failing = ()
        inbox.inbox.poll()
        assert inbox.answer("r") == ["t-0 10"]
        assert not inbox.is_asked("r")
        inbox.inbox.poll()
        assert inbox.queued == [], "the answered request is not taken in again"


def test_a_writer_of_an_earlier_release_means_the_topic_that_has_the_name_when_the_request_is_read() -> None:
    inbox = Inbox()
    known = {T0: IdentifiedPartition("now", T0), T1: IdentifiedPartition("other", T1)}
    inbox.inbox = BrokerInbox(inbox.store, inbox.queued.append, identified=known.__getitem__)
    inbox.inbox.broker_epoch = EPOCH
    request = json.loads(encode_request([handed(T0), handed(T1)], EPOCH))
    inbox.store.put(request_path("new"), json.dumps(request).encode())
    del request["topic_ids"]
    inbox.store.put(request_path("old"), json.dumps(request).encode())
    inbox.inbox.poll()
    assert {each.request.partition.topic_id for each in inbox.queued} == {"id", "now", "other"}


def test_answers_that_were_not_fetched_are_removed_after_ten_minutes() -> None:
    now_ms = [0]
    inbox = Inbox(UnsteadyStore({}, lambda: now_ms[0]))
    inbox.store.put(answer_path("old"), b"[]")
    now_ms[0] = 1
    inbox.store.put(answer_path("young"), b"[]")
    inbox.ask("open", handed())
    inbox.inbox.clean(ANSWER_KEEP_MS + 1)
    assert inbox.answer("old") is None
    assert inbox.answer("young") == []
    assert inbox.is_asked("open"), "a request is never removed unanswered"


def test_a_hand_over_has_this_form_in_the_inbox() -> None:
    """Writers and brokers of different releases read each other's requests."""
    request = HandOverRequest(
        IdentifiedPartition("id", T0), HandedFiles((DataFile("f", 9, 1, 0, 0, None, 5),), "query", 1), timeout_ms=7
    )
    encoded = encode_request([request], 3)
    assert encoded == (
        b'{"broker_epoch": 3, "handed": [{"topic_partition": ["t", 0], "files": [{"path": "f", "size_bytes": 9, '
        b'"record_count": 1, "first_delta": 0, "last_delta": 0, "min_timestamp_ms": null, "max_timestamp_ms": 5}], '
        b'"sink_id": "query", "batch_id": 1, "producer_id": -1, "producer_epoch": -1, '
        b'"acks": -1, "timeout_ms": 7}], "topic_ids": ["id"]}'
    )
    assert decode_request(encoded) == (3, [request])


DEEP = b"[" * 200_000
NO_REQUESTS = [
    b"", b"{", b"[]", b"1", b'"x"', b"\xff\xfe", DEEP,
    b'{"broker_epoch": 1, "handed": [1]}', b'{"broker_epoch": 1, "handed": 1}',
    b'{"broker_epoch": 1, "handed": [{"topic_partition": [["x"], {}], "acks": 1, "timeout_ms": 1, "files": []}]}',
    b'{"broker_epoch": 1, "handed": [{"topic_partition": ["x"], "acks": 1, "timeout_ms": 1, "files": []}]}',
    b'{"broker_epoch": 1, "handed": [{"topic_partition": ["x", true], "acks": 1, "timeout_ms": 1, "files": []}]}',
    b'{"broker_epoch": 1, "handed": [{"topic_partition": ["x", 0], "acks": {}, "timeout_ms": 1, "files": []}]}',
    b'{"broker_epoch": 1, "handed": [{"topic_partition": ["x", 0], "acks": 1, "timeout_ms": 1, "files": [7]}]}',
]  # fmt: skip


@pytest.mark.parametrize("data", NO_REQUESTS)
def test_an_object_that_is_no_request_is_answered_and_stops_nothing(data: bytes) -> None:
    inbox = Inbox(UnsteadyStore({}, lambda: 0))
    inbox.store.put(request_path("bad"), data)
    inbox.ask("good", handed())
    inbox.inbox.poll()
    inbox.inbox.poll()
    assert inbox.answer("bad") == []
    assert len(inbox.queued) == 1


@pytest.mark.parametrize("data", [*NO_REQUESTS, b'{"topic_partition": [1, "x"], "path": 5}'])
def test_an_object_that_is_no_damage_report_is_refused(data: bytes) -> None:
    with pytest.raises(CorruptMessageError, match="not a damage report"):
        decode_damage_report(data)


@pytest.mark.parametrize("name", ["x.\u00b2.frames", "x.-1.frames", f"x.{'9' * 30}.frames", ".0.frames", "0.frames"])
def test_frames_of_impossible_channels_are_none(name: str) -> None:
    assert channel_and_number(f"inbox/{name}") is None


def test_an_idle_inbox_on_an_object_store_is_not_listed_until_its_bell_rings() -> None:
    inbox = Inbox(store := FarStore())
    inbox.inbox.poll(lists=False)  # what rang before the broker began is not known
    assert store.listings == 1
    for _ in range(3):
        assert not inbox.inbox.poll(lists=False)
    assert store.listings == 1
    inbox.ask("r", handed())
    assert not inbox.inbox.poll(lists=False)
    ring(store, "r")
    assert inbox.inbox.poll(lists=False)
    assert [w.request for w in inbox.queued] == [handed()]
    inbox.inbox.poll(lists=False)
    assert store.listings == 2


def test_a_bell_whose_inbox_could_not_be_listed_rings_on() -> None:
    inbox = Inbox(store := FarStore())
    inbox.inbox.poll()
    for failing in ("list", "get"):
        inbox.ask(failing, handed())
        ring(store, failing)
        store.failing = (failing,)
        with pytest.raises(StoreUnavailableError):
            inbox.inbox.poll(lists=False)
        store.failing = ()
        assert inbox.inbox.poll(lists=False)
    assert len(inbox.queued) == 2


def test_a_request_that_comes_between_the_bell_and_its_listing_rings_again() -> None:
    """The broker reads the bell first: what rings after that read rings still after the listing."""
    store = FarStore()
    inbox = Inbox(store)
    inbox.inbox.poll()
    inbox.inbox.poll(lists=False)
    read_bell, listings = store.get_optional, store.listings

    def rings_meanwhile(path: str) -> bytes | None:
        content = read_bell(path)
        if path == BELL_PATH:
            ring(store, "later")
        return content

    ring(store, "first")
    store.get_optional = rings_meanwhile  # type: ignore[method-assign]
    inbox.inbox.poll(lists=False)
    store.get_optional = read_bell  # type: ignore[method-assign]
    inbox.inbox.poll(lists=False)
    assert store.listings == listings + 2


def test_a_request_whose_sender_did_not_ring_is_found_with_the_old_answers() -> None:
    inbox = Inbox(store := FarStore())
    inbox.inbox.poll(lists=False)
    inbox.ask("r", handed())
    assert not inbox.inbox.poll(lists=False)
    inbox.inbox.clean(0)
    assert len(inbox.queued) == 1
    assert store.listings == 2


def test_nobody_rings_on_a_near_store() -> None:
    store = UnsteadyStore()
    ring(store, "r")
    assert not store.exists(BELL_PATH)
