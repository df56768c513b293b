"""Upkeep in rounds: no replica is checked without a reason, and none is forgotten."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from stratalog.replication import cadence
from stratalog.replication.replica.load import BUSY_BYTES_PER_S
from stratalog.replication.replica.upkeep_rounds import UpkeepRounds
from stratalog.storage.cadence import HOUR_MS
from stratalog.storage.errors import CorruptMessageError, KafkaStorageError, StoreUnavailableError
from stratalog.storage.records import TopicPartition
from stratalog.storage.upkeep.chore import UpkeepDone, UpkeepLimits
from stratalog.storage.upkeep.upkeep import Upkeep
from tests.storage.hand_executor import HandExecutor
from tests.storage.logs import Replicas, append, batch, write

LIMITS = UpkeepLimits(merge_files_min=16, merge_spread_files=0)
PARTITION = TopicPartition("t", 0)


@dataclass
class Watched:
    """Rounds over one log's upkeep (or several partitions that share it), and what was stepped."""

    replicas: Replicas = field(default_factory=Replicas.new)
    steps: list[TopicPartition] = field(default_factory=list)
    broken: list[TopicPartition] = field(default_factory=list)
    busy: bool = False
    read_bytes: int = 0

    def __post_init__(self) -> None:
        self.log = self.replicas.leader()
        self.rounds = UpkeepRounds(self.replicas.clock, lambda: self.read_bytes)

    def step(self, topic_partition: TopicPartition, upkeep: Upkeep, is_busy: bool) -> UpkeepDone | None:
        self.steps.append(topic_partition)
        self.busy = is_busy
        return upkeep.step(self.replicas.clock.now_ms, self.log.log_end_offset, 0, is_busy=is_busy)

    def run(self, after_ms: int = 0) -> int:
        """How many steps a round takes."""
        self.replicas.clock.sleep_ms(after_ms)
        self.steps.clear()
        self.rounds.run(self.step, lambda topic_partition, _: self.broken.append(topic_partition))
        return len(self.steps)


@pytest.fixture
def watched() -> Watched:
    made = Watched()
    made.rounds.add(PARTITION, Upkeep(made.log, LIMITS))
    return made


def test_a_log_without_commits_is_checked_when_its_time_comes(watched):
    assert watched.run() == 1
    assert [watched.run(after_ms=1_000) for _ in range(100)] == [0] * 100
    assert watched.run(after_ms=HOUR_MS) == 1


def test_few_commits_need_no_check(watched):
    watched.run()
    write(watched.log, "a")
    watched.run(after_ms=1_000)
    looks = 0
    for _ in range(64):
        write(watched.log, "a")
        looks += watched.run()
    assert looks < 64 / 4
    assert len(watched.log.files) <= 16 + 8


def test_what_a_merge_replaced_is_deleted_in_time(watched):
    write(watched.log, *["a"] * 16)
    watched.run()
    assert len(watched.log.files) == 1
    watched.log.state.made_durable(watched.log.table.checkpoint())
    assert [watched.run(after_ms=15_000) > 0 for _ in range(8)].count(True) <= 5
    assert len(watched.log.table.list_objects("segment=")) == 1


def test_a_round_ends_when_its_time_is_used_up_and_goes_on_with_the_others():
    watched = Watched()
    partitions = [TopicPartition("t", n) for n in range(5)]
    for topic_partition in partitions:
        watched.rounds.add(topic_partition, Upkeep(watched.log, LIMITS))

    def slow_step(topic_partition: TopicPartition, upkeep: Upkeep, is_busy: bool) -> UpkeepDone | None:
        watched.replicas.clock.sleep_ms(cadence.UPKEEP_ROUND.ms / 2 + 1)
        return watched.step(topic_partition, upkeep, is_busy)

    for expected in (partitions[:2], partitions[2:4], partitions[4:]):
        watched.steps.clear()
        watched.rounds.run(slow_step, lambda *_: None)
        assert watched.steps == expected


