"""The broker's loop: what it answers and when, and how long it may rest."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from stratalog.replication import cadence
from stratalog.replication.broker.broker import Broker
from stratalog.replication.broker.hosted_replicas import BrokerIdentity, BrokerSetup
from stratalog.replication.config import BrokerConfig
from stratalog.replication.metadata.log import MetadataLog, open_metadata
from stratalog.replication.metadata.records import (
    ConfigRecord,
    EraseRecord,
    FenceBrokerRecord,
    MetadataRecord,
    RegisterBrokerRecord,
)
from stratalog.replication.progress.progress import (
    ReplicaProgress,
    follower_progress_path,
    leader_progress_path,
    progress_rows,
)
from stratalog.replication.progress.progress_object import ProgressWriter
from stratalog.replication.requests.hand_over import INBOX_PREFIX, answer_path, encode_request, request_path
from stratalog.replication.requests.produce import ACKS_ALL, ProduceRequest, ProduceResponse
from stratalog.replication.stores import DeltaStores, Ports, Stores
from stratalog.storage.clock import Clock, RandomIds, SystemClock
from stratalog.storage.errors import RequestTimedOutError, StoreUnavailableError
from stratalog.storage.objects.opened import open_store
from stratalog.storage.objects.port import ObjectMeta, ObjectStore
from stratalog.storage.records import TopicPartition
from tests.replication.memory_stores import METADATA_ROOT, MemoryStores, commit, create, led_by
from tests.storage.logs import batch

T0 = TopicPartition("t", 0)
FOLLOWER = 2
CONFIG = BrokerConfig.from_properties(
    {"stratalog.metadata.poll.max.ms": 200, "stratalog.upkeep.interval.ms": 100_000_000}
)


class Running:
    """Broker 1 leads partition 0 of `t` under epoch 0; broker 2 follows when the test lets it."""

    def __init__(
        self, stores: Stores, clock: Clock, roots: tuple[str, str, str], config: BrokerConfig = CONFIG
    ) -> None:
        self.metadata_root, self.root, follower_root = roots
        self.stores, self.clock = stores, clock
        self.broker = Broker(
            BrokerSetup(BrokerIdentity(1, self.root), config, self.metadata_root), Ports(stores, clock, RandomIds())
        )
        self.metadata: MetadataLog = open_metadata(stores, self.metadata_root, clock, RandomIds())
        self.metadata.create()
        commit(self.metadata, RegisterBrokerRecord(FOLLOWER, 20, "run", follower_root))
        self.broker.start()
        create(self.metadata, "t", led_by(1))
        self.follower = ProgressWriter(stores.objects(follower_root), follower_progress_path(20, 1, "a"))
        self.answers: list[ProduceResponse] = []

    def settle(self) -> None:
        """Turns until nothing moves any more."""
        while self.broker.step() or self.broker.wakeup.wait_ms(0):
            pass

    def produce(self, value: str, timeout_ms: int = 10_000) -> None:
        named = self.metadata.image.identified(T0)
        request = ProduceRequest(named, batch([value]), ACKS_ALL, timeout_ms=timeout_ms)
        self.broker.calls.produce_then(request, self.answers.append)

    def follow(self, end: int, log_start: int = 0, version: int | None = None) -> None:
        version = end if version is None else version
        self.follower.update([ReplicaProgress(T0, 0, end, version, log_start_offset=log_start, topic_id="id")])
        self.follower.publish()

    def published(self, objects: ObjectStore) -> ReplicaProgress:
        content = objects.get_register(leader_progress_path(self.broker.broker_epoch))
        (progress,) = progress_rows(content or b"")
        return progress


def in_memory(config: BrokerConfig = CONFIG) -> tuple[Running, MemoryStores]:
    stores = MemoryStores()
    running = Running(stores, stores.clock, (METADATA_ROOT, "broker-1", "broker-2"), config)
    running.follower.publish()
    tick(stores)
    running.settle()
    return running, stores


def tick(stores: MemoryStores) -> None:
    """Long enough for every poll."""
    stores.clock.now_ms += 200


@pytest.fixture
def on_disk(tmp_path: Path) -> Running:
    roots = (str(tmp_path / "metadata"), str(tmp_path / "broker-1"), str(tmp_path / "broker-2"))
    for root in roots:
        open_store(root, create=True)
    stores, clock = DeltaStores(RandomIds()), SystemClock()
    open_metadata(stores, roots[0], clock, RandomIds()).create()
    return Running(stores, clock, roots)


COMPACTION = (ConfigRecord("t", "cleanup.policy", "compact"), ConfigRecord("t", "min.cleanable.dirty.ratio", "0"))
RETENTION = (ConfigRecord("t", "retention.bytes", "1"),)
ERASURE = (EraseRecord("t", 1, '{"key": {"equals": "a"}}', (4,), "request"),)


@pytest.mark.parametrize("reason", [COMPACTION, RETENTION, ERASURE])
def test_a_leader_that_removed_records_publishes_the_version_in_which_they_are_gone(
    reason: tuple[MetadataRecord, ...],
) -> None:
    """Where nothing is appended, readers learn from nothing else that their fold of the log is old."""
    running, stores = in_memory(BrokerConfig.from_properties({"stratalog.upkeep.interval.ms": 100}))
    commit(running.metadata, ConfigRecord("t", "segment.files.max", "1"))
    for end in range(1, 5):
        tick(stores)
        running.produce("a")
        running.settle()
        running.follow(end)
    tick(stores)
    running.settle()
    log = running.broker.leaders[T0].log
    before, count = running.published(stores.objects("broker-1")), len(log.files)
    commit(running.metadata, *reason)
    while len(log.files) == count:
        stores.clock.now_ms += 1_000
        running.settle()
    running.broker.step()
    after = running.published(stores.objects("broker-1"))
    assert before.version < after.version == log.version
    assert (before.high_watermark, after.high_watermark) == (4, 4)


def test_acks_all_is_answered_once_the_followers_have_it() -> None:
    running, stores = in_memory()
    running.produce("a")
    running.settle()
    assert running.answers == []
    running.follow(1)
    running.settle()
    assert [answer.base_offset for answer in running.answers] == [0]
    assert running.published(stores.objects("broker-1")).high_watermark == 1


@pytest.mark.parametrize("timeout_ms", [0, 1])
def test_what_needs_no_other_replica_is_in_time_with_any_timeout(timeout_ms: int) -> None:
    """As in Kafka, which has moved the high watermark when it looks whether the request is to wait."""
    running, stores = in_memory()
    alone = replace(led_by(1), isr=(1,), partition_epoch=1)
    commit(running.metadata, alone)
    tick(stores)
    running.settle()
    running.produce("a", timeout_ms)
    running.settle()
    assert [(answer.base_offset, answer.error) for answer in running.answers] == [(0, None)]


def test_without_time_to_wait_for_followers_the_outcome_is_unknown_at_once() -> None:
    running, stores = in_memory()
    running.produce("a", 0)
    running.settle()
    stores.clock.now_ms += 1
    running.settle()
    assert [type(answer.error) for answer in running.answers] == [RequestTimedOutError]


def test_a_fenced_broker_registers_again_when_its_root_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    running, stores = in_memory()
    before = running.broker.broker_epoch
    commit(running.metadata, FenceBrokerRecord(1, before))

    def out_of_reach(path: str, _data: bytes) -> None:
        raise StoreUnavailableError(f"{path} is out of reach")

    with monkeypatch.context() as dead:
        dead.setattr(stores.objects("broker-1"), "put", out_of_reach)
        for _ in range(5):
            tick(stores)
            running.broker.step()
        running.metadata.refresh()
        assert not running.metadata.image.is_live(1)
    tick(stores)
    running.broker.step()
    running.metadata.refresh()
    assert running.metadata.image.is_current(1, running.broker.broker_epoch)
    assert running.broker.broker_epoch > before


def test_acks_all_is_not_answered_before_its_high_watermark_was_published(monkeypatch: pytest.MonkeyPatch) -> None:
    """A producer can read what was confirmed to it, also when the broker's storage failed in between."""
    running, stores = in_memory()
    running.produce("a")
    running.settle()
    running.follow(1)
    objects = stores.objects("broker-1")

    def out_of_reach(path: str, _data: bytes) -> None:
        raise StoreUnavailableError(f"{path} is out of reach")

    with monkeypatch.context() as cut:
        cut.setattr(objects, "put_register", out_of_reach)
        for _ in range(3):
            running.settle()
            tick(stores)
        assert running.answers == []
    running.settle()
    assert [answer.error for answer in running.answers] == [None]
    assert running.published(objects).high_watermark == 1


