"""Batches from storage: what one fetch leaves for the next, and the process that reads for clients which read on."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stratalog import Admin, Cluster, NewTopic, Producer
from stratalog.clients.wire.rows import decode_rows
from stratalog.server.apis.fetch import reading_process, stored_batches
from stratalog.server.apis.fetch.reading_process import RETRY_MS, TABLES_KEPT, ReadingProcess, ReadRequest
from stratalog.server.apis.fetch.stored_batches import RECENT_MS, Streaks
from stratalog.server.batches.batch_memory import BatchMemory, PublishedLog
from stratalog.server.batches.read_ahead import LEFT_MS, ReadAhead, ReadFrom
from stratalog.server.batches.tail import CHUNK_MS_MAX
from stratalog.storage.log.state import NOTHING_REMOVED, RemovedRecords
from stratalog.storage.objects.store_settings import FROM_ENVIRONMENT
from stratalog.storage.records import IdentifiedPartition, TopicPartition
from stratalog.wire.api_keys import ApiKey
from stratalog.wire.batches.headers import EncodedBatch
from stratalog.wire.batches.record_batches import encode_batch, encode_rows
from tests.clients.kafka_client import KafkaClient
from tests.lab.bench.machine import descendants
from tests.storage.logs import FakeClock, Replicas, append, batch
from tests.waiting import wait_until

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
L0, L1, ANEW = IdentifiedPartition("id", T0), IdentifiedPartition("id", T1), IdentifiedPartition("new", T0)
SETTINGS = {"offsets.topic.num.partitions": 1, "offsets.topic.replication.factor": 1}


def encoded(*bounds: tuple[int, int], size_bytes: int = 10) -> list[EncodedBatch]:
    return [EncodedBatch(base, last, bytes(size_bytes)) for base, last in bounds]


def offsets(batches: list[EncodedBatch]) -> list[int]:
    return [each.base_offset for each in batches]


# -- what one fetch leaves -----------------------------------------------------------------------------------


def put(ahead: ReadAhead, log: IdentifiedPartition, offset: int, batches: list[EncodedBatch], now_ms: int = 0) -> None:
    """Read under leader epoch 3 from version 7 of the table."""
    ahead.put(ReadFrom(log, 3, 7), offset, batches, now_ms)


def take(
    ahead: ReadAhead,
    log: IdentifiedPartition,
    offset: int,
    end_offset: int = 99,
    epoch: int = 3,
    removed: tuple[int, int] = (0, 0),
    now_ms: int = 0,
) -> list[int]:
    return offsets(ahead.take(log, epoch, offset, end_offset, RemovedRecords(*removed), now_ms))


def test_what_a_fetch_left_is_taken_once_by_the_one_behind_it() -> None:
    ahead = ReadAhead(100)
    put(ahead, L0, 5, encoded((5, 7), (8, 8)))
    assert (take(ahead, L0, 4), take(ahead, L1, 5), take(ahead, ANEW, 5)) == ([], [], [])
    assert (take(ahead, L0, 5), ahead.size_bytes) == ([5, 8], 0)
    assert take(ahead, L0, 5) == []


@pytest.mark.parametrize(("end_offset", "found"), [(5, []), (7, []), (8, [5]), (9, [5, 8])])
def test_only_batches_below_the_readers_end_are_given(end_offset: int, found: list[int]) -> None:
    ahead = ReadAhead(100)
    put(ahead, L0, 5, encoded((5, 7), (8, 8)))
    assert take(ahead, L0, 5, end_offset) == found


@pytest.mark.parametrize(
    ("epoch", "removed", "found"),
    [
        (3, (0, 0), [5]),
        (4, (0, 0), []),
        (2, (0, 0), []),
        (3, (8, 6), []),
        (3, (8, 5), [5]),
        (3, (7, 9), [5]),
        (3, (9, 9), []),
    ],
)
def test_what_the_log_may_have_lost_since_is_not_given(epoch: int, removed: tuple[int, int], found: list[int]) -> None:
    """Version 8 of the table removed records below 6, or below 5; those that version 7 removed were not read."""
    ahead = ReadAhead(100)
    put(ahead, L0, 5, encoded((5, 7)))
    assert (take(ahead, L0, 5, epoch=epoch, removed=removed), ahead.size_bytes) == (found, 0)


def test_the_oldest_goes_first_and_what_is_too_large_or_has_no_source_is_not_kept() -> None:
    ahead = ReadAhead(25)
    for offset in (1, 2, 3):
        put(ahead, L0, offset, encoded((offset, offset)))
    assert [take(ahead, L0, offset) for offset in (1, 2, 3)] == [[], [2], [3]]
    put(ahead, L0, 9, encoded((9, 9), size_bytes=26))
    ahead.put(None, 9, encoded((9, 9)), 0)
    assert (take(ahead, L0, 9), ahead.size_bytes) == ([], 0)
    put(ahead, L0, 9, encoded((9, 9)))
    put(ahead, L0, 9, encoded((9, 9), (10, 10)))
    assert (ahead.size_bytes, take(ahead, L0, 9)) == (20, [9, 10])


@pytest.mark.parametrize(("first", "size_bytes"), [(4, 60), (6, 40), (9, 10)])
def test_what_is_kept_of_an_answer_takes_no_more_memory_than_is_counted(first: int, size_bytes: int) -> None:
    """Of ten batches of ten bytes in one buffer, those from `first` on; at least half of it is kept as it is."""
    whole = memoryview(bytes(100))
    batches = [EncodedBatch(number, number, whole[10 * number : 10 * number + 10]) for number in range(10)]
    ahead = ReadAhead(1_000)
    put(ahead, L0, first, batches[first:])
    counted = ahead.size_bytes
    found = ahead.take(L0, 3, first, 99, NOTHING_REMOVED, 0)
    assert offsets(found) == list(range(first, 10))
    is_slice = any(isinstance(each.data, memoryview) for each in found)
    assert (is_slice, counted) == ((True, 100) if first <= 5 else (False, size_bytes))


def test_there_is_room_again_when_a_reader_has_left_and_what_was_kept_for_it_is_not_given() -> None:
    ahead = ReadAhead(100)
    for at_ms, log in ((0, L0), (5_000, L1)):
        put(ahead, log, 5, encoded((5, 7), size_bytes=30), at_ms)
    room = [ahead.room_bytes(now_ms) for now_ms in (5_000, LEFT_MS - 1, LEFT_MS, LEFT_MS + 4_999)]
    assert room == [40, 40, 70, 70]
    assert (take(ahead, L0, 5), take(ahead, L1, 5, now_ms=LEFT_MS + 4_999)) == ([], [5])
    assert ahead.room_bytes(LEFT_MS) == 100
    put(ahead, L0, 5, encoded((5, 7)), 0)
    assert (take(ahead, L0, 5, now_ms=LEFT_MS), ahead.size_bytes) == ([], 0)


def test_both_memories_have_one_budget() -> None:
    """What is read ahead takes a quarter at most, for which the oldest of the newest batches go."""
    clock = FakeClock()
    memory, batches = BatchMemory(80_000, 60_000, clock), [encode_batch(batch(["x" * 4_000])) for _ in range(8)]
    for offset, data in enumerate(batches):
        memory.put(L0, offset, 3, data)
    now = PublishedLog(L0, 3, 1)
    assert memory.read(now, 0, 99, 1)
    full_bytes = memory.size_bytes
    memory.put_ahead(ReadFrom(L1, 0, 1), 5, encoded((5, 5), size_bytes=19_000))
    assert full_bytes <= memory.size_bytes <= 80_000
    assert (memory.read(now, 0, 99, 1), bool(memory.read(now, 7, 99, 1))) == ([], True)
    memory.put_ahead(ReadFrom(L1, 0, 1), 9, encoded((9, 9), size_bytes=20_001))
    assert memory.take_ahead(PublishedLog(L1, 0, 1), 9, 99) == []
    clock.now_ms += 60_000 + CHUNK_MS_MAX + 1
    assert (memory.read(now, 7, 99, 1), memory.size_bytes) == ([], 19_000), "old batches stay until others come"
    assert (memory.take_ahead(PublishedLog(L1, 0, 1), 5, 99), memory.size_bytes) == ([], 0)


def test_a_reader_is_known_where_it_goes_on_and_forgotten_after_many_others() -> None:
    streaks = Streaks(readers_max=2)
    streaks.went_on(T0, 0, 10, 100, now_ms=0)
    streaks.went_on(T0, 10, 20, 50, now_ms=0)
    assert [streaks.goes_on(T0, offset) for offset in (0, 10, 20)] == [False, False, True]
    streaks.went_on(T1, 20, 30, 1, now_ms=0)
    streaks.went_on(T1, 0, 5, 2, now_ms=0)
    assert [streaks.goes_on(*place) for place in ((T0, 20), (T1, 30), (T1, 5))] == [False, True, True]


def test_what_readers_of_several_partitions_read_is_counted_once_they_go_on() -> None:
    streaks = Streaks()
    reads = [(T0, 0, 10, 1_000), (T1, 0, 9, 1_000), (T0, 10, 20, 70), (T1, 9, 12, 30)]
    for now_ms, (named, offset, next_offset, size_bytes) in enumerate(reads):
        streaks.went_on(named, offset, next_offset, size_bytes, now_ms)
    assert [streaks.recent_bytes(now_ms) for now_ms in (4, 1 + RECENT_MS, 2 + RECENT_MS)] == [100, 100, 0]
    streaks.went_on(T0, 20, 21, 5, now_ms=2 + RECENT_MS)
    assert streaks.recent_bytes(2 + RECENT_MS) == 5


# -- the process ---------------------------------------------------------------------------------------------


@pytest.fixture
def replicas(tmp_path: Path) -> Replicas:
    """Twenty batches of ten records in broker 1's t-0."""
    replicas = Replicas.new(tmp_path)
    log = replicas.leader()
    for number in range(20):
        append(log, batch([f"{number}-{each}" for each in range(10)]))
    return replicas


