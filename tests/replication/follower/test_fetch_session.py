"""Fetch sessions: they follow and end; one partition's failure does not stop the others."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from stratalog.replication.config import BrokerConfig
from stratalog.replication.follower.sessions.fetch_session import (
    FollowerSession,
    stop_path,
)
from stratalog.replication.metadata.records import (
    AccessControlEntryRecord,
    ConfigRecord,
    ControllerRecord,
    FenceBrokerRecord,
    MetadataRecord,
    ProducerIdsRecord,
    RemoveAccessControlEntryRecord,
    RemoveTopicRecord,
)
from stratalog.replication.progress.progress import ENDED, leader_ends_path
from stratalog.storage.clock import Clock
from stratalog.storage.objects.memory import MemoryStore
from stratalog.storage.records import TopicPartition
from stratalog.storage.upkeep.upkeep import Upkeep
from tests.replication.following import CONFIG, FOLLOWER, FOLLOWER_EPOCH, Following
from tests.replication.memory_stores import METADATA_ROOT, commit, create, led_by, register
from tests.storage.logs import started, values, write


def test_it_follows_and_its_progress_is_the_acknowledgement() -> None:
    following = Following()
    write(following.log(1), "a", "b")
    session = following.session("s")
    following.turn(session)
    assert values(following.log(2)) == "a b"
    (entry,) = following.progress("s").entries.values()
    assert (entry.leader_epoch, entry.log_end_offset, entry.version) == (0, 2, following.log(2).version)


def test_a_leader_change_is_followed() -> None:
    following = Following()
    register(following.metadata, 3, 13)
    session = following.session("s")
    write(following.log(1), "a", "z")
    third = following.log(3)
    third.exists_or_create("id")
    started(third, 0)
    write(third, "a")
    following.turn(session)
    state = led_by(3, epoch=1)
    commit(following.metadata, state)
    following.leads(state)
    write(following.log(3), "b", epoch=1)
    following.turn(session)
    assert values(following.log(2)) == "a b"
    (before,) = following.progress("s").entries.values()
    (after,) = following.progress("s", leader=3).entries.values()
    assert [(entry.leader_epoch, entry.log_end_offset) for entry in (before, after)] == [(0, 2), (1, 2)]


def test_a_partition_that_it_leads_or_that_has_no_leader_is_not_followed() -> None:
    following = Following(partitions=2)
    session = following.session("s")
    following.turn(session)
    commit(following.metadata, led_by(2, epoch=1))
    commit(following.metadata, led_by(-1, partition=1, epoch=1))
    following.turn(session)
    assert session.followed.replicas == {}


# -- one session after another in one process ----------------------------------------------------------------


def test_the_next_session_resumes_what_was_folded() -> None:
    following = Following()
    write(following.log(1), "a")
    first = following.session("1")
    following.turn(first)
    first.end()
    write(following.log(1), "b")
    second = following.session("2", after=first)
    tables = [(replica.own, replica.leader) for replica in second.followed.replicas.values()]
    following.turn(second)
    assert values(following.log(2)) == "a b"
    assert [(replica.own, replica.leader) for replica in second.followed.replicas.values()] == tables
    assert second.followed.copied_count == 1
    (entry,) = following.progress("2").entries.values()
    assert entry.log_end_offset == 2


def test_what_another_session_did_meanwhile_is_folded() -> None:
    """It copied, and a new leader's epoch began, under which the log was truncated."""
    following = Following()
    register(following.metadata, 3, 13)
    write(following.log(1), "a", "z")
    first = following.session("1")
    following.turn(first)
    first.end()
    third = following.leads(led_by(3))
    write(third, "a")
    state = led_by(3, epoch=1)
    commit(following.metadata, state)
    following.leads(state)
    write(following.log(3), "b", epoch=1)
    other = following.session("other")
    following.turn(other)
    other.end()
    write(following.log(3), "c", epoch=1)
    second = following.session("2", after=first)
    following.turn(second)
    assert values(following.log(2)) == "a b c"