def test_one_publication_shows_the_append_and_the_high_watermark_that_moved_before_it() -> None:
    running, stores = in_memory()
    running.produce("a")
    running.settle()
    running.follow(1)
    running.produce("b")
    running.broker.step()
    published = running.published(stores.objects("broker-1"))
    assert (published.log_end_offset, published.high_watermark) == (2, 1)


def test_what_cannot_be_watched_is_polled_as_the_settings_say() -> None:
    running, stores = in_memory()
    pauses_ms = []
    for idle_ms in (0, 500, 60_000):
        stores.clock.now_ms += idle_ms
        running.settle()
        pauses_ms.append(running.broker.pause_ms())
    assert pauses_ms == [CONFIG.stratalog_progress_poll_min_ms, 25, CONFIG.stratalog_metadata_poll_max_ms]
    running.produce("a")
    running.settle()
    assert running.broker.pause_ms() == CONFIG.stratalog_progress_poll_min_ms


def metadata_reads(stores: MemoryStores) -> list[str]:
    """Filled from now on with each access to the metadata log: a poll makes two."""
    reads: list[str] = []
    stores.disk(METADATA_ROOT).fault = lambda _operation, table, _path: reads.append(table) is not None
    return reads


@pytest.mark.parametrize("expects", [False, True])
def test_metadata_that_cannot_be_watched_is_read_at_once_where_a_change_is_expected(expects: bool) -> None:
    running, stores = in_memory()
    stores.clock.now_ms += 60_000
    running.settle()
    create(running.metadata, "u", led_by(1, topic="u"))
    stores.clock.now_ms += 1
    if expects:
        running.broker.expect_metadata()
    running.settle()
    assert (TopicPartition("u", 0) in running.broker.leaders) == expects
    tick(stores)
    running.settle()
    assert TopicPartition("u", 0) in running.broker.leaders


