"""A replica that is no longer assigned is sealed and deleted, and never one that was assigned again (promise 23)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stratalog.replication import cadence
from stratalog.replication.broker.hosted_replicas import BrokerIdentity, BrokerSetup, HostedReplicas
from stratalog.replication.config import BrokerConfig
from stratalog.replication.follower.replica import FollowedReplica
from stratalog.replication.leader.purgatory import ProducePurgatory
from stratalog.replication.metadata.image import ClusterImage
from stratalog.replication.metadata.records import PartitionRecord, RemoveTopicRecord, TopicRecord
from stratalog.replication.replica.removal import delete_stray, is_sealed
from stratalog.storage.errors import FencedLeaderEpochError, StoreUnavailableError
from stratalog.storage.log.partition_log import PartitionLog
from stratalog.storage.log.state import SEALED_EPOCH
from stratalog.storage.records import TopicPartition
from stratalog.storage.topic_config import LogConfig
from tests.replication.memory_stores import METADATA_ROOT, MemoryStores
from tests.storage.logs import write

TP = TopicPartition("t", 0)
LED = PartitionRecord("t", 0, (2, 1), 2, 5, (2, 1), partition_epoch=0, controller_epoch=1)
LEFT = replace(LED, replicas=(2,), isr=(2,), leader_epoch=6, partition_epoch=1)
AGAIN = replace(LED, isr=(2,), leader_epoch=7, partition_epoch=2)
DELAY_MS = 60_000


class Hosting:
    """Broker 1, which follows `t-0` and has a table of it under leader epoch 5."""

    def __init__(self) -> None:
        self.stores = MemoryStores()
        self.image = ClusterImage()
        self.image = self.image.fold(TopicRecord("t", "id"))
        self.hosted = self.opened()
        self.make_table(5)
        self.apply(LED)

    def opened(self) -> HostedReplicas:
        setup = BrokerSetup(BrokerIdentity(1, "root"), BrokerConfig(), METADATA_ROOT)
        return HostedReplicas(setup, self.stores.ports(), ProducePurgatory(), lambda: self.image)

    def log(self) -> PartitionLog:
        return PartitionLog(self.stores.table("root", TP), LogConfig(), self.stores.clock, self.stores.ids)

    def make_table(self, leader_epoch: int) -> None:
        log = self.log()
        log.exists_or_create("id")
        log.start_epoch(leader_epoch, as_leader=False)

    def apply(self, state: PartitionRecord) -> None:
        self.image = self.image.fold(state)
        self.hosted.apply(TP, self.image, self.stores.clock.monotonic_ms())

    @property
    def is_there(self) -> bool:
        return TP in self.stores.replicas("root")

    @property
    def is_sealed(self) -> bool:
        return is_sealed(self.stores.table("root", TP), self.stores.clock, self.stores.ids)

    def pass_time(self, duration_ms: int) -> None:
        self.stores.clock.now_ms += duration_ms
        self.hosted.keep_up()


def test_a_replica_that_left_is_sealed_at_once_and_deleted_later() -> None:
    hosting = Hosting()
    hosting.apply(LEFT)
    assert hosting.is_sealed
    hosting.pass_time(DELAY_MS - 1)
    assert hosting.is_there
    hosting.pass_time(1)
    assert not hosting.is_there
    assert hosting.hosted.known == set()


def test_a_sealed_table_refuses_every_epoch() -> None:
    hosting = Hosting()
    straggler = hosting.log()
    straggler.refresh()
    hosting.apply(LEFT)
    straggler.refresh()
    for epoch in (5, 6, 7, SEALED_EPOCH - 1):
        with pytest.raises(FencedLeaderEpochError):
            straggler.start_epoch(epoch, as_leader=False)


def test_a_session_waits_for_the_end_of_a_sealed_table_and_makes_a_new_one() -> None:
    hosting = Hosting()
    leader = PartitionLog(hosting.stores.table("leader", TP), LogConfig(), hosting.stores.clock, hosting.stores.ids)
    leader.exists_or_create("id")
    leader.start_epoch(7, as_leader=True)
    write(leader, "a", epoch=7)
    hosting.apply(LEFT)
    session = FollowedReplica(AGAIN, "id", hosting.log(), leader, 1)
    assert not session.catch_up(1 << 20)
    assert session.progress() is None
    hosting.apply(AGAIN)
    assert not hosting.is_there, "assigned again, it goes at once"
    session = FollowedReplica(AGAIN, "id", hosting.log(), leader, 1)
    while session.catch_up(1 << 20):
        pass
    progress = session.progress()
    assert progress is not None
    assert (progress.leader_epoch, progress.log_end_offset) == (7, 1)
    hosting.pass_time(DELAY_MS)
    assert hosting.is_there


def test_a_far_table_is_deleted_once_nobody_may_rely_on_its_newest_commit() -> None:
    """Also one that is assigned again, which elsewhere goes at once."""
    kept_ms = 2 * DELAY_MS
    hosting = Hosting()
    hosting.stores.disk("root").kept_ms = kept_ms
    hosting.apply(LEFT)
    hosting.apply(AGAIN)
    for _ in range(2):
        hosting.pass_time(kept_ms // 2 - 1)
        assert hosting.is_there
    hosting.pass_time(kept_ms)
    assert not hosting.is_there


def test_a_table_that_a_later_assignment_has_begun_to_write_stays() -> None:
    hosting = Hosting()
    hosting.make_table(7)  # a session that is ahead of the broker's loop, which only now applies epoch 6
    hosting.apply(LEFT)
    assert not hosting.is_sealed
    hosting.apply(AGAIN)
    hosting.pass_time(DELAY_MS)
    assert hosting.is_there
    assert hosting.log().leader_epoch == 7


def test_a_table_of_a_later_topic_of_the_same_name_stays() -> None:
    hosting = Hosting()
    hosting.stores.table("root", TP).drop()
    log = hosting.log()
    log.exists_or_create("id of the later topic")
    log.start_epoch(0, as_leader=False)
    hosting.apply(LEFT)
    assert not hosting.is_sealed
    hosting.pass_time(DELAY_MS)
    assert hosting.is_there


def test_a_seal_that_fails_is_tried_again() -> None:
    hosting = Hosting()
    hosting.stores.disk("root").fault = lambda operation, _table, _detail: operation == "create"
    hosting.apply(LEFT)
    hosting.pass_time(0)
    assert hosting.hosted.known == {TP}
    hosting.stores.disk("root").fault = None
    assert not hosting.is_sealed
    hosting.pass_time(0)
    assert hosting.is_sealed


def test_a_deletion_that_was_answered_late_does_not_delete_the_next_table() -> None:
    hosting = Hosting()
    hosting.apply(LEFT)
    hosting.stores.table("root", TP).drop()  # done, though the broker saw the store away
    hosting.make_table(7)
    hosting.pass_time(DELAY_MS)
    assert hosting.is_there


def test_a_seal_whose_outcome_was_not_known_is_finished_before_anything_else() -> None:
    hosting = Hosting()
    done: list[str] = []

    def away_after_the_commit(operation: str, _table: str, detail: str) -> bool:
        done.extend([detail] if operation == "create:done" else [])
        return bool(done)

    hosting.stores.disk("root").fault = away_after_the_commit
    hosting.apply(LEFT)
    with pytest.raises(StoreUnavailableError):
        hosting.apply(AGAIN)
    hosting.stores.disk("root").fault = None
    assert hosting.is_sealed
    hosting.apply(AGAIN)
    assert not hosting.is_there, "else the sessions would wait for ever"


def test_a_replica_that_left_while_the_broker_was_fenced_is_deleted_too() -> None:
    hosting = Hosting()
    hosting.hosted.stop_all("fenced")
    assert hosting.hosted.known == {TP}
    hosting.apply(LEFT)
    hosting.pass_time(DELAY_MS)
    assert not hosting.is_there


def test_a_topic_that_was_deleted_while_the_broker_was_fenced_is_deleted_too() -> None:
    hosting = Hosting()
    hosting.hosted.stop_all("fenced")
    hosting.image = hosting.image.fold(RemoveTopicRecord("t", "id"))
    hosting.hosted.apply(TP, hosting.image, 0)
    assert not hosting.is_there


def test_a_table_that_a_session_made_after_the_end_is_found_and_deleted() -> None:
    hosting = Hosting()
    hosting.pass_time(0)
    hosting.apply(LEFT)
    hosting.pass_time(DELAY_MS)
    assert not hosting.is_there
    hosting.make_table(5)
    hosting.pass_time(cadence.STRAYS_SEARCHED.ms)
    assert hosting.is_sealed
    hosting.pass_time(DELAY_MS)
    assert not hosting.is_there


def test_a_replica_that_leads_is_no_stray_before_its_end_was_applied() -> None:
    """The image is newer than what was applied, as when a store was away in between."""
    hosting = Hosting()
    hosting.apply(replace(LED, leader=1, leader_epoch=6, partition_epoch=1))
    left = replace(LEFT, leader_epoch=7, partition_epoch=2)
    hosting.image = hosting.image.fold(left)
    hosting.pass_time(cadence.STRAYS_SEARCHED.ms)
    assert not hosting.is_sealed
    hosting.apply(left)
    assert hosting.hosted.leaders == {}
    assert hosting.is_sealed


def test_a_table_of_a_topic_that_is_not_known_yet_is_left_alone() -> None:
    hosting = Hosting()
    other = TopicPartition("newer", 0)
    table = hosting.stores.table("root", other)
    PartitionLog(table, LogConfig(), hosting.stores.clock, hosting.stores.ids).exists_or_create("other-id")
    hosting.pass_time(cadence.STRAYS_SEARCHED.ms)
    assert not is_sealed(table, hosting.stores.clock, hosting.stores.ids)


def test_a_start_after_a_crash_deletes_a_sealed_table_though_it_is_assigned_again() -> None:
    hosting = Hosting()
    hosting.stores.objects("root").durable_on_answer = False
    hosting.apply(LEFT)
    hosting.image = hosting.image.fold(AGAIN)
    hosting.hosted = hosting.opened()
    hosting.hosted.recover(hosting.image, 0)
    assert hosting.is_there, "the broker is not registered yet: a later process may have made the table again"
    hosting.apply(AGAIN)
    assert not hosting.is_there


def test_a_start_after_a_crash_keeps_what_is_not_sealed() -> None:
    hosting = Hosting()
    hosting.stores.objects("root").durable_on_answer = False
    hosting.hosted = hosting.opened()
    hosting.hosted.recover(hosting.image, 0)
    hosting.hosted.tables.remove_unknown(lambda: hosting.image)
    hosting.apply(LED)
    assert hosting.is_there


def test_a_start_removes_a_table_of_an_unknown_topic_and_asks_which_are_known_after_it_listed_the_tables() -> None:
    hosting = Hosting()
    new, old = TopicPartition("new", 0), TopicPartition("old", 0)
    for named in (new, old):
        table = hosting.stores.table("root", named)
        PartitionLog(table, LogConfig(), hosting.stores.clock, hosting.stores.ids).exists_or_create("id")

    def newest() -> ClusterImage:
        hosting.image = hosting.image.fold(replace(LED, topic="new"))
        return hosting.image

    hosting.opened().tables.remove_unknown(newest)
    assert hosting.stores.replicas("root") == [TP, new]


def test_a_table_that_is_assigned_elsewhere_is_removed_by_the_loop() -> None:
    hosting = Hosting()
    hosting.hosted = hosting.opened()
    hosting.hosted.tables.remove_unknown(lambda: hosting.image)
    hosting.apply(LEFT)
    hosting.pass_time(cadence.STRAYS_SEARCHED.ms)
    assert hosting.is_sealed
    hosting.pass_time(DELAY_MS)
    assert not hosting.is_there


def test_where_writes_are_durable_once_answered_a_start_after_a_crash_opens_no_table(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A recovery of many tables on an object store takes hours, and has nothing to cut."""
    hosting = Hosting()
    opened: list[str] = []
    monkeypatch.setattr(hosting.stores, "table", lambda root, named: opened.append(f"{root}/{named}"))
    hosting.opened().recover(hosting.image, 0)
    assert opened == []


def test_a_table_that_another_process_of_this_broker_sealed_is_deleted_while_its_replica_is_out_of_sync() -> None:
    """The older process died between sealing and deleting, when the replica had long been assigned again."""
    hosting = Hosting()
    hosting.apply(AGAIN)
    log = hosting.log()
    log.refresh()
    log.start_epoch(SEALED_EPOCH, as_leader=False)
    hosting.pass_time(cadence.SEALED_SEARCHED.ms)
    assert not hosting.is_there


def test_a_stray_is_deleted_by_the_session_that_seals_it_and_never_the_table_that_took_its_place() -> None:
    """A session that saw the stray and slept would otherwise delete what another one has made since."""
    hosting = Hosting()
    table, clock, ids = hosting.stores.table("root", TP), hosting.stores.clock, hosting.stores.ids
    assert not delete_stray(table, "older", clock, ids), "it is of another topic by now"
    log = hosting.log()
    log.refresh()
    log.start_epoch(SEALED_EPOCH, as_leader=False)
    assert not delete_stray(table, "id", clock, ids), "whoever sealed it deletes it"
    assert hosting.is_there
    table.drop()
    hosting.make_table(5)
    assert delete_stray(table, "id", clock, ids)
    assert not hosting.is_there