def test_a_table_that_was_made_anew_meanwhile_is_folded_anew() -> None:
    following = Following(partitions=2)
    write(following.log(1), "a", "b")
    first = following.session("1")
    following.turn(first)
    first.end()
    following.log(2).table.drop()
    again = following.log(2)
    again.exists_or_create("id")
    started(again, 0)
    second = following.session("2", after=first)
    following.turn(second)
    assert values(following.log(2)) == "a b"
    assert second.followed.replicas[TopicPartition("t", 0)].failure is None


def test_a_partition_that_went_offline_is_tried_again_by_the_next_session() -> None:
    following = Following()
    following.log(2).exists_or_create("id")
    sound = dict(following.stores.disk("broker-2").tables["t-0"].commits)
    following.stores.disk("broker-2").tables["t-0"].commits[0] = None
    write(following.log(1), "a")
    first = following.session("1")
    following.turn(first)
    first.end()
    following.stores.disk("broker-2").tables["t-0"].commits[0] = sound[0]
    second = following.session("2", after=first)
    following.turn(second)
    assert values(following.log(2)) == "a"


# -- the end -------------------------------------------------------------------------------------------------


def test_it_is_over_when_its_broker_came_up_anew() -> None:
    following = Following()
    session = following.session("s")
    following.turn(session)
    register(following.metadata, FOLLOWER, 20)
    write(following.log(1), "a")
    following.turn(session)
    assert session.is_over
    assert values(following.log(2)) == ""


def test_it_is_over_when_its_broker_is_fenced() -> None:
    following = Following()
    session = following.session("s")
    following.turn(session)
    commit(following.metadata, FenceBrokerRecord(FOLLOWER, FOLLOWER_EPOCH))
    following.turn(session)
    assert session.is_over


def test_all_are_over_once_the_stop_object_exists() -> None:
    following = Following()
    elder, younger = following.session("elder"), following.session("younger")
    following.turn(elder, ms=50)
    following.turn(elder, younger)
    following.stores.objects("broker-2").put(stop_path(FOLLOWER_EPOCH), b"stop")
    following.turn(elder, younger)
    assert (elder.is_over, younger.is_over) == (True, True)


def test_without_the_metadata_log_for_a_session_timeout_it_ends_before_its_deadline() -> None:
    """Another session may reach it."""
    following = Following()
    session = following.session("s")
    following.turn(session)
    following.stores.disk(METADATA_ROOT).fault = lambda *_: True
    began_ms = following.stores.clock.monotonic_ms()
    session.run(600_000)
    lasted_ms = following.stores.clock.monotonic_ms() - began_ms
    assert CONFIG.broker_session_timeout_ms <= lasted_ms < 2 * CONFIG.broker_session_timeout_ms
    assert following.progress("s").state == ENDED


def test_run_ends_at_its_deadline_and_publishes_that() -> None:
    following = Following()
    write(following.log(1), "a")
    session = following.session("s")
    began_ms = following.stores.clock.monotonic_ms()
    session.run(2_000)
    assert 2_000 <= following.stores.clock.monotonic_ms() - began_ms < 2_200
    assert not session.is_over
    assert values(following.log(2)) == "a"
    assert following.progress("s").state == ENDED


def test_run_outlives_a_store_that_is_away() -> None:
    following = Following()
    write(following.log(1), "a")
    session = following.session("s")
    until_ms = following.stores.clock.monotonic_ms() + 1_000
    for root in (METADATA_ROOT, "broker-1", "broker-2"):
        following.stores.disk(root).fault = lambda *_: following.stores.clock.monotonic_ms() < until_ms
    session.run(3_000)
    assert values(following.log(2)) == "a"


class _Timed(MemoryStore):
    """Notes when the log ends of broker 1 are asked for."""

    def __init__(self, clock: Clock, objects: dict[str, bytes]) -> None:
        super().__init__(objects)
        self.clock = clock
        self.looks_ms: list[int] = []

    def get_register(self, path: str) -> bytes | None:
        if path == leader_ends_path(11):
            self.looks_ms.append(self.clock.monotonic_ms())
        return super().get_register(path)