def test_quiet_metadata_are_read_less_and_less_and_often_again_after_a_record() -> None:
    running, stores = in_memory()
    running.settle()
    stores.clock.now_ms += 60_000
    running.settle()  # the ISR shrinks
    reads, counts = metadata_reads(stores), []
    for records, idle_ms in ((0, 0), (0, 60_000), (1, 0)):
        stores.clock.now_ms += idle_ms
        running.settle()
        for _ in range(records):
            running.produce("a")
        tick(stores)
        running.settle()
        reads.clear()
        for _ in range(1_000):
            stores.clock.now_ms += 1
            running.broker.step()
        counts.append(len(reads))
    assert counts[1] <= 2 * (1_000 // CONFIG.stratalog_metadata_poll_max_ms + 1)
    assert min(counts[0], counts[2]) > 5 * counts[1]


def rest(running: Running) -> None:
    """Until the loop would sleep for long: everything that was published has been read."""
    deadline_ms = running.clock.monotonic_ms() + 10_000
    while running.broker.pause_ms() <= cadence.LOOP_RETRY.ms or not running.broker.leaders:
        running.settle()
        assert running.clock.monotonic_ms() < deadline_ms
    running.settle()


def woken(running: Running) -> bool:
    """Wait like the loop, but as long as it takes."""
    return running.broker.wakeup.wait_ms(20_000)


def test_on_a_local_disk_it_sleeps_until_something_happens(on_disk: Running) -> None:
    rest(on_disk)
    assert on_disk.broker.wakeup.is_active
    assert cadence.LOOP_RETRY.ms < on_disk.broker.pause_ms() <= cadence.LOOP_WAIT.ms
    on_disk.produce("a")
    assert woken(on_disk)
    on_disk.settle()
    on_disk.follow(1)
    assert woken(on_disk), "the first publication of a new fetch session"
    on_disk.settle()
    assert [answer.base_offset for answer in on_disk.answers] == [0]
    on_disk.produce("b")
    assert woken(on_disk)
    on_disk.settle()
    on_disk.follow(2)
    assert woken(on_disk), "its second publication, written in place"
    on_disk.settle()
    assert [answer.base_offset for answer in on_disk.answers] == [0, 1]
    create(on_disk.metadata, "u", led_by(1, topic="u"))
    assert woken(on_disk), "a commit of the metadata log"
    on_disk.settle()
    assert TopicPartition("u", 0) in on_disk.broker.leaders


def test_an_idle_turn_touches_no_storage(on_disk: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    rest(on_disk)
    touched: list[str] = []
    for name in ("get_optional", "get_register", "list", "put", "put_register", "exists", "size"):
        for root in (on_disk.root, on_disk.metadata_root):
            objects = on_disk.stores.objects(root)
            monkeypatch.setattr(objects, name, lambda *_, name=name: touched.append(name))
    assert on_disk.broker.pause_ms() > cadence.LOOP_RETRY.ms
    on_disk.broker.step()
    assert touched == []


def test_an_idle_inbox_is_listed_less_and_less_until_a_request_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where storage cannot be watched; an answer that nobody fetched does not count."""
    running, stores = in_memory(BrokerConfig.from_properties({"stratalog.inbox.poll.max.ms": 500}))
    objects = stores.objects("broker-1")
    list_objects, listings = objects.list, [0]

    def counted(prefix: str) -> list[ObjectMeta]:
        listings[0] += prefix == INBOX_PREFIX
        return list(list_objects(prefix))

    monkeypatch.setattr(objects, "list", counted)

    def listings_in(seconds: int) -> int:
        before = listings[0]
        for _ in range(seconds * 100):
            stores.clock.now_ms += 10
            running.broker.step()
        return listings[0] - before

    objects.put(answer_path("old"), b"")
    busy, idle = listings_in(1), [listings_in(10) for _ in range(4)]
    assert busy > 20
    assert idle == sorted(idle, reverse=True)
    assert idle[-1] == 20  # one in 500 ms
    objects.put(request_path("r"), encode_request([], 0))
    listings_in(1)
    assert objects.exists(answer_path("r"))
    assert listings_in(1) > 20
