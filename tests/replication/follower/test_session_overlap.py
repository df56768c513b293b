"""Two fetch sessions of a fetcher: the younger waits, folds ahead, and becomes active (promise 7)."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from stratalog.replication import cadence
from stratalog.replication.config import BrokerConfig
from stratalog.replication.follower.replica import FOLD_AHEAD_COMMITS
from stratalog.replication.follower.sessions.fetch_session import FollowerSession
from stratalog.replication.follower.sessions.heartbeats import ACTIVE, RESTING, STANDBY
from stratalog.replication.metadata.records import ConfigRecord
from stratalog.replication.progress.of_session import SessionState, session_states_prefix
from stratalog.replication.progress.progress import ENDED, writer_state
from stratalog.storage.log.partition_log import WHOLE_PRODUCERS_COMMITS
from stratalog.storage.objects.memory import MemoryStore
from stratalog.storage.objects.port import ObjectMeta
from tests.replication.following import CONFIG, FOLLOWER_EPOCH, Following, progress_path
from tests.replication.memory_stores import commit
from tests.storage.logs import append, idempotent, values, write


def overlapping(following: Following) -> tuple[FollowerSession, FollowerSession]:
    """An active elder and a younger on standby."""
    elder, younger = following.session("elder"), following.session("younger")
    following.turn(elder, ms=50)
    following.turn(elder, younger)
    return elder, younger


def test_alone_it_becomes_active_at_once() -> None:
    following = Following()
    write(following.log(1), "a")
    session = following.session("s")
    assert session.state == STANDBY
    following.turn(session)
    assert session.state == ACTIVE
    assert values(following.log(2)) == "a"


def test_the_younger_is_on_standby_while_the_elder_is_active() -> None:
    following = Following()
    elder, younger = following.session("elder"), following.session("younger")
    write(following.log(1), "a")
    following.turn(elder, ms=50)
    following.turn(elder, younger, ms=10_000)
    assert (elder.state, younger.state) == (ACTIVE, STANDBY)
    assert younger.followed.copied_count == 0
    assert following.progress("younger").entries == {}


def test_it_becomes_active_when_the_elder_publishes_that_it_ended() -> None:
    following = Following()
    elder, younger = overlapping(following)
    elder.end()
    assert following.progress("elder").state == ENDED
    write(following.log(1), "a")
    following.turn(younger, ms=100)
    assert younger.state == ACTIVE
    following.turn(younger)
    assert values(following.log(2)) == "a"


def test_it_becomes_active_when_the_elder_falls_silent() -> None:
    following = Following()
    _, younger = overlapping(following)
    following.turn(younger, ms=cadence.SILENCE.ms - 2 * cadence.BEAT.ms)
    assert younger.state == STANDBY
    following.turn(younger, ms=3 * cadence.BEAT.ms)
    assert younger.state == ACTIVE


def test_fetchers_follow_each_partition_once_and_each_has_a_standby_session_of_its_own() -> None:
    """`num.replica.fetchers` tasks for one follower."""
    config = BrokerConfig.from_properties({**CONFIG.properties(), "num.replica.fetchers": 2})
    following = Following(partitions=8)
    sessions = [following.session("s", fetcher_id=number, config=config) for number in (0, 1)]
    following.turn(*sessions)
    assert [session.state for session in sessions] == [ACTIVE, ACTIVE]
    followed = [tp.partition for session in sessions for tp in session.followed.replicas]
    assert sorted(followed) == list(range(8))
    assert all(session.followed.replicas for session in sessions)


def test_an_elder_that_wakes_up_again_returns_to_standby() -> None:
    """The session that became active last continues until it falls silent itself."""
    following = Following()
    elder, younger = overlapping(following)
    following.turn(younger, ms=2 * cadence.SILENCE.ms)
    for word in "abc":
        write(following.log(1), word)
        following.turn(elder, younger, ms=500)
    following.turn(elder, younger)
    assert (elder.state, younger.state) == (STANDBY, ACTIVE)
    assert values(following.log(2)) == "a b c"
    write(following.log(1), "d")
    following.turn(elder, ms=2 * cadence.SILENCE.ms)
    assert elder.state == ACTIVE
    assert values(following.log(2)) == "a b c d"


def test_on_standby_it_folds_what_it_will_need_and_commits_nothing() -> None:
    following = Following(partitions=3)
    elder, younger = following.session("elder"), following.session("younger")
    for partition in range(3):
        following.leader_writes("a", partition=partition)
    following.turn(elder, ms=200)
    following.turn(elder, younger)
    following.leader_writes("b", partition=1)
    following.turn(elder, younger, ms=cadence.FOLD_AHEAD.ms)
    for topic_partition, replica in younger.followed.replicas.items():
        end = 2 if topic_partition.partition == 1 else 1
        assert (replica.leader.log_end_offset, replica.own.log_end_offset) == (end, end)
        assert not replica.has_started
    assert younger.followed.copied_count == 0


def test_on_standby_it_folds_a_long_log_some_commits_at_a_time() -> None:
    following = Following()
    elder, younger = overlapping(following)
    (replica,) = younger.followed.replicas.values()
    seen = replica.leader.version
    following.leader_writes(*("abcd" * FOLD_AHEAD_COMMITS))
    following.turn(elder, ms=200)
    folded = [seen]
    for _ in range(2 * cadence.FOLD_AHEAD.ms // 50):
        following.turn(elder, younger, ms=50)
        if replica.leader.version != folded[-1]:
            folded.append(replica.leader.version)
    assert [version - seen for version in folded] == [FOLD_AHEAD_COMMITS * times for times in range(5)]
    assert replica.own.log_end_offset == 4 * FOLD_AHEAD_COMMITS


def test_once_the_elder_is_about_to_end_the_younger_folds_what_it_lacks() -> None:
    following = Following()
    elder, younger = overlapping(following)
    (replica,) = younger.followed.replicas.values()
    following.leader_writes("a")
    following.turn(elder, younger, ms=1_000)
    assert (replica.leader.log_end_offset, replica.own.log_end_offset) == (0, 0)
    elder.announce_end()
    following.turn(elder, younger, ms=2 * cadence.BEAT.ms)
    assert (replica.leader.log_end_offset, replica.own.log_end_offset) == (1, 1)
    following.leader_writes("b")
    following.turn(elder, ms=50)
    following.turn(elder, younger, ms=2 * cadence.CLOSE_UP.ms)
    assert (replica.leader.log_end_offset, replica.own.log_end_offset) == (2, 2)
    assert (younger.state, younger.followed.copied_count) == (STANDBY, 0)


def test_a_session_that_becomes_active_copies_first_and_then_checks_the_other_tables() -> None:
    """Checking hundreds of tables takes long. What the elder copied last, the younger has not folded yet."""
    following = Following(partitions=6)
    elder, younger = overlapping(following)
    elder.announce_end()
    following.turn(elder, younger, ms=3 * cadence.BEAT.ms)
    for partition in range(4):
        following.leader_writes("z", partition=partition)
    following.turn(elder, ms=100)
    following.leader_writes("a", partition=4)
    elder.end()
    looked_at: list[str] = []
    following.stores.disk("broker-1").fault = lambda _, table, __: looked_at.append(table) is not None
    following.turn(younger)
    assert looked_at[0] == "t-4"
    assert sorted(set(looked_at)) == [f"t-{partition}" for partition in range(6)]
    assert all(replica.has_started for replica in younger.followed.replicas.values())
    assert values(following.log(2, 4)) == "a"


def test_on_standby_it_reads_the_producer_state_that_its_first_copy_needs() -> None:
    following = Following()
    for number in range(2 * WHOLE_PRODUCERS_COMMITS):
        append(following.log(1), idempotent(["a"], sequence=number))
    following.leader_writes("z")
    elder, younger = overlapping(following)
    elder.announce_end()
    following.turn(elder, younger, ms=3 * cadence.BEAT.ms)
    (replica,) = younger.followed.replicas.values()
    assert not replica.has_started
    for broker in (1, 2):
        following.stores.disk(f"broker-{broker}").fault = lambda *_: True
    last_sequences = [log.producers.producers[7].batches[-1].last_sequence for log in (replica.own, replica.leader)]
    assert last_sequences == [2 * WHOLE_PRODUCERS_COMMITS - 1] * 2


def test_an_elder_that_slept_shortly_before_its_end_returns_to_standby() -> None:
    following = Following()
    elder, younger = overlapping(following)
    elder.announce_end()
    following.turn(younger, ms=2 * cadence.SILENCE.ms)
    following.turn(elder, younger)
    assert (elder.state, younger.state) == (STANDBY, ACTIVE)


def test_it_publishes_when_it_became_active_and_when_it_ended() -> None:
    """The changes of the active session can be counted from outside."""
    following = Following()
    objects = following.stores.objects("broker-2")
    elder, younger = following.session("elder"), following.session("younger")
    write(following.log(1), "a")
    following.turn(elder, ms=200)
    following.turn(elder, younger)
    elder.end()
    following.turn(younger)
    prefix = session_states_prefix(FOLLOWER_EPOCH)
    told = {name: json.loads(objects.get_register(f"{prefix}0-{name}") or b"") for name in ("elder", "younger")}
    assert (told["elder"]["state"], told["younger"]["state"]) == (ENDED, ACTIVE)
    assert told["elder"]["active_ms"] <= told["elder"]["first_work_ms"] <= told["elder"]["ended_ms"]
    assert told["younger"]["standby_ms"] < told["elder"]["ended_ms"] <= told["younger"]["active_ms"]


def test_it_publishes_ahead_that_it_will_end() -> None:
    following = Following()
    session = following.session("s")
    session.run(10_000)
    path = f"{session_states_prefix(FOLLOWER_EPOCH)}0-s"
    told = json.loads(following.stores.objects("broker-2").get_register(path) or b"")
    assert told["active_ms"] < told["ending_ms"]
    assert cadence.SESSION_ENDING.ms // 2 < told["ended_ms"] - told["ending_ms"] < 2 * cadence.SESSION_ENDING.ms


@pytest.mark.parametrize("store_ahead_ms", [-3_600_000, 0, 3_600_000])
def test_a_live_session_is_not_forgotten_whatever_the_clock_of_its_store_shows(store_ahead_ms: int) -> None:
    following = Following()
    following.stores.objects("broker-2").now_ms = lambda: following.stores.clock.wall_ms() + store_ahead_ms
    elder, younger = overlapping(following)
    following.turn(elder, younger, ms=2 * cadence.SESSION_FORGOTTEN.ms)
    assert (elder.state, younger.state) == (ACTIVE, STANDBY)
    assert following.stores.objects("broker-2").exists(progress_path("elder"))
    write(following.log(1), "a")
    following.turn(elder, younger)
    assert len(following.progress("elder").entries) == 1


@pytest.mark.parametrize("store_ahead_ms", [-3_600_000, 0, 3_600_000])
def test_a_session_that_has_been_silent_for_long_is_forgotten(store_ahead_ms: int) -> None:
    following = Following()
    following.stores.objects("broker-2").now_ms = lambda: following.stores.clock.wall_ms() + store_ahead_ms
    _, younger = overlapping(following)
    youngest = following.session("youngest")
    following.turn(younger, youngest, ms=cadence.SESSION_FORGOTTEN.ms - 5_000)
    assert following.stores.objects("broker-2").exists(progress_path("elder"))
    following.turn(younger, youngest, ms=10_000)
    found = [meta.path for meta in following.stores.objects("broker-2").list("progress/")]
    assert [path for path in found if path.endswith("0-elder")] == []
    assert progress_path("younger") in found


def test_sessions_that_slept_with_this_one_are_not_forgotten() -> None:
    """As when a laptop is closed, or a machine with all sessions is paused."""
    following = Following()
    elder, younger = overlapping(following)
    following.stores.clock.now_ms += 10 * cadence.SESSION_FORGOTTEN.ms
    younger.step()
    assert following.stores.objects("broker-2").exists(progress_path("elder"))
    following.turn(elder, younger, ms=2_000)
    assert following.stores.objects("broker-2").exists(progress_path("elder"))


@pytest.mark.parametrize("store_ahead_ms", [-2 * cadence.SESSION_STATES_KEPT.ms, 0, 2 * cadence.SESSION_STATES_KEPT.ms])
def test_session_states_are_kept_for_an_hour_of_the_store(store_ahead_ms: int) -> None:
    following = Following()
    store, clock = following.stores.objects("broker-2"), following.stores.clock
    store.now_ms = lambda: clock.wall_ms() + store_ahead_ms
    states = {name: SessionState(store, FOLLOWER_EPOCH, name, clock) for name in ("0-old", "0-live", "0-new")}
    states["0-old"].publish("ended")
    clock.now_ms += cadence.SESSION_STATES_KEPT.ms
    states["0-live"].publish("active")
    clock.now_ms += 1_000
    states["0-new"].publish("standby")
    states["0-new"].delete_old()
    assert [meta.path.rpartition("/")[2] for meta in store.list("fetch/")] == ["0-live", "0-new"]


# -- where nothing is watched, and nothing happens -----------------------------------------------------------


def resting(following: Following) -> tuple[FollowerSession, FollowerSession]:
    """An elder that published that it rests, and a younger on standby."""
    elder, younger = overlapping(following)
    following.turn(elder, younger, ms=cadence.RESTS_AFTER.ms)
    following.turn(elder, younger, ms=2_000)
    return elder, younger


def published(following: Following, name: str) -> str:
    return writer_state(following.stores.objects("broker-2").get_register(progress_path(name)))


def test_a_session_without_work_rests_until_something_is_copied() -> None:
    following = Following()
    elder, younger = resting(following)
    assert (published(following, "elder"), elder.state, younger.state) == (RESTING, ACTIVE, STANDBY)
    following.leader_writes("a")
    following.turn(elder, younger, ms=100)
    assert published(following, "elder") == ACTIVE
    assert values(following.log(2)) == "a"


def test_a_session_rests_until_metadata_change() -> None:
    following = Following()
    elder, younger = resting(following)
    commit(following.metadata, ConfigRecord("t", "retention.ms", "1000"))
    following.turn(elder, younger, ms=CONFIG.stratalog_metadata_poll_max_ms)
    assert published(following, "elder") == ACTIVE


def test_a_resting_session_is_waited_for_longer() -> None:
    following = Following()
    _, younger = resting(following)
    following.turn(younger, ms=cadence.RESTING_SILENCE.ms - 1_500)
    assert younger.state == STANDBY
    following.turn(younger, ms=3_000)
    assert younger.state == ACTIVE


class _Counting(MemoryStore):
    """Counts calls by name."""

    calls: Counter[str]

    def put(self, path: str, data: bytes) -> None:
        self.calls["put"] += 1
        super().put(path, data)

    def get_optional(self, path: str) -> bytes | None:
        self.calls["get"] += 1
        return super().get_optional(path)

    def list(self, prefix: str) -> list[ObjectMeta]:
        self.calls["list"] += 1
        return super().list(prefix)


def test_sessions_without_work_write_and_list_a_third_as_often() -> None:
    following = Following()
    counting = following.stores.stores["broker-2"] = _Counting({}, following.stores.clock.wall_ms, "broker-2")
    counting.calls = Counter()
    elder, younger = overlapping(following)
    counts = []
    for _ in range(2):
        before = counting.calls.copy()
        following.turn(elder, younger, ms=6_000)
        counts.append(counting.calls - before)
        following.turn(elder, younger, ms=cadence.RESTS_AFTER.ms)
    busy, idle = counts
    assert all(3 * idle[each] < busy[each] for each in ("get", "list", "put")), counts