def test_while_logs_take_commits_a_round_continues_in_pieces_until_its_time_is_used_up():
    watched = Watched()
    partitions = [TopicPartition("t", n) for n in range(2 * cadence.UPKEEP_ROUND.ms)]
    for topic_partition in partitions:
        watched.rounds.add(topic_partition, Upkeep(watched.log, LIMITS))

    def step(topic_partition: TopicPartition, upkeep: Upkeep, is_busy: bool) -> UpkeepDone | None:
        watched.replicas.clock.sleep_ms(1)
        return watched.step(topic_partition, upkeep, is_busy)

    pieces, pressing = [], []
    write(watched.log, "a")
    for _ in range(4):
        watched.steps.clear()
        watched.rounds.run(step, lambda *_: None)
        pieces.append(len(watched.steps))
        pressing.append(watched.rounds.is_pressing)
    round_steps = [
        cadence.UPKEEP_PIECE.ms + 1,
        cadence.UPKEEP_PIECE.ms + 1,
        cadence.UPKEEP_ROUND.ms - 2 * cadence.UPKEEP_PIECE.ms - 1,
    ]
    assert pieces == [*round_steps, len(partitions) - sum(round_steps)]
    assert pressing == [True, True, False, False], "the fourth is another round, in which nothing was committed"


@pytest.mark.parametrize(
    ("reason", "is_tried_again", "is_broken"),
    [
        (StoreUnavailableError("away"), True, False),
        (KafkaStorageError("damaged"), True, True),
        (CorruptMessageError("a flipped bit"), False, False),
    ],
)
def test_what_fails_is_retried_reported_or_ended(watched, reason, is_tried_again, is_broken):
    def failing(topic_partition: TopicPartition, upkeep: Upkeep, is_busy: bool) -> UpkeepDone | None:
        raise reason

    watched.rounds.run(failing, lambda topic_partition, _: watched.broken.append(topic_partition))
    assert watched.broken == ([PARTITION] if is_broken else [])
    assert watched.run() == 0
    assert watched.run(after_ms=2_000) == int(is_tried_again)


def test_a_loop_whose_logs_grow_fast_is_busy(watched):
    watched.run()
    for _ in range(5):
        append(watched.log, batch(["x" * (BUSY_BYTES_PER_S // 10)]))
    write(watched.log, *["a"] * 64)
    watched.run(after_ms=500)
    assert watched.busy
    write(watched.log, *["a"] * 64)
    watched.run(after_ms=cadence.LOAD_WINDOW.ms)
    assert not watched.busy


def test_a_loop_whose_clients_read_fast_is_busy(watched):
    watched.run()
    watched.read_bytes += 2 * BUSY_BYTES_PER_S
    write(watched.log, *["a"] * 64)
    watched.run(after_ms=1_000)
    assert watched.busy


def test_a_dropped_replica_is_not_checked_any_more(watched):
    watched.run()
    watched.rounds.drop(PARTITION)
    write(watched.log, *["a"] * 64)
    assert watched.run(after_ms=HOUR_MS) == 0


def test_a_log_that_is_behind_is_worked_on_piece_after_piece():
    """One piece a second would not do for a log that takes a thousand commits a second."""
    executor = HandExecutor()
    watched = Watched()
    limits = UpkeepLimits(merge_files_min=16, merge_spread_files=0, live_files_max=40)
    watched.rounds.add(PARTITION, Upkeep(watched.log, limits, executor))
    write(watched.log, *["a"] * 39)
    watched.run()
    assert executor.waiting
    assert not watched.rounds.is_pressing, "others come first"
    executor.work()
    assert not watched.rounds.is_pressing, "it waits for its time"
    write(watched.log, *["a"] * 700)
    pieces = watched.run(after_ms=1_000)
    assert not watched.rounds.is_pressing, "the executor has not done its piece"
    executor.work()
    while watched.rounds.is_pressing:
        pieces += watched.run()
        executor.work()
    assert len(watched.log.files) <= 40
    assert pieces > 3


def test_what_always_has_work_leaves_some_to_the_others():
    replicas = Replicas.new()
    log = replicas.leader()
    upkeep = Upkeep(log, UpkeepLimits(checkpoint_commits=1, merge_files_min=16, merge_spread_files=0))
    works = []
    for _ in range(8):
        write(log, *["a"] * 16)
        done = upkeep.step(replicas.clock.now_ms, log.log_end_offset, 0)
        works.append(str(done and done.work))
    assert {"checkpoint", "merge"} <= set(works)
