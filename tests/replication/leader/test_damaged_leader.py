"""A leader with a damaged table goes offline while the ISR has another member, and leads on when it is alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from stratalog.replication.broker.hosted_replicas import BrokerIdentity, BrokerSetup, HostedReplicas
from stratalog.replication.broker.inbox import BrokerInbox
from stratalog.replication.config import BrokerConfig
from stratalog.replication.controller.brokers import OfflineReplica
from stratalog.replication.leader.purgatory import ProducePurgatory
from stratalog.replication.leader.replica import FILES_CHECKED, LeaderReplica
from stratalog.replication.metadata.image import ClusterImage
from stratalog.replication.metadata.records import PartitionRecord, TopicRecord
from stratalog.replication.requests.hand_over import damage_report_path, encode_damage_report
from stratalog.replication.stores import DeltaStores, Ports
from stratalog.storage.errors import CorruptMessageError, DamagedFileError, ForeignCommitError, StratalogError
from stratalog.storage.files.cache import FileCache
from stratalog.storage.files.damage import UNSETTLED, Damage
from stratalog.storage.objects.memory import MemoryStore
from stratalog.storage.records import IdentifiedPartition, TopicPartition
from tests.storage.files.test_damage import in_a_page
from tests.storage.logs import CountingIds, FakeClock, write

TP = TopicPartition("t", 0)


class Leading:
    """Broker 1 leads `t-0` in a folder of its own."""

    def __init__(self, root: Path, isr: tuple[int, ...] = (1, 2)) -> None:
        self.root, self.clock, self.ids = root, FakeClock(), CountingIds()
        self.stores = DeltaStores(self.ids, FileCache(0))
        self.image = ClusterImage()
        self.image = self.image.fold(TopicRecord("t", "id"))
        self.hosted = self.opened()
        self.state = PartitionRecord("t", 0, (1, 2), 1, 0, isr, partition_epoch=0, controller_epoch=1)
        self.lead(self.state)

    def opened(self) -> HostedReplicas:
        return HostedReplicas(
            BrokerSetup(BrokerIdentity(1, str(self.root)), BrokerConfig(), "metadata"),
            Ports(self.stores, self.clock, self.ids),
            ProducePurgatory(),
            lambda: self.image,
        )

    def lead(self, state: PartitionRecord) -> LeaderReplica:
        """Become leader and start."""
        self.image = self.image.fold(state)
        self.hosted.apply(TP, self.image, 0)
        replica = self.hosted.leaders[TP]
        replica.start(self.clock.now_ms)
        return replica

    @property
    def leader(self) -> LeaderReplica:
        return self.hosted.leaders[TP]

    def path(self, number: int) -> Path:
        return self.root / "t-0" / self.leader.log.files[number].path


def test_a_damage_report_that_is_true_takes_the_leader_offline_and_is_recorded(tmp_path: Path) -> None:
    leading = Leading(tmp_path)
    write(leading.leader.log, "a", "b")
    reported = leading.leader.log.files[1].path
    in_a_page(leading.path(1))
    leading.hosted.examine(TP, reported)
    assert leading.leader.partition is None
    assert isinstance(leading.leader.failure, DamagedFileError)
    assert leading.hosted.offline_replicas() == [OfflineReplica(IdentifiedPartition("id", TP), 0)]
    recorded = leading.leader.log.table.damage()
    assert recorded == Damage(str(leading.leader.failure), reported, UNSETTLED)


@pytest.mark.parametrize("reported", ["", "segment=0/no such file"])
def test_a_damage_report_that_is_not_true_changes_nothing(tmp_path: Path, reported: str) -> None:
    leading = Leading(tmp_path)
    write(leading.leader.log, "a")
    leading.hosted.examine(TP, reported or leading.leader.log.files[0].path)
    leading.hosted.examine(TopicPartition("other", 0), reported)
    assert leading.leader.partition is not None
    assert leading.hosted.offline == {}


def test_a_log_that_only_a_new_reader_finds_unreadable_takes_the_leader_offline(tmp_path: Path) -> None:
    leading = Leading(tmp_path)
    write(leading.leader.log, "a", "b")
    (tmp_path / "t-0" / "_delta_log" / f"{1:020}.json").write_bytes(b"torn")
    write(leading.leader.log, "c")
    leading.hosted.examine(TP, "")
    assert "version 1" in str(leading.leader.failure)
    assert isinstance(leading.leader.failure, CorruptMessageError)


def test_a_foreign_commit_takes_the_leader_offline_without_a_record_of_damage(tmp_path: Path) -> None:
    leading = Leading(tmp_path)
    write(leading.leader.log, "a")
    version = leading.leader.log.version + 1
    commit = tmp_path / "t-0" / "_delta_log" / f"{version:020}.json"
    commit.write_text('{"commitInfo":{"operation":"VACUUM START","engineInfo":"delta-rs:1"}}')
    leading.hosted.examine(TP, "")
    assert isinstance(leading.leader.failure, ForeignCommitError)
    assert f"version {version} (VACUUM START by delta-rs:1)" in str(leading.leader.failure)
    assert leading.hosted.offline_replicas() == [OfflineReplica(IdentifiedPartition("id", TP), 0)]
    assert leading.leader.log.table.damage() is None


def test_alone_in_the_isr_it_leads_on(tmp_path: Path) -> None:
    leading = Leading(tmp_path, isr=(1,))
    write(leading.leader.log, "a", "b")
    reported = leading.leader.log.files[0].path
    in_a_page(leading.path(0))
    leading.hosted.examine(TP, reported)
    assert leading.leader.partition is not None
    write(leading.leader.log, "c")


@pytest.mark.parametrize(("isr", "leads"), [((1, 2), False), ((1,), True)])
def test_with_recorded_damage_it_does_not_lead_while_another_can(
    tmp_path: Path, isr: tuple[int, ...], leads: bool
) -> None:
    leading = Leading(tmp_path)
    write(leading.leader.log, "a")
    leading.leader.log.table.note_damage(Damage("a bit", leading.leader.log.files[0].path))
    leading.hosted = leading.opened()
    replica = leading.lead(leading.state.changed(isr=isr, bump_leader_epoch=True))
    assert (replica.partition is not None) is leads
    failure: StratalogError | None = replica.failure
    assert leads or "t-0: not repaired yet: a bit" in str(failure)


def test_it_leads_in_the_same_epoch_once_the_others_have_left_the_isr(tmp_path: Path) -> None:
    leading = Leading(tmp_path)
    write(leading.leader.log, "a", "b")
    in_a_page(leading.path(1))
    leading.hosted.examine(TP, leading.leader.log.files[1].path)
    leading.hosted.offline_replicas()
    assert leading.leader.partition is None
    replica = leading.lead(leading.state.changed(isr=(1,), bump_leader_epoch=False))
    assert (replica.partition is not None, replica.leader_epoch) == (True, 0)
    assert leading.hosted.offline == {}
    write(replica.log, "c")


def test_once_another_member_is_in_the_isr_again_it_gives_way(tmp_path: Path) -> None:
    """Also where the damage was found while it was alone, by itself or before it began to lead."""
    leading = Leading(tmp_path, isr=(1,))
    write(leading.leader.log, "a")
    reported = leading.leader.log.files[0].path
    in_a_page(leading.path(0))
    leading.hosted.examine(TP, reported)
    alone = leading.leader
    leading.lead(leading.state.changed(isr=(1, 2), bump_leader_epoch=False))
    assert (alone.partition, list(leading.hosted.offline)) == (None, [TP])
    leading.hosted.offline_replicas()
    leading.hosted = leading.opened()
    restarted = leading.state.changed(bump_leader_epoch=True)
    assert leading.lead(restarted).partition is not None
    replica = leading.lead(restarted.changed(isr=(1, 2), bump_leader_epoch=False))
    assert isinstance(replica.failure, DamagedFileError)


@pytest.mark.parametrize(("number", "leads"), [(0, True), (1, False)])
def test_a_lost_file_near_the_end_is_missed_when_it_begins_to_lead(tmp_path: Path, number: int, leads: bool) -> None:
    """Its upkeep checks the older ones, so that a failover stays short."""
    leading = Leading(tmp_path)
    write(leading.leader.log, *["a"] * (FILES_CHECKED + 1))
    leading.path(number).unlink()
    leading.hosted = leading.opened()
    replica = leading.lead(leading.state.changed(bump_leader_epoch=True))
    assert (replica.partition is not None) is leads
    leading.hosted.keep_up()
    assert isinstance(replica.failure, DamagedFileError)
    assert "is gone" in str(replica.failure)
    assert list(leading.hosted.offline) == [TP]


def test_the_inbox_passes_a_damage_report_on_once() -> None:
    store = MemoryStore({}, lambda: 0, "root")
    found: list[tuple[TopicPartition, str]] = []
    inbox = BrokerInbox(store, lambda _: None, lambda place, path: found.append((place, path)))
    store.put(damage_report_path(TP), encode_damage_report(TP, "segment=0/x"))
    store.put(damage_report_path(TopicPartition("torn", 0)), b"{")
    inbox.poll()
    inbox.poll()
    assert found == [(TP, "segment=0/x")]
    assert store.list("inbox/") == []