@pytest.fixture
def process(replicas: Replicas) -> Iterator[ReadingProcess]:
    process = ReadingProcess(replicas.clock)
    yield process
    process.close()


def request_for(replicas: Replicas, start_offset: int, end_offset: int = 200, max_bytes: int = 1 << 20) -> ReadRequest:
    planned = replicas.log().plan_read(start_offset, max_bytes, end_offset)
    assert replicas.root is not None
    root, bounds = str(replicas.root / "1"), (planned.start_offset, planned.end_offset, planned.max_bytes)
    return ReadRequest(root, T0, FROM_ENVIRONMENT, planned.entries, *bounds)


def reads(process: ReadingProcess, request: ReadRequest) -> list[EncodedBatch]:
    """What the process reads, once it is ready."""
    wait_until(lambda: process.read(request) is not None, "the process is ready")
    found = process.read(request)
    assert found is not None
    return found


def alive() -> list[int]:
    def command(pid: int) -> str:
        try:
            return Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8")
        except OSError:
            return ""

    return [pid for pid in descendants([os.getpid()]) if "reading_process" in command(pid)]


def test_the_process_reads_what_the_broker_would(replicas: Replicas, process: ReadingProcess) -> None:
    for start, end in ((0, 200), (55, 130), (190, 200)):
        own = encode_rows(replicas.log().read(start, 1 << 20, end))
        found = reads(process, request_for(replicas, start, end))
        assert [(each.base_offset, each.last_offset, bytes(each.data)) for each in found] == own_values(own)


