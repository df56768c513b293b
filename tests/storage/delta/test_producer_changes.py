"""Producer state as changes in commits and whole states now and then: every fold from any version is equal."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from stratalog.storage.delta.commit_json import decode_commit, encode_commit
from stratalog.storage.delta.commit_race import StoredCommit
from stratalog.storage.delta.removed import producers_path
from stratalog.storage.delta.table import LOG_END, PRODUCERS, PRODUCERS_VERSION, Commit, Committed, Conflict
from stratalog.storage.errors import CorruptMessageError, FencedLeaderEpochError
from stratalog.storage.log.append import HandedFiles
from stratalog.storage.log.copy import Copied
from stratalog.storage.log.partition_log import WHOLE_PRODUCERS_COMMITS, PartitionLog
from stratalog.storage.producers import (
    BatchMetadata,
    ProducerChanges,
    ProducerEntry,
    ProducerStates,
    SinkBatch,
)
from stratalog.storage.records import data_table
from stratalog.storage.topic_config import LogConfig
from tests.storage.logs import (
    MIB,
    CountingIds,
    FakeClock,
    Replicas,
    append,
    batch,
    idempotent,
    started,
    write,
)
from tests.storage.memory_table import MemoryDisk, MemoryLogTable


def states(*rows: tuple[int, int, int], sinks: tuple[tuple[str, int], ...] = ()) -> ProducerStates:
    """Rows (producer id, epoch, base sequence) appended one after the other, each a record."""
    built = ProducerStates()
    for offset, (producer_id, epoch, sequence) in enumerate(rows):
        built = built.with_batch(producer_id, epoch, BatchMetadata(sequence, sequence, offset, offset, 1_000 + offset))
    for sink_id, batch_id in sinks:
        built = built.with_sink(sink_id, SinkBatch(batch_id, 10 + batch_id, 1_000, batch_id))
    return built


SEVEN = tuple((7, 0, i) for i in range(7))


@pytest.mark.parametrize(
    ("before", "after", "count"),
    [
        pytest.param(states(), states(), 0, id="nothing"),
        pytest.param(states(), states((7, 0, 0)), 1, id="a new producer"),
        pytest.param(states((7, 0, 0)), states((7, 0, 0), (7, 0, 1), (8, 0, 0)), 2, id="two producers"),
        pytest.param(states(SEVEN[0]), states(*SEVEN), 5, id="more batches than are kept"),
        pytest.param(states((7, 0, 0)), states((7, 0, 0), (7, 1, 0)), 1, id="a newer epoch"),
        pytest.param(states(*SEVEN), states((7, 0, 0)), None, id="batches went"),
        pytest.param(states((7, 0, 0)), states(), None, id="a producer went"),
        pytest.param(states(), states(sinks=(("q", 3), ("q", 4))), 2, id="a new sink"),
        pytest.param(states(sinks=(("q", 3),)), states(sinks=(("q", 3), ("q", 9))), 1, id="a sink's next batch"),
        pytest.param(states(sinks=(("q", 3),)), states(), None, id="a sink went"),
        pytest.param(states((7, 0, 0)), states((7, 0, -1)), None, id="a control batch leaves no batch to tell by"),
    ],
)
def test_changes_make_the_later_state_or_are_none(
    before: ProducerStates, after: ProducerStates, count: int | None
) -> None:
    changes = before.changes_to(after)
    if count is None:
        assert changes is None
        return
    assert changes is not None
    assert len(changes.batches) + len(changes.sink_batches) == count
    assert before.with_changes(changes) == after
    assert ProducerChanges.from_value(changes.to_value()) == changes


def test_a_commit_file_carries_changes() -> None:
    changes = states().changes_to(states((7, 2, 0), sinks=(('a "q"', 3),)))
    for carried in (changes, ProducerChanges(), None):
        stored = StoredCommit(Commit("id", "WRITE", 5, producers=carried), "before")
        assert decode_commit(encode_commit(stored), "x").commit.producers == carried


@pytest.mark.parametrize("value", ["[[]]", '[[[1,2]],[["q"]]]', "[[[1]],[]]", "7"])
def test_odd_changes_are_a_corrupt_commit(value: str) -> None:
    info = f'{{"commitInfo":{{"timestamp":1,"stratalogCommitId":"x","stratalogProducers":{value},'
    data = (info + '"stratalogCrc32c":"00000000"}}').encode()
    with pytest.raises(CorruptMessageError):
        decode_commit(data, "version 3")


def test_an_append_makes_no_object_and_now_and_then_the_whole_state_is_one(replicas):
    log = replicas.leader()
    commits = 5 * WHOLE_PRODUCERS_COMMITS
    for sequence in range(commits):
        append(log, idempotent("a", sequence))
    assert 4 <= len(log.table.list_objects("_producers/")) <= 6
    assert log.state.producers_version >= log.version - WHOLE_PRODUCERS_COMMITS


def test_a_large_state_is_written_whole_more_seldom(replicas):
    log = replicas.leader()
    append(log, *(idempotent("a", 0, producer_id) for producer_id in range(3_000)))
    before, commits = len(log.table.list_objects("_producers/")), 4 * WHOLE_PRODUCERS_COMMITS
    for sequence in range(1, commits):
        append(log, idempotent("a", sequence))
    assert 1 <= len(log.table.list_objects("_producers/")) - before <= 2
    assert replicas.log().producers == log.producers


def test_partitions_written_to_at_one_pace_write_their_whole_states_at_different_times():
    firsts = set()
    for number in range(WHOLE_PRODUCERS_COMMITS):
        clock, ids = FakeClock(), CountingIds()
        table = MemoryLogTable(MemoryDisk(now_ms=clock.wall_ms), f"t-{number}", ids)
        log = PartitionLog(table, LogConfig(), clock, ids)
        log.exists_or_create("topic-id")
        started(log, 0)
        while not table.list_objects("_producers/"):
            append(log, idempotent("a", log.log_end_offset))
        firsts.add(log.version)
    assert len(firsts) > WHOLE_PRODUCERS_COMMITS // 2  # of twenty partitions


def test_without_producers_nothing_is_written_and_clean_up_goes_on(replicas):
    log = replicas.leader()
    for _ in range(3 * WHOLE_PRODUCERS_COMMITS):
        write(log, "a")
    assert log.table.list_objects("_producers/") == []
    assert log.state.oldest_version_needed >= log.version - WHOLE_PRODUCERS_COMMITS
    log.table.checkpoint()
    list(log.table.clean_log(log.state.oldest_version_needed, 1 << 60))
    assert replicas.log().producers == ProducerStates()


def test_changes_are_not_lost_when_only_others_commit_afterwards(replicas):
    log = replicas.leader()
    append(log, idempotent("a", 0))
    known = log.producers
    for _ in range(3 * WHOLE_PRODUCERS_COMMITS):
        write(log, "b")
    log.table.checkpoint()
    list(log.table.clean_log(log.state.oldest_version_needed, 1 << 60))
    assert replicas.log().producers == known


def test_a_reader_that_follows_reads_no_object_again(replicas):
    log, reader = replicas.leader(), replicas.log()
    assert reader.producers == ProducerStates()
    for sequence in range(3 * WHOLE_PRODUCERS_COMMITS):
        append(log, idempotent("a", sequence))
        if sequence % 7 == 0:
            reader.refresh()
            log.table.delete_objects([path for path, _ in log.table.list_objects("_producers/")])
            assert reader.producers == log.producers


def test_a_table_that_has_an_object_per_append_is_read_and_goes_on(replicas):
    """As written before commits carried changes: no `stratalog.producers-version` anywhere."""
    log = replicas.leader()
    without_version(log, replicas)
    log = replicas.log()
    old = states((7, 0, 0), (7, 0, 1))
    log.table.write_object(producers_path(77), old.to_json())
    position = {**log.state.position_txns, LOG_END: log.log_end_offset}
    outcome = log.table.commit(log.version + 1, Commit("old", "WRITE", 1, txns={**position, PRODUCERS: 77}))
    assert isinstance(outcome, Committed)
    log = replicas.log()
    assert (log.producers, log.state.producers_version) == (old, None)
    write(log, "x")
    append(log, idempotent("a", 2))
    append(log, idempotent("a", 3))
    assert log.state.producers_version is not None
    assert [b.base_sequence for b in replicas.log().producers.producers[7].batches] == [0, 1, 2, 3]
    assert replicas.log().producers == log.producers


def without_version(log: PartitionLog, replicas: Replicas) -> None:
    """Strike `stratalog.producers-version` out of what stands in the table."""
    for version in range(log.version + 1):
        if replicas.root is not None:
            path = replicas.root / "1" / "t-0" / "_delta_log" / f"{version:020}.json"
            path.write_bytes(encode_commit(stripped(decode_commit(path.read_bytes(), "x"))))
        else:
            commits = replicas.disks["1"].files_of("t-0").commits
            stored = commits[version]
            assert stored is not None
            commits[version] = stripped(stored)


def stripped(stored: StoredCommit) -> StoredCommit:
    txns = {name: value for name, value in stored.commit.txns.items() if name != PRODUCERS_VERSION}
    return replace(stored, commit=replace(stored.commit, txns=txns))


class Life:
    """Two replicas in a random life. `known` is what each version's producer state was, by the log that made it."""

    def __init__(self, replicas: Replicas, seed: int) -> None:
        self.chance = random.Random(seed)
        self.replicas = replicas
        self.epoch = 0
        self.brokers = ["1", "2"]
        self.sequences: dict[int, int] = {}
        self.batch_id = 0
        self.now_ms = 10_000
        self.leader = replicas.leader("1")
        self.follower = replicas.follower("2", 0)
        self.known: dict[tuple[str, int], ProducerStates] = {}

    def note(self) -> None:
        for broker, log in zip(self.brokers, (self.leader, self.follower), strict=True):
            self.known[broker, log.version] = log.producers

    def append(self) -> None:
        groups = []
        for _ in range(self.chance.choice([1, 1, 3])):
            producer_id = self.chance.randrange(4)
            sequence = self.sequences.get(producer_id, 0)
            groups.append(idempotent("xy", sequence, producer_id))
            self.sequences[producer_id] = sequence + 2
        if self.chance.random() < 0.3:
            groups.append(batch("z"))
        append(self.leader, *groups, epoch=self.epoch, now_ms=self.now_ms)

    def hand_over(self) -> None:
        self.batch_id += self.chance.choice([1, 1, 2])
        file = self.leader.table.write_file(data_table([batch("pq")]), None)
        self.leader.append_files([HandedFiles((file,), "query", self.batch_id)], self.epoch, self.now_ms)

    def copy(self) -> None:
        self.leader.refresh()
        copied = self.follower.copy_from(self.leader, self.epoch, self.chance.choice([0, 3_000, MIB]))
        assert isinstance(copied, Copied)
        if copied.start_offset < copied.end_offset == self.leader.log_end_offset:
            assert self.follower.producers == self.leader.producers

    def clean_up(self) -> None:
        for log in (self.leader, self.follower):
            log.table.checkpoint()
            log.state.made_durable(log.version)
            list(log.table.clean_log(min(log.version - 3, log.state.oldest_version_needed), 1 << 60))

    def expire(self) -> None:
        """A day passes, with some of the producers silent."""
        self.now_ms += 50_000_000
        self.append()

    def fail_over(self) -> None:
        """The follower leads; what it lacked is cut from the old leader."""
        self.leader, self.follower = self.follower, self.leader
        self.brokers.reverse()
        self.epoch += 1
        started(self.leader, self.epoch)
        self.follower.start_epoch(self.epoch, as_leader=False, truncate_to=self.leader.log_end_offset)
        self.sequences = {
            producer_id: entry.batches[-1].last_sequence + 1
            for producer_id, entry in self.leader.producers.producers.items()
        }

    def step(self) -> None:
        weights = {
            self.append: 10,
            self.copy: 6,
            self.hand_over: 2,
            self.clean_up: 1,
            self.expire: 1,
            self.fail_over: 1,
        }
        (action,) = self.chance.choices(list(weights), list(weights.values()))
        action()


