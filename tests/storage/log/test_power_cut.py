"""After a power cut a log is at a version that it had, with its content then, and no synced commit is missing."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from stratalog.storage.delta.delta_table import DeltaLogTable
from stratalog.storage.delta.table import Committed
from stratalog.storage.log.append import Appended, BatchAppended
from stratalog.storage.log.leader_epochs import LeaderEpochCache
from stratalog.storage.log.partition_log import PartitionLog
from stratalog.storage.objects.memory import MemoryStore
from stratalog.storage.producers import ProducerStates
from stratalog.storage.topic_config import LogConfig
from stratalog.storage.upkeep.chore import UpkeepLimits, UpkeepWork
from stratalog.storage.upkeep.upkeep import Upkeep
from tests.storage.logs import CountingIds, FakeClock, batch, contents, idempotent, started, write
from tests.storage.power_cut_store import PowerCutStore, PowerFailure, ProcessKilled

LIMITS = UpkeepLimits(checkpoint_commits=15, keep_commits=40, keep_ms=30_000, merge_files_min=4, merge_spread_files=0)
"""As by default, clean-up keeps more commits than are between two checkpoints and two whole producer states."""
NEVER: dict[str, object] = {"segment.files.max": 20, "file.delete.delay.ms": 0, "stratalog.snapshot.retention.ms": 0}
ALWAYS: dict[str, object] = {**NEVER, "flush.messages": 1}


@dataclass(frozen=True)
class Held:
    """The content of a log at a version."""

    records: tuple[tuple[int, str], ...]
    end: int
    epochs: LeaderEpochCache
    producers: ProducerStates


class Machine:
    """One replica on one disk, through several lives. `held` is by version, `safe` the newest one that was synced."""

    def __init__(self, seed: int, properties: dict[str, object]) -> None:
        self.rng = random.Random(seed)
        self.store = PowerCutStore(self.rng)
        self.config = LogConfig.from_properties(properties)
        self.clock, self.ids = FakeClock(), CountingIds()
        self.held: dict[int, Held] = {}
        self.safe = 0
        self.epoch = 0
        self.words = 0
        self.records: list[tuple[int, str]] = []
        self.log = self.opened()
        self.log.exists_or_create("topic-id")
        self.upkeep = Upkeep(self.log, LIMITS)
        self.start_epoch()

    def opened(self) -> PartitionLog:
        return PartitionLog(DeltaLogTable(self.store, "t-0", self.ids), self.config, self.clock, self.ids)

    # -- a leader's work ------------------------------------------------------------------------------

    def start_epoch(self, truncate_to: int | None = None) -> None:
        self.epoch += 1
        assert isinstance(self.log.start_epoch(self.epoch, as_leader=True, truncate_to=truncate_to), Committed)
        self.safe = self.log.version
        del self.records[self.log.log_end_offset :]
        self.note()

    def append(self) -> None:
        words = [str(self.words + i) for i in range(self.rng.randint(1, 3))]
        self.words += len(words)
        self._append(batch(words))

    def append_idempotent(self) -> None:
        last = self.log.producers.producers.get(7)
        self._append(idempotent("p", last.batches[-1].last_sequence + 1 if last and last.batches else 0))

    def _append(self, new) -> None:
        outcome = self.log.append([new], self.epoch, self.clock.wall_ms())
        assert isinstance(outcome, Appended)
        assert isinstance(outcome.results[0], BatchAppended), outcome.results
        self.records += [
            (len(self.records) + i, value.decode()) for i, value in enumerate(new.payload["value"].to_pylist())
        ]
        if self.config.flush_messages == 1:
            self.safe = outcome.version

    def truncate(self) -> None:
        bounds = [entry.start_offset for entry in self.log.files][-3:] or [self.log.log_end_offset]
        self.start_epoch(self.rng.choice(bounds))

    def keep_up(self) -> None:
        for _ in range(3):
            done = self.upkeep.step(self.clock.wall_ms(), self.log.log_end_offset, self.epoch)
            if done is not None and done.work is UpkeepWork.CHECKPOINT:
                self.safe = max(self.safe, done.version)
            self.note()

    def note(self) -> None:
        log = self.log
        self.held[log.version] = Held(tuple(self.records), log.log_end_offset, log.epochs, log.producers)

    # -- power cuts ---------------------------------------------------------------------------

    def live(self, steps: int) -> None:
        """Work until the power fails, in the middle of an operation or between two."""
        actions: list[Callable[[], None]] = [self.append] * 12 + [self.append_idempotent] * 4 + [self.keep_up] * 4
        actions += [self.start_epoch, self.truncate]
        for _ in range(self.rng.randint(1, steps)):
            self.clock.sleep_ms(3_000)
            self.rng.choice(actions)()
            self.note()
        self.store.calls_left = self.rng.randint(0, 12)
        try:
            while self.store.calls_left:
                self.rng.choice(actions)()
                self.note()
        except PowerFailure:
            pass

    def come_back(self) -> None:
        self.store.restart()
        table = DeltaLogTable(self.store, "t-0", self.ids)
        kept = table.recover_tail()
        self.log = self.opened()
        self.upkeep = Upkeep(self.log, LIMITS)
        assert self.log.version == kept >= self.safe, (self.log.version, kept, self.safe)
        self.check()
        self.held = {version: held for version, held in self.held.items() if version <= kept}
        self.records = contents(self.log)
        self.start_epoch()

    def check(self) -> None:
        """The commit under way at the cut may survive: its content is what the log had made of the version before."""
        log, held = self.log, self.held.get(self.log.version)
        records = contents(log)
        if held is None:
            assert log.version == max(self.held) + 1
            before = self.held[log.version - 1].records
            common = min(len(before), len(records))
            assert tuple(records[:common]) == before[:common]
            assert [offset for offset, _ in records] == list(range(log.log_end_offset))
        else:
            assert held == Held(tuple(records), log.log_end_offset, log.epochs, log.producers)


@pytest.mark.parametrize("properties", [NEVER, ALWAYS], ids=["never flushed", "always flushed"])
@pytest.mark.parametrize("seed", range(15))
def test_a_log_is_at_a_version_that_it_had_and_not_before_the_last_synced_one(seed, properties):
    machine = Machine(seed, properties)
    for _ in range(4):
        machine.live(60)
        machine.come_back()


def test_a_sync_covers_what_another_process_committed_before_it(tmp_path):
    """A process dies between its commit and its sync; another one continues from there, and syncs."""
    machine = Machine(1, ALWAYS)
    write(machine.log, "a", epoch=1)
    other = machine.opened()
    other.refresh()
    machine.store.kill_at = f"{machine.log.version + 1:020}.json"
    with pytest.raises(ProcessKilled):
        write(machine.log, "b", epoch=1)
    assert other.refresh()
    write(other, "c", epoch=1)
    synced = other.version
    for seed in range(40):
        machine.rng.seed(seed)
        objects, disk, named = dict(machine.store.objects), dict(machine.store.disk), set(machine.store.named)
        machine.store.restart()
        assert DeltaLogTable(machine.store, "t-0", machine.ids).recover_tail() == synced
        machine.store.objects, machine.store.disk, machine.store.named = objects, disk, named


def test_without_a_sync_everything_may_be_lost_but_the_epoch_start():
    """The model detects it: a log that kept its last append would fail."""
    machine = Machine(3, NEVER)
    version = machine.log.version
    write(machine.log, "a", "b", epoch=1)
    lost = 0
    for seed in range(40):
        machine.rng.seed(seed)
        objects, disk, named = dict(machine.store.objects), dict(machine.store.disk), set(machine.store.named)
        machine.store.restart()
        kept = DeltaLogTable(machine.store, "t-0", machine.ids).recover_tail()
        lost += kept < version + 2
        assert kept >= version
        machine.store.objects, machine.store.disk, machine.store.named = objects, disk, named
    assert lost > 10


@pytest.mark.parametrize("seed", range(10))
def test_a_checkpoint_covers_what_another_process_wrote(seed):
    """Its commits, data files and producer state: recovery does not read below a checkpoint."""
    machine = Machine(seed, NEVER)
    for _ in range(25):
        machine.append_idempotent()
    assert machine.log.state.producers_number, "the state was stated whole, as an object"
    expected = (contents(machine.log), machine.log.producers, machine.log.version)
    assert machine.opened().table.checkpoint() == machine.log.version
    machine.store.restart()
    log = machine.opened()
    log.table.recover_tail()
    assert (contents(log), log.producers, log.version) == expected


@pytest.mark.parametrize("seed", range(15))
def test_a_follower_copies_again_what_the_cut_took_and_is_equal(seed):
    rng, ids, clock = random.Random(seed), CountingIds(), FakeClock()
    leader = PartitionLog(DeltaLogTable(MemoryStore(), "t-0", ids), LogConfig(), clock, ids)
    leader.exists_or_create("topic-id")
    started(leader, 0)
    store, config = PowerCutStore(rng), LogConfig.from_properties(NEVER)
    for life in range(5):
        table = DeltaLogTable(store, "t-0", ids)
        table.recover_tail()
        follower = PartitionLog(table, config, clock, ids)
        upkeep = Upkeep(follower, LIMITS)
        try:
            follower.exists_or_create("topic-id")
            assert contents(follower) == contents(leader)[: follower.log_end_offset]
            assert isinstance(follower.start_epoch(life, as_leader=False), Committed)
            leader.start_epoch(life, as_leader=True)
            for _ in range(rng.randint(1, 30)):
                write(leader, *("x" * rng.randint(1, 3)), epoch=life)
                if rng.random() < 0.1:
                    store.calls_left = rng.randint(1, 10)
                follower.copy_from(leader, life, rng.choice([0, 3_000, 1 << 20]))
                upkeep.step(clock.wall_ms(), follower.log_end_offset, life)
        except PowerFailure:
            pass
        store.restart()
    table = DeltaLogTable(store, "t-0", ids)
    table.recover_tail()
    follower = PartitionLog(table, config, clock, ids)
    follower.start_epoch(5, as_leader=False)
    leader.start_epoch(5, as_leader=True)
    write(leader, "last", epoch=5)
    while follower.log_end_offset < leader.log_end_offset:
        follower.copy_from(leader, 5, 1 << 20)
    assert (contents(follower), follower.epochs) == (contents(leader), leader.epochs)