def own_values(batches: list[EncodedBatch]) -> list[tuple[int, int, bytes]]:
    return [(each.base_offset, each.last_offset, bytes(each.data)) for each in batches]


def test_the_process_keeps_the_tables_that_it_read_last(replicas: Replicas) -> None:
    reader, request = reading_process.Reader(), request_for(replicas, 0)
    table = reader.table(request)
    others = [request._replace(topic_partition=TopicPartition("t", number)) for number in range(1, TABLES_KEPT)]
    assert len({id(reader.table(other)) for other in others}) == TABLES_KEPT - 1
    assert reader.table(request) is table
    first = reader.table(others[0])
    for number in range(TABLES_KEPT, 2 * TABLES_KEPT - 1):
        reader.table(request._replace(topic_partition=TopicPartition("t", number)))
    assert (reader.table(others[0]) is first, reader.table(request) is table) == (True, False)
    assert own_values(reader.read(request)) == own_values(encode_rows(replicas.log().read(0, 1 << 20, 200)))


def test_a_read_that_fails_is_left_to_the_broker(replicas: Replicas, process: ReadingProcess) -> None:
    good = request_for(replicas, 0)
    reads(process, good)
    entry = good.entries[0]
    gone = good._replace(entries=(type(entry)(replace_path(entry.file), *rest_of(entry)),))
    assert process.read(gone) is None
    assert process.read(good) is not None, "it ended"


def replace_path(file: Any) -> Any:
    return type(file)(**{**file.as_json(), "path": "gone.parquet"})


def rest_of(entry: Any) -> tuple[int, int, int]:
    return entry.segment, entry.leader_epoch, entry.base_offset


def test_after_a_kill_the_broker_reads_itself_and_tries_again_later(
    replicas: Replicas, process: ReadingProcess
) -> None:
    request = request_for(replicas, 0)
    reads(process, request)
    (pid,) = alive()
    os.kill(pid, signal.SIGKILL)
    assert process.read(request) is None
    replicas.clock.now_ms += RETRY_MS - 1
    assert (process.read(request), alive()) == (None, [])
    replicas.clock.now_ms += 1
    assert len(reads(process, request)) == 20
    process.close()
    assert (process.read(request), alive()) == (None, [])


