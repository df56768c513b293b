"""Back-pressure where files accumulate: leaders hold appends back, followers copies, until upkeep has caught up."""

from __future__ import annotations

import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from stratalog.replication import cadence
from stratalog.replication.config import BrokerConfig
from stratalog.replication.follower.partitions import FollowedPartitions
from stratalog.replication.follower.sessions.fetch_session import FollowerSession
from stratalog.replication.leader.append_queue import AppendQueue
from stratalog.replication.leader.purgatory import ProducePurgatory
from stratalog.replication.leader.replica import LeaderPorts, LeaderReplica, WaitingAppend
from stratalog.replication.progress.progress import ReplicaProgress
from stratalog.replication.replica.upkeep_rounds import UpkeepRounds
from stratalog.replication.requests.produce import ACKS_LEADER, ProduceRequest, ProduceResponse
from stratalog.storage.cadence import APPENDS_STOPPED
from stratalog.storage.clock import RandomIds, SystemClock
from stratalog.storage.delta.delta_table import DeltaLogTable
from stratalog.storage.errors import CorruptMessageError, StratalogError
from stratalog.storage.log.partition_log import PartitionLog
from stratalog.storage.objects.opened import open_store
from stratalog.storage.records import IdentifiedPartition, TopicPartition
from stratalog.storage.topic_config import LogConfig
from stratalog.storage.upkeep.chore import UpkeepDone, UpkeepLimits
from stratalog.storage.upkeep.upkeep import Upkeep
from tests.replication.following import Following, fetch_job
from tests.replication.memory_stores import MemoryStores, led_by
from tests.storage.hand_executor import HandExecutor
from tests.storage.logs import batch, values, write

T0 = TopicPartition("t", 0)
LIMITS = UpkeepLimits(merge_files_min=16, merge_spread_files=0, slowdown_count=40, stop_count=100)


class Led:
    """Broker 1 leads a log whose upkeep works when the test lets it."""

    def __init__(self) -> None:
        self.stores = MemoryStores()
        self.clock = self.stores.clock
        self.executor = HandExecutor()
        self.answers: list[ProduceResponse] = []
        log = PartitionLog(self.stores.table("broker-1", T0), LogConfig(), self.clock, self.stores.ids)
        self.rounds = UpkeepRounds(self.clock)
        ports = LeaderPorts(1, self.clock, ProducePurgatory(), append_pause_ms=self.rounds.append_pause_ms)
        self.replica = LeaderReplica(led_by(1), "id", log, ports)
        assert self.replica.start(0)
        self.rounds.add(T0, Upkeep(log, LIMITS, self.executor))
        self.queue = AppendQueue(1, {T0: self.replica}, self.clock)

    @property
    def files(self) -> int:
        return len(self.replica.log.files)

    def put(self) -> None:
        request = ProduceRequest(IdentifiedPartition("id", T0), batch(["a"]), ACKS_LEADER, timeout_ms=30_000)
        self.queue.put(WaitingAppend(request, self.answers.append))

    def turn(self, after_ms: int = 0) -> bool:
        """Whether something was appended."""
        self.clock.now_ms += after_ms
        return bool(list(self.queue.append(self.clock.monotonic_ms())))

    def append(self, count: int) -> None:
        for _ in range(count):
            self.put()
            while not self.turn():
                self.clock.now_ms += max(1, self.queue.held_ms)

    def keep_up(self) -> None:
        """Upkeep gets as much of the machine as it wants."""
        for _ in range(50):
            self.clock.now_ms += 1_000
            self.rounds.run(self._step, lambda *_: None)
            self.executor.work()

    def _step(self, _: TopicPartition, upkeep: Upkeep, is_busy: bool) -> UpkeepDone | None:
        return upkeep.step(self.clock.wall_ms(), self.replica.log.log_end_offset, 0, is_busy=is_busy)


def test_appends_are_slowed_then_stopped_and_none_fails() -> None:
    led = Led()
    begun_ms = led.clock.now_ms
    led.append(43)
    assert led.clock.now_ms == begun_ms, "up to 40 files beyond those that stay nobody waits"
    led.append(40)
    slowed_ms = led.clock.now_ms - begun_ms
    assert 20 * 20 < slowed_ms < 40 * 100
    led.append(30)
    assert led.clock.now_ms - begun_ms - slowed_ms > 10 * APPENDS_STOPPED.ms
    assert [answer.error for answer in led.answers] == [None] * 113


def test_what_waits_makes_one_commit() -> None:
    led = Led()
    led.append(110)
    files = led.files
    for _ in range(500):
        led.put()
    assert not led.turn(after_ms=APPENDS_STOPPED.ms - 10)
    assert (led.queue.held_ms, led.queue.is_empty) == (10, False)
    assert led.turn(after_ms=10)
    assert (len(led.answers), led.files) == (610, files + 1)
    assert led.queue.is_empty


