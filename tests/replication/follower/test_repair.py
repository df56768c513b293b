"""A damaged replica leaves the ISR, is copied again, and is equal again; a leader checks its table after a report."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from stratalog.replication.config import BrokerConfig
from stratalog.replication.controller.brokers import leave_isr
from stratalog.replication.follower.partitions import FetchJob, FollowedPartitions
from stratalog.replication.follower.repair import ReplicaFinding, finding, is_lost, may_repair, sound_end
from stratalog.replication.follower.sessions.fetch_session import FollowerSession
from stratalog.replication.metadata.log import open_metadata
from stratalog.replication.metadata.records import PartitionRecord, RegisterBrokerRecord
from stratalog.replication.requests.hand_over import damage_report_path, decode_damage_report, encode_damage_report
from stratalog.replication.stores import DeltaStores, Ports
from stratalog.storage.errors import (
    CorruptMessageError,
    DamagedFileError,
    ForeignCommitError,
    KafkaStorageError,
    LogLostError,
    ObjectNotFoundError,
    StaleBrokerEpochError,
    StoreUnavailableError,
    StratalogError,
    TableReplacedError,
    UnknownTopicOrPartitionError,
    UnsupportedTableFeatureError,
)
from stratalog.storage.files.cache import FileCache
from stratalog.storage.files.damage import UNSETTLED, Damage
from stratalog.storage.files.data_file import DataFile, FileEntry
from stratalog.storage.log.partition_log import PartitionLog
from stratalog.storage.records import TopicPartition
from stratalog.storage.topic_config import LogConfig
from tests.replication.images import image_of, partition
from tests.replication.memory_stores import commit, create, led_by
from tests.storage.files.test_damage import cut_short, in_a_page, in_the_footer
from tests.storage.logs import CountingIds, FakeClock, contents, started, write

OWN, LEADER = "file:///b-2/t-0", "file:///b-1/t-0"


# -- decisions -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        (CorruptMessageError(f"{OWN} version 3: torn"), ReplicaFinding.DAMAGED),
        (DamagedFileError(f"{OWN}/x: is gone", "x"), ReplicaFinding.DAMAGED),
        (ObjectNotFoundError("/b-2/t-0/_producers/1.json does not exist"), ReplicaFinding.DAMAGED),
        (CorruptMessageError(f"{LEADER} version 3: torn"), ReplicaFinding.LEADER),
        (ObjectNotFoundError("/b-1/t-0/x does not exist"), ReplicaFinding.LEADER),
        (ForeignCommitError(f"{LEADER}: version 3 (DELETE)"), ReplicaFinding.LEADER),
        (ForeignCommitError(f"{OWN}: version 3 (DELETE)"), ReplicaFinding.ALIEN),
        (UnsupportedTableFeatureError(f"{OWN}: reader 3"), ReplicaFinding.ALIEN),
        (TableReplacedError(f"{OWN}: the table was replaced"), ReplicaFinding.ABSENT),
        (KafkaStorageError(f"{OWN}: version 0 is not committed"), ReplicaFinding.OTHER),
        (UnknownTopicOrPartitionError(f"{OWN}: there is no table"), ReplicaFinding.ABSENT),
        (UnknownTopicOrPartitionError(f"{LEADER}: there is no table"), ReplicaFinding.ABSENT),
        (LogLostError(f"{OWN}: there is no log here"), ReplicaFinding.LOST),
        (StoreUnavailableError(f"{OWN}: away"), ReplicaFinding.OTHER),
        (CorruptMessageError("torn"), ReplicaFinding.OTHER),
    ],
)
def test_whose_table_it_is_and_whether_copying_repairs_it(reason: StratalogError, expected: ReplicaFinding) -> None:
    assert finding(reason, OWN, LEADER) is expected


def test_tables_of_one_name_are_not_distinguished() -> None:
    assert finding(CorruptMessageError(f"{OWN}: torn"), OWN, OWN) is ReplicaFinding.OTHER


@pytest.mark.parametrize(
    ("isr", "leader_epoch", "noted_epoch", "expected"),
    [
        ((1, 3), 5, 4, True),
        ((1, 3), 5, 5, False),
        ((1, 2), 5, 4, False),
        ((1, 3), 5, UNSETTLED, False),
    ],
)
def test_it_repairs_outside_the_isr_under_a_later_epoch(
    isr: tuple[int, ...], leader_epoch: int, noted_epoch: int, expected: bool
) -> None:
    state = partition((1, 2, 3), 1, isr, leader_epoch=leader_epoch)
    assert may_repair(Damage("torn", "x", noted_epoch), state, 2) is expected


@pytest.mark.parametrize(
    ("isr", "elr", "leader_epoch", "leader_end", "is_relied_on", "expected"),
    [
        pytest.param((1, 2), (), 0, 7, False, False, id="a topic's first replica"),
        pytest.param((1, 2), (), 0, 7, True, True, id="its table was there in the first epoch"),
        pytest.param((1, 2), (), 5, 7, False, True, id="a member of the ISR, later"),
        pytest.param((1, 2), (), 5, 0, False, False, id="the leader has nothing that could be lost"),
        pytest.param((1, 2), (), 5, 0, True, True, id="the leader has lost it, too"),
        pytest.param((1, 3), (2,), 5, 7, False, True, id="an eligible leader"),
        pytest.param((1, 3), (2,), 0, 7, False, True, id="eligible in the first epoch: the ISR shrank in it"),
        pytest.param((1, 3), (), 5, 7, False, False, id="newly assigned, or it has left the ISR"),
        pytest.param((1, 3), (), 5, 7, True, True, id="it may join by what it published in this epoch"),
    ],
)
def test_an_absent_table_is_lost(
    isr: tuple[int, ...],
    elr: tuple[int, ...],
    leader_epoch: int,
    leader_end: int,
    is_relied_on: bool,
    expected: bool,
) -> None:
    state = partition((1, 2, 3), 1, isr, leader_epoch=leader_epoch, elr=elr)
    assert is_lost(state, 2, leader_end, is_relied_on=is_relied_on) is expected


def test_what_lies_below_a_damaged_file_stays() -> None:
    files = [FileEntry(DataFile(name, 1, 10, 0, 9, None, None), 0, 0, base) for name, base in (("a", 90), ("b", 100))]
    assert [sound_end(files, Damage("gone", path)) for path in ("a", "b", "c")] == [90, 100, None]


@pytest.mark.parametrize(
    ("leader", "isr", "ends_epoch", "expected"),
    [
        (1, (1, 2, 3), True, ((1, 3), 6)),
        (1, (1, 2, 3), False, ((1, 3), 6)),
        (1, (1, 3), True, ((1, 3), 6)),
        (1, (1, 3), False, ((1, 3), 5)),
        (2, (1, 2), True, None),
        (-1, (1, 2), True, None),
    ],
)
def test_a_follower_leaves_the_isr(
    leader: int, isr: tuple[int, ...], ends_epoch: bool, expected: tuple[tuple[int, ...], int] | None
) -> None:
    image = image_of([1, 2, 3], partition((1, 2, 3), leader, isr))
    place = TopicPartition("orders", 0)
    result = leave_isr(image, 2, 12, image.identified(place), ends_epoch=ends_epoch)
    for record in result.records:
        image = image.fold(record)
    after = image.partition(place)
    assert (after.leader, result.response) == (leader, None if expected is None else after.leader_epoch)
    assert (after.isr, after.leader_epoch) == (expected or (isr, 5))
    with pytest.raises(StaleBrokerEpochError):
        leave_isr(image, 2, 11, image.identified(place), ends_epoch=ends_epoch)


def test_a_suspicion_is_handed_over() -> None:
    place = TopicPartition("access-log", 3)
    assert damage_report_path(place) == "inbox/access-log-3.suspect"
    assert decode_damage_report(encode_damage_report(place, "segment=0/x")) == (place, "segment=0/x")
    with pytest.raises(CorruptMessageError, match="not a damage report"):
        decode_damage_report(b"{}")


# -- repair on a local disk ----------------------------------------------------------------------------------


class Pair:
    """Broker 1 leads `t-0` by the test's hand, broker 2 follows it in sessions that the test turns."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for name in ("metadata", "broker-1", "broker-2"):
            (root / name).mkdir()
        self.clock, self.ids = FakeClock(), CountingIds()
        self.stores = DeltaStores(self.ids, FileCache(0))
        self.metadata = open_metadata(self.stores, str(root / "metadata"), self.clock, self.ids)
        self.metadata.create()
        for broker_id in (1, 2):
            place = str(root / f"broker-{broker_id}")
            commit(self.metadata, RegisterBrokerRecord(broker_id, 10 + broker_id, f"run-{broker_id}", place))
        create(self.metadata, "t", led_by(1))
        self.leader = self.log(1)
        self.leader.exists_or_create("id")
        started(self.leader, 0)

    def log(self, broker_id: int) -> PartitionLog:
        """Another instance on a replica."""
        table = self.stores.table(str(self.root / f"broker-{broker_id}"), TopicPartition("t", 0))
        return PartitionLog(table, LogConfig(), self.clock, self.ids)

    @property
    def state(self) -> PartitionRecord:
        self.metadata.refresh()
        return self.metadata.image.partition(TopicPartition("t", 0))

    def session(self, name: str) -> FollowerSession:
        settings = {"stratalog.scrub.interval.ms": 2_000, "stratalog.upkeep.interval.ms": 50}
        config = BrokerConfig.from_properties(settings)
        job = FetchJob(2, 12, str(self.root / "broker-2"), str(self.root / "metadata"), config)
        return FollowerSession(FollowedPartitions(job, 0, Ports(self.stores, self.clock, self.ids)), name)

    def turn(self, session: FollowerSession, ms: int = 12_000) -> None:
        """The leader starts every epoch that begins."""
        for _ in range(ms // 200):
            self.clock.now_ms += 200
            session.step()
            if self.leader.leader_epoch < self.state.leader_epoch:
                started(self.leader, self.state.leader_epoch)

    def path(self, broker_id: int, below: str = "") -> Path:
        return self.root / f"broker-{broker_id}" / "t-0" / below


def a_flipped_bit(pair: Pair, broker_id: int) -> None:
    in_a_page(pair.path(broker_id, pair.log(broker_id).files[1].path))


def a_flipped_footer(pair: Pair, broker_id: int) -> None:
    in_the_footer(pair.path(broker_id, pair.log(broker_id).files[0].path))


def a_short_file(pair: Pair, broker_id: int) -> None:
    cut_short(pair.path(broker_id, pair.log(broker_id).files[2].path))


def a_lost_file(pair: Pair, broker_id: int) -> None:
    pair.path(broker_id, pair.log(broker_id).files[1].path).unlink()


def newest_commit(pair: Pair, broker_id: int) -> Path:
    return max(pair.path(broker_id, "_delta_log").glob("*.json"))


def a_flipped_commit(pair: Pair, broker_id: int) -> None:
    path = pair.path(broker_id, f"_delta_log/{2:020}.json")
    path.write_bytes(path.read_bytes().replace(b"stratalog.log-end", b"stratalog.log-enc"))


def a_half_written_commit(pair: Pair, broker_id: int) -> None:
    newest = newest_commit(pair, broker_id)
    (newest.parent / f"{int(newest.stem) + 1:020}.json").write_bytes(newest.read_bytes()[:100])


def garbage_as_a_commit(pair: Pair, broker_id: int) -> None:
    newest = newest_commit(pair, broker_id)
    (newest.parent / f"{int(newest.stem) + 1:020}.json").write_bytes(b"\x00\xff" * 40)


def an_empty_commit(pair: Pair, broker_id: int) -> None:
    newest_commit(pair, broker_id).write_bytes(b"")


Harm = Callable[[Pair, int], None]
DAMAGES: list[Harm] = [
    a_flipped_bit,
    a_flipped_footer,
    a_short_file,
    a_lost_file,
    a_flipped_commit,
    a_half_written_commit,
    garbage_as_a_commit,
    an_empty_commit,
]


FOLDED_BEFORE = (a_flipped_commit, an_empty_commit)
"""Harm of a commit that a session folded before: the next opening of the table finds it."""
CASES = [(harm, is_warm) for harm in DAMAGES for is_warm in (False, True) if not (is_warm and harm in FOLDED_BEFORE)]


@pytest.mark.parametrize(("harm", "is_warm"), CASES)
def test_a_damaged_follower_leaves_the_isr_and_is_copied_anew(tmp_path: Path, harm: Harm, is_warm: bool) -> None:
    """Warm: a session that folded the table before the damage continues; otherwise it is opened after the damage."""
    pair = Pair(tmp_path)
    write(pair.leader, "a b", "c", "d e")
    session = pair.session("1")
    pair.turn(session, ms=1_000)
    assert contents(pair.log(2)) == contents(pair.leader)
    harm(pair, 2)
    if not is_warm:
        session.end()
        session = pair.session("2")
    write(pair.leader, "f")
    pair.turn(session)
    assert (pair.state.leader, pair.state.isr) == (1, (1,))
    assert pair.log(2).table.damage() is None
    write(pair.leader, "g", epoch=pair.state.leader_epoch)
    pair.turn(session, ms=4_000)
    healed = pair.log(2)
    assert contents(healed) == contents(pair.leader)
    assert [value for _, value in contents(healed)] == list("abcdefg")
    healed.table.check_files([entry.file for entry in healed.files], bits=True)
    (replica,) = session.followed.replicas.values()
    assert (replica.failure, replica.leader_epoch) == (None, pair.state.leader_epoch)


def test_recorded_damage_is_repaired_by_the_next_session_that_follows(tmp_path: Path) -> None:
    """As after a leader went offline: its fetch sessions know only what is recorded beside the table."""
    pair = Pair(tmp_path)
    write(pair.leader, "a", "b", "c")
    session = pair.session("1")
    pair.turn(session, ms=1_000)
    session.end()
    own = pair.log(2)
    own.table.note_damage(Damage("a bit", own.files[1].path))
    kept, gone = own.files[0].path, own.files[1].path
    next_session = pair.session("2")
    pair.turn(next_session, ms=4_000)
    healed = pair.log(2)
    assert (contents(healed), healed.table.damage()) == (contents(pair.leader), None)
    paths = [entry.path for entry in healed.files]
    assert kept in paths, "what lies below the damage stays"
    assert gone not in paths, "the damaged file's name is not used again"
    assert pair.state.leader_epoch == 1


@pytest.mark.parametrize("next_process", [False, True])
def test_a_directory_that_is_removed_is_copied_anew_outside_the_isr(tmp_path: Path, next_process: bool) -> None:
    pair = Pair(tmp_path)
    session = pair.session("1")
    pair.turn(session, ms=1_000)
    write(pair.leader, "a", "b")
    pair.turn(session, ms=2_000)
    assert contents(pair.log(2)) == contents(pair.leader)
    assert pair.state.isr == (1, 2)
    if next_process:
        session.end()
        session = pair.session("2")
    shutil.rmtree(pair.path(2))
    write(pair.leader, "c")
    pair.turn(session, ms=6_000)
    assert (pair.state.isr, pair.state.leader_epoch) == ((1,), 1)
    assert contents(pair.log(2)) == contents(pair.leader)


def test_the_first_table_of_a_replica_is_made_without_a_new_epoch(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    write(pair.leader, "a", "b")
    pair.turn(pair.session("1"), ms=2_000)
    assert (pair.state.isr, pair.state.leader_epoch) == ((1, 2), 0)
    assert contents(pair.log(2)) == contents(pair.leader)


def test_a_follower_of_a_damaged_leader_keeps_what_it_has_and_reports_the_damage(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    write(pair.leader, "a")
    session = pair.session("1")
    pair.turn(session, ms=1_000)
    write(pair.leader, "b")
    damaged = pair.leader.files[1].path
    in_the_footer(pair.path(1, damaged))
    pair.turn(session, ms=2_000)
    assert pair.state.isr == (1, 2)
    assert contents(pair.log(2)) == [(0, "a")]
    assert session.followed.replicas[TopicPartition("t", 0)].failure is None
    told = (pair.root / "broker-1" / "inbox" / "t-0.suspect").read_bytes()
    assert decode_damage_report(told) == (TopicPartition("t", 0), damaged)


def test_what_decayed_on_the_leader_is_not_copied_from_it(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    write(pair.leader, "a", "b", "c")
    damaged = pair.leader.files[1].path
    in_a_page(pair.path(1, damaged))
    session = pair.session("1")
    pair.turn(session, ms=3_000)
    pair.log(2).table.check_files([entry.file for entry in pair.log(2).files], bits=True)
    assert [entry.path for entry in pair.log(2).files] in ([], [pair.leader.files[0].path])
    told = (pair.root / "broker-1" / "inbox" / "t-0.suspect").read_bytes()
    assert decode_damage_report(told) == (TopicPartition("t", 0), damaged)
    assert pair.state.isr == (1, 2)


def test_a_foreign_commit_is_not_repaired_but_its_replica_leaves_the_isr(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    write(pair.leader, "a")
    session = pair.session("1")
    pair.turn(session, ms=1_000)
    version = pair.log(2).version + 1
    foreign = '{"commitInfo":{"operation":"OPTIMIZE","engineInfo":"Apache-Spark/4.2.0"}}'
    pair.path(2, f"_delta_log/{version:020}.json").write_text(foreign)
    pair.turn(session, ms=3_000)
    assert pair.state.isr == (1,)
    replica = session.followed.replicas[TopicPartition("t", 0)]
    assert isinstance(replica.failure, ForeignCommitError)
    assert f"version {version}" in str(replica.failure)
    assert "OPTIMIZE by Apache-Spark/4.2.0" in str(replica.failure)
    epoch = pair.state.leader_epoch
    session.end()
    pair.turn(pair.session("2"), ms=3_000)
    assert pair.state.leader_epoch == epoch, "later sessions do not disturb the leader again"
    assert newest_commit(pair, 2).read_text() == foreign