@pytest.mark.parametrize(
    "failure", [MemoryError("unable to allocate"), ValueError("not a pickle"), KeyboardInterrupt()]
)
@pytest.mark.parametrize("piece", [1, 2, 3], ids=["lengths", "head", "content"])
def test_an_answer_that_broke_off_ends_the_process(
    replicas: Replicas, process: ReadingProcess, failure: BaseException, piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the error: the rest of the message would be taken for the next answer."""
    request, received = request_for(replicas, 0), reading_process._received
    reads(process, request)
    pieces: list[int] = []

    def short(stream: socket.socket, size_bytes: int) -> memoryview:
        pieces.append(size_bytes)
        if len(pieces) == piece:
            raise failure
        return received(stream, size_bytes)

    monkeypatch.setattr(reading_process, "_received", short)
    if isinstance(failure, Exception):
        assert process.read(request) is None
    else:
        with pytest.raises(KeyboardInterrupt):
            process.read(request)
    assert (process.is_ready, alive(), process.read(request)) == (False, [], None)
    replicas.clock.now_ms += RETRY_MS
    assert own_values(reads(process, request)) == own_values(encode_rows(replicas.log().read(0, 1 << 20, 200)))


@pytest.mark.parametrize("other", [(0, T0), (None, T1)], ids=["number", "partition"])
def test_the_answer_to_another_request_is_not_taken(
    replicas: Replicas,
    process: ReadingProcess,
    other: tuple[int | None, TopicPartition],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    request, receive = request_for(replicas, 0), reading_process.receive
    reads(process, request)

    def mixed_up(stream: socket.socket) -> tuple[Any, memoryview]:
        (number, _, places), content = receive(stream)
        return (number if other[0] is None else other[0], other[1], places), content

    monkeypatch.setattr(reading_process, "receive", mixed_up)
    assert (process.read(request), process.is_ready, alive()) == (None, False, [])


def test_a_process_that_does_not_answer_is_given_up(
    replicas: Replicas, process: ReadingProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading_process, "READ_S_MAX", 1)
    request = request_for(replicas, 0)
    reads(process, request)
    (pid,) = alive()
    os.kill(pid, signal.SIGSTOP)
    assert (process.read(request), process.is_ready, alive()) == (None, False, [])


@pytest.mark.parametrize(
    ("from_bytes", "max_bytes", "pieces_bytes"),
    [(0, 6_000, None), (1, 6_000, None), (0, 60_000, (9_000, 20_000)), (1, 60_000, (9_000, 20_000))],
    ids=["broker", "process", "broker in pieces", "process in pieces"],
)
def test_a_consumer_that_begins_with_old_records_gets_them_all(
    tmp_path: Path,
    from_bytes: int,
    max_bytes: int,
    pieces_bytes: tuple[int, int] | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of a running cluster, without the encoded tail; each answer has room for one batch of four, or for several that
    are read in pieces."""
    if pieces_bytes is not None:
        monkeypatch.setattr(stored_batches, "READ_BYTES_MAX", pieces_bytes[0])
        monkeypatch.setattr(stored_batches, "AHEAD_BYTES", pieces_bytes[1])
    with Cluster.start(tmp_path, brokers=1, fetcher="thread", config=SETTINGS) as cluster:
        Admin(cluster).create_topics([NewTopic("t", 1, 1)])
        with Producer(cluster, acks="all") as producer:
            for number in range(40):
                for each in range(25):
                    producer.send("t", f"{number}-{each}".encode() * 40)
                producer.flush()
        settings = {**SETTINGS, "stratalog.reading.process.bytes": from_bytes}
        with KafkaClient(cluster, settings=settings, advertised=[1]) as client:
            found, rounds, was_used = 0, 0, False
            while not (found and (was_used or not from_bytes)):
                found = len(all_values(client, max_bytes))
                rounds, was_used = rounds + 1, bool(alive())
                assert (found, rounds < 1_000) == (1_000, True)
            assert len(all_values(client, max_bytes)) == 1_000
        assert alive() == [], "the process outlives its broker"


def all_values(client: KafkaClient, max_bytes: int) -> list[bytes]:
    """The topic's records. Each answer is at least half full, as long as there are records."""
    values: list[bytes] = []
    while True:
        wanted = {"partition": 0, "fetch_offset": len(values), "partition_max_bytes": max_bytes}
        asked = {"max_wait": 0, "min_bytes": 0, "topics": [{"topic": "t", "partitions": [wanted]}]}
        (partition,) = client.ask(ApiKey.FETCH, 11, asked).responses[0].partitions
        assert partition.error_code == 0
        rows = decode_rows(partition.records or b"")
        found = zip(rows["offset"].to_pylist(), rows["value"].to_pylist(), strict=True)
        fresh = [value for offset, value in found if offset >= len(values)]
        if not fresh and len(values) >= partition.high_watermark:
            return values
        values += fresh
        assert 2 * len(partition.records) >= max_bytes or len(values) == partition.high_watermark
