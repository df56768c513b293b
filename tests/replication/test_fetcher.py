"""Fetch sessions: they follow, stand by, take over, end; one partition's trouble is not the others' (DESIGN §6)."""

from __future__ import annotations

import json

from replication.config import BrokerConfig
from replication.fetcher import (
    ACTIVE,
    BEAT_INTERVAL_MS,
    CLOSE_UP_INTERVAL_MS,
    ENDING_MS,
    SILENCE_MS,
    STANDBY,
    WARM_UP_INTERVAL_MS,
    FetchSession,
    stop_path,
)
from replication.followed_replica import WARM_UP_COMMITS
from replication.follower_watch import ENDED
from replication.metadata import MetadataLog
from replication.progress import ReplicaProgress, fetch_progress_path, leader_progress_path
from replication.progress_object import ProgressReader, ProgressWriter
from replication.session_notice import notices_prefix
from replication.state import FenceBrokerRecord, PartitionRecord, RemoveTopicRecord
from storage.config import LogConfig
from storage.log import PartitionLog
from storage.records import TopicPartition
from tests.replication.memory_stores import METADATA_ROOT, MemoryStores, commit, create, led_by, register
from tests.storage.logs import started, values, write

CONFIG = BrokerConfig.from_properties({"replica.fetch.backoff.ms": 100, "stratalog.metadata.poll.ms": 10})
FOLLOWER, FOLLOWER_EPOCH = 2, 12


def progress_path(name: str) -> str:
    return fetch_progress_path(FOLLOWER_EPOCH, f"0-{name}")


