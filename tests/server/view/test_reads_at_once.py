"""A read of one partition holds up nobody else: readers are stopped within storage, by events, while others read on."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import pytest

from stratalog.replication.metadata.records import ConfigRecord
from stratalog.server.view.cluster_view import ClusterView
from stratalog.server.view.leader_progress import PublishedProgress
from stratalog.server.view.read_committed import ReadCommittedView
from stratalog.server.view.shared_read import SharedRead
from stratalog.storage.errors import StoreUnavailableError
from stratalog.storage.records import TopicPartition
from tests.clients.memory_cluster import ROOT, MemoryCluster

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
ANSWER_S = 60
T = TypeVar("T")


class Gate:
    """Stops the threads that access what `is_stopped` names, until `open`."""

    def __init__(self, is_stopped: Callable[[str, str, str], bool]) -> None:
        self.reached = threading.Event()
        self._is_stopped = is_stopped
        self._opened = threading.Event()

    def access(self, operation: str, table: str, detail: str) -> None:
        if self._is_stopped(operation, table, detail):
            self.reached.set()
            assert self._opened.wait(ANSWER_S)

    def open(self) -> None:
        self._opened.set()


@pytest.fixture
def cluster() -> MemoryCluster:
    """t-0 and t-1 have a committed record each."""
    made = MemoryCluster()
    made.create_topic("t", 2)
    for topic_partition in (T0, T1):
        made.append(topic_partition, b"a")
        made.publish(topic_partition)
    return made


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as made:
        yield made


def stopped(cluster: MemoryCluster, root: str, is_stopped: Callable[[str, str, str], bool]) -> Gate:
    gate = Gate(is_stopped)
    cluster.stores.disks[root].access = gate.access
    return gate


def values(view: ClusterView, topic_partition: TopicPartition) -> list[bytes]:
    found: list[bytes] = view.records.read(topic_partition, 0, 1 << 20, timeout_ms=0)["value"].to_pylist()
    return found


def result(of: Future[T]) -> T:
    return of.result(ANSWER_S)


def is_data_file_of(name: str) -> Callable[[str, str, str], bool]:
    return lambda operation, table, detail: operation == "get" and table == name and not detail.startswith("_")


@pytest.mark.parametrize("kind", [ClusterView, ReadCommittedView])
@pytest.mark.parametrize("reads_file", [False, True])
def test_a_partition_is_read_while_the_read_of_another_one_is_stopped(
    cluster: MemoryCluster, threads: ThreadPoolExecutor, kind: type[ClusterView], reads_file: bool
) -> None:
    view = kind(ROOT, stores=cluster.stores)
    is_stopped = is_data_file_of("t-0") if reads_file else lambda _operation, table, _detail: table == "t-0"
    gate = stopped(cluster, cluster.root_of(1), is_stopped)
    cold = threads.submit(values, view, T0)
    assert gate.reached.wait(ANSWER_S)
    assert result(threads.submit(values, view, T1)) == [b"a"]
    cluster.append(T1, b"b")
    cluster.publish(T1)
    assert result(threads.submit(values, view, T1)) == [b"a", b"b"], "folded meanwhile"
    cluster.create_topic("u")
    assert result(threads.submit(view.topics)) == ["t", "u"], "metadata, too"
    marks = result(threads.submit(view.watermarks.published, T0))
    assert marks is not None
    assert marks.high_watermark == 1
    assert not cold.done()
    gate.open()
    assert result(cold) == [b"a"]


def test_a_partition_is_looked_at_while_an_old_file_of_it_is_read(
    cluster: MemoryCluster, threads: ThreadPoolExecutor
) -> None:
    view = ClusterView(ROOT, stores=cluster.stores)
    gate = stopped(cluster, cluster.root_of(1), is_data_file_of("t-0"))
    cold = threads.submit(values, view, T0)
    assert gate.reached.wait(ANSWER_S)
    assert result(threads.submit(view.records.read_from_log, T0, lambda log: log.log_end_offset, 0)) == 1
    assert not cold.done()
    gate.open()
    result(cold)


def test_what_is_young_enough_is_used_while_metadata_is_folded(
    cluster: MemoryCluster, threads: ThreadPoolExecutor
) -> None:
    view = ClusterView(ROOT, stores=cluster.stores)
    gate = stopped(cluster, ROOT, lambda *_: True)
    folding = threads.submit(view.refresh)
    assert gate.reached.wait(ANSWER_S)
    assert result(threads.submit(view.refresh, 1)) is False, "it waits for nobody"
    assert result(threads.submit(view.partition_state, T0)).leader == 1
    assert result(threads.submit(view.watermarks.published, T0, poll=False)) is not None
    assert not folding.done()
    gate.open()
    result(folding)


def test_the_number_of_the_metadata_changes_with_the_image_alone(cluster: MemoryCluster) -> None:
    view = ClusterView(ROOT, stores=cluster.stores)
    before = view.metadata_version
    assert not view.refresh()
    assert view.metadata_version == before
    cluster.commit(ConfigRecord("t", "retention.ms", "1"))
    assert view.refresh()
    assert view.metadata_version > before


# -- one read for many -----------------------------------------------------------------------------------------


class WatchedLock:
    """A lock that counts the threads that have come to it."""

    def __init__(self) -> None:
        self.came = threading.Semaphore(0)
        self._lock = threading.Lock()
        self.acquire, self.release = self._lock.acquire, self._lock.release

    def __enter__(self) -> None:
        self.came.release()
        self._lock.acquire()

    def __exit__(self, *_exception: object) -> None:
        self._lock.release()


def test_threads_that_ask_during_a_read_share_the_next_one(threads: ThreadPoolExecutor) -> None:
    begun, go_on, reads = threading.Semaphore(0), threading.Semaphore(0), list[int]()

    def read() -> None:
        reads.append(len(reads))
        begun.release()
        assert go_on.acquire(timeout=ANSWER_S)

    shared, lock = SharedRead(read), WatchedLock()
    shared.lock = lock  # type: ignore[assignment]
    first = threads.submit(shared.run)
    assert begun.acquire(timeout=ANSWER_S)
    others = [threads.submit(shared.run) for _ in range(5)]
    for _ in range(6):
        assert lock.came.acquire(timeout=ANSWER_S)
    assert not shared.run_if_free()
    go_on.release()
    result(first)
    assert begun.acquire(timeout=ANSWER_S), "what they ask for may have come after the first read began"
    go_on.release()
    for other in others:
        result(other)
    assert len(reads) == 2


def test_a_read_that_failed_serves_nobody_else() -> None:
    failures = [StoreUnavailableError("away")]

    def read() -> None:
        if failures:
            raise failures.pop()

    shared = SharedRead(read)
    assert not shared.was_read
    with pytest.raises(StoreUnavailableError):
        shared.run()
    assert not shared.was_read
    shared.run()
    assert shared.was_read


def test_moves_are_there_after_the_entries(cluster: MemoryCluster) -> None:
    progress = PublishedProgress(cluster.stores)
    cluster.metadata.refresh()
    leader = progress.of(cluster.metadata.image.brokers[1])
    assert leader is not None
    assert leader.entry(T0) is None
    assert progress.of(cluster.metadata.image.brokers[1]) is leader
    progress.poll()
    sequence, moved = progress.moved_since(0)
    assert moved is not None
    assert set(moved) == {T0, T1}
    entry = leader.entry(T0)
    assert entry is not None
    assert entry.high_watermark == 1
    progress.all_moved()
    assert progress.moved_since(sequence)[1] is None