@pytest.mark.parametrize(("idle_ms", "pause_ms"), [(0, 1), (50, 5), (150, 15), (1_000, 100)])
def test_a_leader_that_writes_nothing_is_asked_less_and_less(idle_ms: int, pause_ms: int) -> None:
    """Where storage cannot be watched, each look is a request."""
    following = Following()
    following.leader_writes("a")
    clock, stores = following.stores.clock, following.stores.stores
    timed = stores["broker-1"] = _Timed(clock, following.stores.objects("broker-1").objects)
    began_ms = clock.monotonic_ms()
    following.session("s").run(5_000)
    assert values(following.log(2)) == "a"
    pauses_ms = [late - early for early, late in pairwise(timed.looks_ms) if early - began_ms >= idle_ms]
    assert pause_ms - 2 <= pauses_ms[0] <= pause_ms + max(2, pause_ms // 10)


# -- topics come and go --------------------------------------------------------------------------------------


def test_a_deleted_topic_is_forgotten() -> None:
    following = Following()
    session = following.session("s")
    following.turn(session)
    commit(following.metadata, RemoveTopicRecord("t", "id"))
    following.turn(session)
    assert session.followed.replicas == {}


def test_a_stray_replica_of_an_older_topic_of_the_name_is_dropped() -> None:
    following = Following()
    stray = following.log(2)
    stray.exists_or_create("older topic")
    started(stray, 7)
    write(stray, "x", "y", "z", epoch=7)
    write(following.log(1), "a")
    session = following.session("s")
    following.turn(session)
    assert values(following.log(2)) == "a"
    assert following.log(2).topic_id == "id"


def test_a_topic_deleted_and_created_again_while_it_runs() -> None:
    following = Following()
    session = following.session("s")
    write(following.log(1), "x", "y", "z")
    following.turn(session)
    commit(following.metadata, RemoveTopicRecord("t", "id"))
    following.log(1).table.drop()
    create(following.metadata, "t", led_by(1), topic_id="new")
    following.leads(led_by(1), "new")
    write(following.log(1), "a")
    following.turn(session, ms=6_000)
    assert values(following.log(2)) == "a"
    (entry,) = following.progress("s").entries.values()
    assert (entry.topic_id, entry.log_end_offset) == ("new", 1)


def new_table_is_kept(following: Following, session: FollowerSession) -> None:
    """The leader, of the same broker, makes the new topic's table; the session's next turn leaves it there."""
    new = following.log(2)
    new.exists_or_create("new")
    started(new, 0)
    write(new, "kept")
    following.turn(session)
    assert values(following.log(2)) == "kept"


def test_a_session_that_lags_does_not_drop_the_new_topics_table() -> None:
    """It still has the old topic in its fold and takes the new table for a stray one."""
    following = Following()
    commit(following.metadata, led_by(1, epoch=5))  # whose start it waits for, checking its own table each time
    slow = BrokerConfig.from_properties({**CONFIG.properties(), "stratalog.metadata.poll.ms": 60_000})
    session = following.session("s", config=slow)
    following.turn(session)
    commit(following.metadata, RemoveTopicRecord("t", "id"))
    following.log(2).table.drop()
    create(following.metadata, "t", led_by(1), topic_id="new")
    new_table_is_kept(following, session)


def test_a_session_that_slept_while_the_metadata_log_was_cleaned_up_does_not_drop_the_new_topics_table() -> None:
    """A refresh of the metadata log may then find nothing new for a while, and the old topic seems to exist still."""
    following = Following()
    commit(following.metadata, led_by(1, epoch=5))
    session = following.session("s")
    following.turn(session)
    commit(following.metadata, RemoveTopicRecord("t", "id"))
    following.log(2).table.drop()
    create(following.metadata, "t", led_by(2), topic_id="new")
    metadata = following.metadata.log.table
    assert list(metadata.clean_log(metadata.checkpoint(), keep_from_ms=1 << 60))
    new_table_is_kept(following, session)
    assert session.followed.replicas == {}


@pytest.mark.parametrize("registers_anew", [False, True])
def test_a_session_that_lags_makes_no_empty_table_where_this_replica_joined_the_isr(registers_anew: bool) -> None:
    """By its fold the replica is outside the ISR and may begin again; another session has copied the log meanwhile."""
    following = Following()
    outside = replace(led_by(1, epoch=1), isr=(1,))
    commit(following.metadata, outside)
    slow = BrokerConfig.from_properties({**CONFIG.properties(), "stratalog.metadata.poll.ms": 60_000})
    lagging = following.session("1", config=slow)
    following.turn(lagging)  # the leader has not begun the epoch
    write(following.leads(outside), "a", "b", epoch=1)
    if registers_anew:
        register(following.metadata, FOLLOWER, FOLLOWER_EPOCH + 1)
    commit(following.metadata, replace(outside, isr=(1, 2), partition_epoch=2))
    following.log(2).table.drop()
    following.turn(lagging)
    assert following.log(2).table.snapshot() is None
    following.metadata.refresh()
    isr = following.metadata.image.partition(TopicPartition("t", 0)).isr
    assert isr == ((1, 2) if registers_anew else (1,))


# -- failures of one partition -------------------------------------------------------------------------------


def test_one_partitions_unreadable_table_does_not_stop_the_others() -> None:
    following = Following(partitions=2)
    following.log(2, 0).exists_or_create("id")
    following.stores.disk("broker-2").tables["t-0"].commits[0] = None
    write(following.log(1, 0), "a")
    write(following.log(1, 1), "b")
    session = following.session("s")
    following.turn(session)
    assert values(following.log(2, 1)) == "b"
    assert session.followed.replicas[TopicPartition("t", 0)].failure is not None
    assert [p.topic_partition.partition for p in following.progress("s").entries.values()] == [1]


def test_one_partition_that_is_out_of_reach_is_tried_again_later() -> None:
    following = Following(partitions=2)
    write(following.log(1, 0), "a")
    write(following.log(1, 1), "b")
    session = following.session("s")
    following.stores.disk("broker-1").fault = lambda _operation, table, _detail: table == "t-0"
    following.turn(session)
    assert values(following.log(2, 1)) == "b"
    assert session.followed.replicas[TopicPartition("t", 0)].failure is None
    following.stores.disk("broker-1").fault = None
    following.turn(session)
    assert values(following.log(2, 0)) == "a"


@pytest.mark.parametrize(
    ("record", "concerned"),
    [
        (ProducerIdsRecord(1, 5_000), 0),
        (ControllerRecord(1, 7), 0),
        (AccessControlEntryRecord("1", "TOPIC", "t", "LITERAL", "User:a", "*", "READ", "ALLOW"), 0),
        (RemoveAccessControlEntryRecord("1"), 0),
        (ConfigRecord("t", "retention.ms", "1000"), 3),
        (replace(led_by(1, partition=2), partition_epoch=1), 1),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, int) else str(value),
)
def test_metadata_concerns_only_the_partitions_that_it_can_change(record: MetadataRecord, concerned: int) -> None:
    """A producer id block is recorded for every producer: it must not wake the upkeep of each partition."""
    following = Following(partitions=3)
    session = following.session("s")
    following.turn(session)
    followed, fetcher = session.followed, session.followed.fetchers[1]
    checked: list[TopicPartition] = []

    def check(topic_partition: TopicPartition, _upkeep: Upkeep, _is_busy: bool) -> None:
        checked.append(topic_partition)

    def run() -> None:
        fetcher.upkeep.run(check, lambda _topic_partition, _reason: None)

    run()
    while checked:
        checked.clear()
        run()
    commit(following.metadata, record)
    following.stores.clock.now_ms += CONFIG.stratalog_metadata_poll_max_ms
    followed.follow_metadata(following.stores.clock.monotonic_ms())
    followed.prepare(fetcher, following.stores.clock.monotonic_ms())
    run()
    assert len(checked) == concerned