class Following:
    """Broker 1 leads topic `t`, broker 2 follows it in sessions that the test turns by hand."""

    def __init__(self, partitions: int = 1) -> None:
        self.stores = MemoryStores()
        self.metadata: MetadataLog = self.stores.metadata()
        register(self.metadata, 1, 11)
        register(self.metadata, FOLLOWER, FOLLOWER_EPOCH)
        self.published = ProgressWriter(self.stores.objects("broker-1"), leader_progress_path(11))
        create(self.metadata, "t", *(led_by(1, partition=p) for p in range(partitions)))
        for partition in range(partitions):
            self.leads(led_by(1, partition=partition))

    def leads(self, state: PartitionRecord, topic_id: str = "id") -> PartitionLog:
        """The leader's own table shows the epoch."""
        log = self.log(state.leader, state.partition)
        log.exists_or_create(topic_id)
        started(log, state.leader_epoch)
        return log

    def log(self, broker: int, partition: int = 0) -> PartitionLog:
        table = self.stores.table(f"broker-{broker}", TopicPartition("t", partition))
        return PartitionLog(table, LogConfig(), self.stores.clock, self.stores.ids)

    def leader_writes(self, *words: str, partition: int = 0) -> None:
        """Broker 1 appends, a commit for each word, and publishes."""
        log = self.log(1, partition)
        write(log, *words)
        topic_partition = TopicPartition("t", partition)
        entry = ReplicaProgress(topic_partition, 0, log.log_end_offset, log.version, topic_id=log.topic_id)
        self.published.update([entry])
        self.published.publish()

    def session(
        self, name: str, *, share: int = 0, config: BrokerConfig = CONFIG, after: FetchSession | None = None
    ) -> FetchSession:
        """`after`: the session that ran before in the same process."""
        return FetchSession(
            FOLLOWER,
            FOLLOWER_EPOCH,
            "broker-2",
            name,
            config=config,
            metadata_root=METADATA_ROOT,
            stores=self.stores,
            clock=self.stores.clock,
            ids=self.stores.ids,
            share=share,
            followed=None if after is None else after.followed,
        )

    def turn(self, *sessions: FetchSession, ms: int = 3_000) -> None:
        """Both turn by turn for so long, long enough for every rescan and retry."""
        for _ in range(ms // 50):
            self.stores.clock.now_ms += 50
            for session in sessions:
                session.step()

    def progress(self, name: str) -> ProgressReader:
        """What session `name` of share 0 published."""
        reader = ProgressReader(self.stores.objects("broker-2"), progress_path(name))
        reader.poll()
        return reader


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
    (entry,) = following.progress("s").entries.values()
    assert (entry.leader_epoch, entry.log_end_offset) == (1, 2)


def test_what_it_leads_itself_or_nobody_leads_it_does_not_follow() -> None:
    following = Following(partitions=2)
    session = following.session("s")
    following.turn(session)
    commit(following.metadata, led_by(2, epoch=1))
    commit(following.metadata, led_by(-1, partition=1, epoch=1))
    following.turn(session)
    assert session.replicas == {}


# -- standing by ---------------------------------------------------------------------------------------------


def test_alone_it_takes_over_at_once() -> None:
    following = Following()
    write(following.log(1), "a")
    session = following.session("s")
    assert session.state == STANDBY
    following.turn(session)
    assert session.state == ACTIVE
    assert values(following.log(2)) == "a"


def test_the_younger_stands_by_while_the_elder_works() -> None:
    following = Following()
    elder, younger = following.session("elder"), following.session("younger")
    write(following.log(1), "a")
    following.turn(elder, ms=50)
    following.turn(elder, younger, ms=10_000)
    assert (elder.state, younger.state) == (ACTIVE, STANDBY)
    assert younger.copied_count == 0
    assert following.progress("younger").entries == {}


def test_it_takes_over_when_the_elder_says_that_it_ended() -> None:
    following = Following()
    elder, younger = following.session("elder"), following.session("younger")
    following.turn(elder, ms=50)
    following.turn(elder, younger)
    elder.end()
    assert following.progress("elder").state == ENDED
    write(following.log(1), "a")
    following.turn(younger, ms=100)
    assert younger.state == ACTIVE
    following.turn(younger)
    assert values(following.log(2)) == "a"


def test_it_takes_over_when_the_elder_falls_silent() -> None:
    following = Following()
    elder, younger = following.session("elder"), following.session("younger")
    following.turn(elder, ms=50)
    following.turn(elder, younger)
    following.turn(younger, ms=SILENCE_MS - 2 * BEAT_INTERVAL_MS)
    assert younger.state == STANDBY
    following.turn(younger, ms=3 * BEAT_INTERVAL_MS)
    assert younger.state == ACTIVE


def test_shares_follow_each_partition_once_and_stand_by_within_the_share() -> None:
    """`num.replica.fetchers` tasks for one follower."""
    config = BrokerConfig.from_properties({**CONFIG.properties(), "num.replica.fetchers": 2})
    following = Following(partitions=8)
    sessions = [following.session("s", share=share, config=config) for share in (0, 1)]
    following.turn(*sessions)
    assert [session.state for session in sessions] == [ACTIVE, ACTIVE]
    followed = [tp.partition for session in sessions for tp in session.replicas]
    assert sorted(followed) == list(range(8))
    assert all(session.replicas for session in sessions)


def test_an_elder_that_wakes_up_again_stands_by() -> None:
    """Whoever took over last goes on, until it falls silent itself."""
    following = Following()
    elder, younger = following.session("elder"), following.session("younger")
    following.turn(elder, ms=50)
    following.turn(elder, younger)
    following.turn(younger, ms=2 * SILENCE_MS)
    for word in "abc":
        write(following.log(1), word)
        following.turn(elder, younger, ms=500)
    following.turn(elder, younger)
    assert (elder.state, younger.state) == (STANDBY, ACTIVE)
    assert values(following.log(2)) == "a b c"
    write(following.log(1), "d")
    following.turn(elder, ms=2 * SILENCE_MS)
    assert elder.state == ACTIVE
    assert values(following.log(2)) == "a b c d"


def test_standing_by_it_folds_what_it_will_need_and_writes_nothing() -> None:
    following = Following(partitions=3)
    elder, younger = following.session("elder"), following.session("younger")
    for partition in range(3):
        following.leader_writes("a", partition=partition)
    following.turn(elder, ms=200)
    following.turn(elder, younger)
    following.leader_writes("b", partition=1)
    following.turn(elder, younger, ms=WARM_UP_INTERVAL_MS)
    for topic_partition, replica in younger.replicas.items():
        end = 2 if topic_partition.partition == 1 else 1
        assert (replica.leader.log_end_offset, replica.own.log_end_offset) == (end, end)
        assert not replica.has_started
    assert younger.copied_count == 0


def test_standing_by_it_folds_a_long_log_some_commits_at_a_time() -> None:
    following = Following()
    elder, younger = following.session("elder"), following.session("younger")
    following.turn(elder, ms=50)
    following.turn(elder, younger)
    (replica,) = younger.replicas.values()
    seen = replica.leader.version
    following.leader_writes(*("abcd" * WARM_UP_COMMITS))
    following.turn(elder, ms=200)
    folded = [seen]
    for _ in range(2 * WARM_UP_INTERVAL_MS // 50):
        following.turn(elder, younger, ms=50)
        if replica.leader.version != folded[-1]:
            folded.append(replica.leader.version)
    assert [version - seen for version in folded] == [WARM_UP_COMMITS * times for times in range(5)]
    assert replica.own.log_end_offset == 4 * WARM_UP_COMMITS


def test_once_the_elder_is_about_to_end_the_younger_folds_what_it_lacks() -> None:
    following = Following()
    elder, younger = following.session("elder"), following.session("younger")
    following.turn(elder, ms=50)
    following.turn(elder, younger)
    (replica,) = younger.replicas.values()
    following.leader_writes("a")
    following.turn(elder, younger, ms=1_000)
    assert (replica.leader.log_end_offset, replica.own.log_end_offset) == (0, 0)
    elder.announce_end()
    following.turn(elder, younger, ms=2 * BEAT_INTERVAL_MS)
    assert (replica.leader.log_end_offset, replica.own.log_end_offset) == (1, 1)
    following.leader_writes("b")
    following.turn(elder, ms=50)
    following.turn(elder, younger, ms=2 * CLOSE_UP_INTERVAL_MS)
    assert (replica.leader.log_end_offset, replica.own.log_end_offset) == (2, 2)
    assert (younger.state, younger.copied_count) == (STANDBY, 0)


def test_an_elder_that_slept_shortly_before_its_end_stands_by() -> None:
    following = Following()
    elder, younger = following.session("elder"), following.session("younger")
    following.turn(elder, ms=50)
    following.turn(elder, younger)
    elder.announce_end()
    following.turn(younger, ms=2 * SILENCE_MS)
    following.turn(elder, younger)
    assert (elder.state, younger.state) == (STANDBY, ACTIVE)


def test_it_says_when_it_took_over_and_when_it_ended() -> None:
    """Hand-overs can be counted from outside."""
    following = Following()
    objects = following.stores.objects("broker-2")
    elder, younger = following.session("elder"), following.session("younger")
    write(following.log(1), "a")
    following.turn(elder, ms=200)
    following.turn(elder, younger)
    elder.end()
    following.turn(younger)
    prefix = notices_prefix(FOLLOWER_EPOCH)
    told = {name: json.loads(objects.get_register(f"{prefix}0-{name}") or b"") for name in ("elder", "younger")}
    assert (told["elder"]["state"], told["younger"]["state"]) == (ENDED, ACTIVE)
    assert told["elder"]["active_ms"] <= told["elder"]["first_work_ms"] <= told["elder"]["ended_ms"]
    assert told["younger"]["standby_ms"] < told["elder"]["ended_ms"] <= told["younger"]["active_ms"]


def test_it_says_ahead_that_it_will_end() -> None:
    following = Following()
    session = following.session("s")
    session.run(10_000)
    told = json.loads(following.stores.objects("broker-2").get_register(f"{notices_prefix(FOLLOWER_EPOCH)}0-s") or b"")
    assert told["active_ms"] < told["ending_ms"]
    assert ENDING_MS // 2 < told["ended_ms"] - told["ending_ms"] < 2 * ENDING_MS


# -- one session after another in one process ----------------------------------------------------------------


def test_the_next_session_goes_on_with_what_was_folded() -> None:
    following = Following()
    write(following.log(1), "a")
    first = following.session("1")
    following.turn(first)
    first.end()
    write(following.log(1), "b")
    second = following.session("2", after=first)
    tables = [(replica.own, replica.leader) for replica in second.replicas.values()]
    following.turn(second)
    assert values(following.log(2)) == "a b"
    assert [(replica.own, replica.leader) for replica in second.replicas.values()] == tables
    assert second.copied_count == 1
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
    assert second.replicas[TopicPartition("t", 0)].failure is None


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


def test_all_are_over_when_they_are_told_to_stop() -> None:
    following = Following()
    elder, younger = following.session("elder"), following.session("younger")
    following.turn(elder, ms=50)
    following.turn(elder, younger)
    following.stores.objects("broker-2").put(stop_path(FOLLOWER_EPOCH), b"stop")
    following.turn(elder, younger)
    assert (elder.is_over, younger.is_over) == (True, True)


def test_out_of_sight_of_the_metadata_log_for_a_session_timeout_it_ends_before_its_time() -> None:
    """Another session may see it."""
    following = Following()
    session = following.session("s")
    following.turn(session)
    following.stores.disk(METADATA_ROOT).fault = lambda *_: True
    began_ms = following.stores.clock.monotonic_ms()
    session.run(600_000)
    lasted_ms = following.stores.clock.monotonic_ms() - began_ms
    assert CONFIG.broker_session_timeout_ms <= lasted_ms < 2 * CONFIG.broker_session_timeout_ms
    assert following.progress("s").state == ENDED


def test_run_ends_at_its_deadline_and_says_so() -> None:
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


# -- topics come and go --------------------------------------------------------------------------------------


def test_a_deleted_topic_is_forgotten() -> None:
    following = Following()
    session = following.session("s")
    following.turn(session)
    commit(following.metadata, RemoveTopicRecord("t", "id"))
    following.turn(session)
    assert session.replicas == {}


def test_a_leftover_of_an_older_topic_of_the_name_is_dropped() -> None:
    following = Following()
    leftover = following.log(2)
    leftover.exists_or_create("older topic")
    started(leftover, 7)
    write(leftover, "x", "y", "z", epoch=7)
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


def new_table_is_kept(following: Following, session: FetchSession) -> None:
    """The leader, of the same broker, makes the new topic's table; the session's next turn leaves it there."""
    new = following.log(2)
    new.exists_or_create("new")
    started(new, 0)
    write(new, "kept")
    following.turn(session)
    assert values(following.log(2)) == "kept"


def test_a_session_that_is_behind_does_not_drop_the_new_topics_table() -> None:
    """It still has the old topic in its fold and takes the new table for the leftover."""
    following = Following()
    commit(following.metadata, led_by(1, epoch=5))  # whose start it waits for, looking at its own table each time
    slow = BrokerConfig.from_properties({**CONFIG.properties(), "stratalog.metadata.poll.ms": 60_000})
    session = following.session("s", config=slow)
    following.turn(session)
    commit(following.metadata, RemoveTopicRecord("t", "id"))
    following.log(2).table.drop()
    create(following.metadata, "t", led_by(1), topic_id="new")
    new_table_is_kept(following, session)


def test_a_session_that_slept_while_the_metadata_log_was_cleaned_up_does_not_drop_the_new_topics_table() -> None:
    """A look at the metadata log may then see nothing new for a while, and the old topic seems to be there still."""
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
    assert session.replicas == {}


# -- trouble with one partition ------------------------------------------------------------------------------


def test_one_partitions_unreadable_table_does_not_stop_the_others() -> None:
    following = Following(partitions=2)
    following.log(2, 0).exists_or_create("id")
    following.stores.disk("broker-2").tables["t-0"].commits[0] = None
    write(following.log(1, 0), "a")
    write(following.log(1, 1), "b")
    session = following.session("s")
    following.turn(session)
    assert values(following.log(2, 1)) == "b"
    assert session.replicas[TopicPartition("t", 0)].failure is not None
    assert [p.topic_partition.partition for p in following.progress("s").entries.values()] == [1]


def test_one_partition_that_is_out_of_reach_is_tried_again_later() -> None:
    following = Following(partitions=2)
    write(following.log(1, 0), "a")
    write(following.log(1, 1), "b")
    session = following.session("s")
    following.stores.disk("broker-1").fault = lambda _operation, table, _detail: table == "t-0"
    following.turn(session)
    assert values(following.log(2, 1)) == "b"
    assert session.replicas[TopicPartition("t", 0)].failure is None
    following.stores.disk("broker-1").fault = None
    following.turn(session)
    assert values(following.log(2, 0)) == "a"
