"""A leader in a storage domain on a file system, whose machine lost power: the next one leads with what was synced."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from stratalog.replication.leader.purgatory import ProducePurgatory
from stratalog.replication.leader.replica import LeaderPorts, LeaderReplica, WaitingAppend
from stratalog.replication.metadata.records import PartitionRecord
from stratalog.replication.requests.produce import ACKS_LEADER, ProduceRequest, ProduceResponse
from stratalog.replication.stores import DeltaStores
from stratalog.storage.errors import CorruptMessageError
from stratalog.storage.files.cache import FileCache
from stratalog.storage.log.partition_log import PartitionLog
from stratalog.storage.records import IdentifiedPartition, TopicPartition
from stratalog.storage.topic_config import LogConfig
from tests.storage.logs import CountingIds, FakeClock, batch, values

TP = TopicPartition("t", 0)


class Brokers:
    """Each leads `t-0`, in the domain `lake`, under an epoch of its own."""

    def __init__(self, root: Path) -> None:
        self.root, self.clock, self.ids = root, FakeClock(), CountingIds()
        self.stores = DeltaStores(self.ids, FileCache(0))
        self.answers: list[ProduceResponse] = []

    def lead(self, broker_id: int, epoch: int) -> LeaderReplica:
        log = PartitionLog(
            self.stores.table(str(self.root), TP), LogConfig(flush_messages=1), self.clock, self.ids, 86_400_000
        )
        state = PartitionRecord("t", 0, (1, 2), broker_id, epoch, (1, 2), epoch, 1, domain="lake")
        return LeaderReplica(state, "id", log, LeaderPorts(broker_id, self.clock, ProducePurgatory()))

    def append(self, leader: LeaderReplica, value: str) -> None:
        request = ProduceRequest(IdentifiedPartition("id", TP), batch([value]), ACKS_LEADER, timeout_ms=1_000)
        leader.waiting.append(WaitingAppend(request, self.answers.append))
        leader.append_waiting(self.clock.now_ms)
        if leader.partition is not None:
            leader.partition.maybe_increment_high_watermark(self.clock.now_ms, 1_000)
            leader.complete_waiting()

    def commits(self) -> list[Path]:
        return sorted((self.root / "t-0" / "_delta_log").glob("*.json"))

    def files(self) -> list[Path]:
        return sorted((self.root / "t-0").glob("segment=*/**/*.parquet"), key=lambda path: path.stat().st_mtime_ns)


@pytest.fixture
def brokers(tmp_path: Path) -> Brokers:
    """Broker 1 has appended three values."""
    made = Brokers(tmp_path)
    first = made.lead(1, 0)
    assert first.start(0)
    for value in ("a", "b", "c"):
        made.append(first, value)
    return made


@pytest.mark.parametrize(
    "tear",
    [
        lambda brokers: brokers.commits()[-1].write_bytes(b""),
        lambda brokers: brokers.commits()[-1].write_bytes(brokers.commits()[-1].read_bytes()[:-20]),
        lambda brokers: brokers.files()[-1].write_bytes(b""),
        lambda brokers: brokers.files()[-1].unlink(),
    ],
    ids=["empty commit", "cut commit", "empty file", "absent file"],
)
def test_the_next_leader_begins_its_epoch_behind_a_torn_append(
    brokers: Brokers, tear: Callable[[Brokers], object]
) -> None:
    tear(brokers)
    second = brokers.lead(2, 1)
    assert second.start(0)
    brokers.append(second, "d")
    assert [answer.error for answer in brokers.answers] == [None] * 4
    assert brokers.answers[-1].base_offset == 2
    again = brokers.lead(1, 2)
    assert again.start(0)
    assert values(again.log) == "a b d"


def test_a_deposed_leader_that_wakes_behind_a_torn_append_of_its_own_is_fenced(brokers: Brokers) -> None:
    slow = brokers.lead(1, 1)
    assert slow.start(0)
    brokers.append(slow, "d")
    brokers.commits()[-1].write_bytes(b"")
    second = brokers.lead(2, 2)
    assert second.start(0)
    brokers.append(second, "e")
    brokers.append(slow, "x")
    assert [answer.error is None for answer in brokers.answers[-2:]] == [True, False]
    third = brokers.lead(1, 3)
    assert third.start(0)
    assert values(third.log) == "a b c e"


def test_damage_of_what_was_acknowledged_is_no_torn_tail(brokers: Brokers) -> None:
    brokers.commits()[2].write_bytes(b"")
    second = brokers.lead(2, 1)
    assert not second.start(0)
    assert isinstance(second.failure, CorruptMessageError)
    assert len(brokers.commits()) == 5