def test_an_append_goes_on_as_soon_as_upkeep_has() -> None:
    led = Led()
    led.append(110)
    led.put()
    assert not led.turn()
    assert led.rounds.pause_ms_max == APPENDS_STOPPED.ms
    now_ms = led.clock.now_ms
    led.keep_up()
    led.clock.now_ms = now_ms
    assert led.rounds.pause_ms_max == 0
    assert led.turn()


def test_a_log_without_upkeep_accepts_appends_without_pauses() -> None:
    led = Led()
    led.append(110)
    led.put()
    assert not led.turn()

    def corrupt(_: TopicPartition, _upkeep: Upkeep, _is_busy: bool) -> UpkeepDone | None:
        raise CorruptMessageError("a flipped bit")

    led.clock.now_ms += 1
    led.rounds.run(corrupt, lambda *_: None)
    assert led.turn()
    assert led.rounds.pause_ms_max == 0


def test_a_warning_is_logged_at_intervals(caplog: pytest.LogCaptureFixture) -> None:
    led = Led()
    with caplog.at_level(logging.WARNING, "stratalog.upkeep"):
        led.append(43)
        assert caplog.messages == []
        led.append(2)
        assert caplog.messages == [
            "t-0 has 44 live files; upkeep of 41 files or commits is overdue, so appends wait 2 ms"
        ]
        begun_ms = led.clock.now_ms
        led.append(80)
        assert len(caplog.messages) == 1 + (led.clock.now_ms - begun_ms) // cadence.UPKEEP_WARNED.ms


class GatedExecutor(ThreadPoolExecutor):
    """A thread that begins its work when the gate opens."""

    def __init__(self) -> None:
        super().__init__(1)
        self.gate = threading.Event()

    def submit(self, fn, /, *args, **kwargs):
        def begin() -> object:
            assert self.gate.wait(60)
            return fn(*args, **kwargs)

        return super().submit(begin)


def test_on_a_disk_a_log_stays_as_short_as_it_may_be_while_upkeep_hangs(tmp_path: Path) -> None:
    clock, ids = SystemClock(), RandomIds()
    table = DeltaLogTable(open_store(str(tmp_path), create=True), str(T0), ids)
    log = PartitionLog(table, LogConfig(), clock, ids)
    log.exists_or_create("id")
    log.start_epoch(0, as_leader=True)
    rounds = UpkeepRounds(clock)

    def keep_up() -> None:
        rounds.run(
            lambda _, upkeep, is_busy: upkeep.step(clock.wall_ms(), log.log_end_offset, 0, is_busy=is_busy), unexpected
        )

    def unexpected(_: TopicPartition, reason: StratalogError) -> None:
        raise reason

    with GatedExecutor() as executor:
        rounds.add(T0, Upkeep(log, LIMITS, executor))
        while rounds.append_pause_ms(T0, 1) < APPENDS_STOPPED.ms:
            write(log, "a")
            keep_up()
        assert len(log.files) == LIMITS.stop_count + 3
        executor.gate.set()
        end_ms = clock.monotonic_ms() + 60_000
        while rounds.append_pause_ms(T0, 1):
            keep_up()
            assert clock.monotonic_ms() < end_ms, f"{len(log.files)} files are left"
    assert len(log.files) <= LIMITS.slowdown_count + 3
    assert len(values(log).split()) == LIMITS.stop_count + 3


def test_a_follower_copies_slowly_until_its_upkeep_has_caught_up() -> None:
    """It copies the log and does its upkeep, and stays within the lag that the ISR allows."""
    following, executor = Following(), HandExecutor()
    settings = {
        "stratalog.upkeep.slowdown.count": 1_000,
        "stratalog.upkeep.stop.count": 1_000,
        "replica.fetch.max.bytes": 1,
    }
    limits = UpkeepLimits(merge_files_min=16, merge_spread_files=0, leader_first_ms=0)
    job, ports = fetch_job(BrokerConfig.from_properties(settings)), following.stores.ports(executor)
    session = FollowerSession(FollowedPartitions(job, 0, ports, limits), "s")
    write(following.log(1), *["a"] * 1_100)
    copied = following.log(2)
    copied.exists_or_create("id")
    copied.start_epoch(0, as_leader=False)
    entry = ReplicaProgress(T0, 0, 1_100, 1_101, 1_100, topic_id="id")
    following.published.publish([entry], 0, beat_is_due=False)
    following.turn(session, ms=100)
    own = session.followed.replicas[T0].own
    while len(own.files) < 1_003:
        following.turn(session, ms=50)
    ends = []
    for _ in range(3):
        following.turn(session, ms=10 * APPENDS_STOPPED.ms)
        ends.append(own.log_end_offset)
    assert 1_003 < ends[0] < ends[1] < ends[2] <= 1_040
    assert session.followed.pause_ms_max == APPENDS_STOPPED.ms
    for _ in range(20):
        executor.work()
        following.turn(session, ms=1_000)
    assert (own.log_end_offset, len(own.files) < 200) == (1_100, True)
    assert session.followed.pause_ms_max == 0