@pytest.mark.parametrize("seed", range(6))
def test_the_state_is_the_same_for_whoever_folds_it(replicas, seed):
    life = Life(replicas, seed)
    for number in range(80):
        life.step()
        life.note()
        if number % 5 == 0:
            for broker, log in zip(life.brokers, (life.leader, life.follower), strict=True):
                assert replicas.log(broker).producers == log.producers
    checked = 0
    for (broker, version), known in life.known.items():
        snapshot = replicas.table(broker).snapshot()
        assert snapshot is not None
        if version == snapshot.version:
            assert replicas.log(broker).producers == known
            checked += 1
    assert checked == 2


@pytest.mark.parametrize("kept", range(1, 50, 4))
def test_a_log_cut_at_any_version_has_the_state_of_then(replicas, kept):
    """As after a power loss: later commits are gone, and the objects that they named lie about."""
    log = replicas.leader()
    known = {}
    for number in range(50):
        append(log, idempotent("a", 0, producer_id=number % 20, epoch=number // 20) if number % 3 else batch("b"))
        known[log.version] = log.producers
    if replicas.root is None:
        for version in [v for v in replicas.disks["1"].files_of("t-0").commits if v > kept]:
            del replicas.disks["1"].files_of("t-0").commits[version]
    else:
        for version in range(kept + 1, log.version + 1):
            (replicas.root / "1" / "t-0" / "_delta_log" / f"{version:020}.json").unlink()
    reopened = replicas.log()
    assert reopened.version == kept
    assert reopened.producers == known.get(kept, ProducerStates())


def test_an_entry_without_batches_is_told_by_a_batch_without_sequence() -> None:
    control = ProducerStates({7: ProducerEntry(3, (), 5)})
    changes = ProducerStates().changes_to(control)
    assert changes is not None
    assert ProducerStates().with_changes(changes) == control
    assert control.changes_to(control) == ProducerChanges()


def test_what_changes_cannot_tell_is_stated_whole() -> None:
    known = states((7, 0, 0), (7, 0, 1), (8, 0, 0))
    assert known.changes_to(states((7, 0, 0), (7, 0, 1))) is None
    assert known.changes_to(states((7, 0, 0), (8, 0, 0))) is None


@pytest.mark.parametrize("torn", [b"", b'{"producers":{"7', None])
def test_a_commit_whose_producer_state_was_lost_with_the_power_is_dropped(replicas, torn):
    log = replicas.leader()
    while not log.table.list_objects("_producers/"):
        append(log, idempotent("a", log.log_end_offset))
    stated = log.version
    append(log, idempotent("a", log.log_end_offset))
    ((path, _),) = log.table.list_objects("_producers/")
    assert log.table.recover_tail() == log.version
    log.table.delete_objects([path])
    if torn is not None and replicas.root is not None:
        (replicas.root / "1" / "t-0" / path).write_bytes(torn)
    assert log.table.recover_tail() == stated - 1
    reopened = replicas.log()
    append(reopened, idempotent("a", reopened.log_end_offset))


def sleeper_whose_producer_state_is_gone(replicas: Replicas) -> PartitionLog:
    """A replica under epoch 0, folded, that has not read its producer state yet. Meanwhile epoch 2 began in its table,
    and what it would read was replaced: to read it is to fold again."""
    log = replicas.leader()
    for sequence in range(WHOLE_PRODUCERS_COMMITS + 5):
        append(log, idempotent("a", sequence))
    sleeper = replicas.log()
    assert sleeper.state.producers_number != 0
    other = replicas.log()
    assert isinstance(other.start_epoch(2, as_leader=True), Committed)
    first = WHOLE_PRODUCERS_COMMITS + 5
    for sequence in range(first, first + 2 * WHOLE_PRODUCERS_COMMITS):
        append(other, idempotent("b", sequence), epoch=2)
    other.table.delete_objects([producers_path(sleeper.state.producers_number)])
    return sleeper


def test_who_folds_a_newer_epoch_while_it_decides_commits_nothing_under_the_older_one(replicas):
    """Found by simulation: a straggling copy took an epoch start back, since it was checked before that was folded."""
    sleeper = sleeper_whose_producer_state_is_gone(replicas)
    leader = replicas.leader("2")
    for sequence in range(WHOLE_PRODUCERS_COMMITS + 8):
        append(leader, idempotent("a", sequence))
    before = replicas.log()
    sleeper.start_epoch(0, as_leader=False)
    assert isinstance(sleeper.copy_from(leader, 0, 0), Conflict)
    after = replicas.log()
    assert (after.version, after.leader_epoch, after.epochs) == (before.version, 2, before.epochs)
    with pytest.raises(FencedLeaderEpochError):
        sleeper.copy_from(leader, 0, 0)


def test_an_append_that_folds_a_newer_epoch_while_it_is_decided_is_none(replicas):
    sleeper = sleeper_whose_producer_state_is_gone(replicas)
    version = replicas.log().version
    assert isinstance(sleeper.append([batch("x")], 0, 5_000), Conflict)
    assert replicas.log().version == version
    with pytest.raises(FencedLeaderEpochError):
        sleeper.append([batch("x")], 0, 5_000)
