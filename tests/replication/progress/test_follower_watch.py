"""A leader reads its followers' progress: only of their present registration, through sessions that come and go."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stratalog.replication import cadence
from stratalog.replication.metadata.image import BrokerState
from stratalog.replication.metadata.records import RegisterBrokerRecord
from stratalog.replication.progress.follower_watch import FollowerWatch
from stratalog.replication.progress.progress import (
    ENDED,
    ReplicaProgress,
    fetch_progress_path,
    follower_progress_path,
    full_state_path,
)
from stratalog.replication.progress.progress_object import ProgressWriter
from stratalog.storage.errors import StoreUnavailableError
from stratalog.storage.objects.wakeup import Wakeup
from stratalog.storage.records import TopicPartition
from tests.replication.memory_stores import MemoryStores
from tests.storage.logs import FakeClock

T0 = TopicPartition("t", 0)


def broker(broker_id: int, broker_epoch: int) -> BrokerState:
    return BrokerState(RegisterBrokerRecord(broker_id, broker_epoch, f"run-{broker_epoch}", f"broker-{broker_id}"))


def progress(end: int) -> ReplicaProgress:
    return ReplicaProgress(T0, 0, end, version=end)


class Watched:
    """Broker 1 watches brokers 2 (epoch 12) and 3 (epoch 13)."""

    def __init__(self) -> None:
        self.stores = MemoryStores()
        self.watch = FollowerWatch(1, self.stores.ports(), Wakeup(self.stores.clock))
        self.brokers = {i: broker(i, 10 + i) for i in (1, 2, 3)}
        self.watch.update_brokers(self.brokers)

    def session(self, broker_id: int, name: str, broker_epoch: int | None = None) -> ProgressWriter:
        epoch = broker_epoch or 10 + broker_id
        writer = ProgressWriter(self.stores.objects(f"broker-{broker_id}"), follower_progress_path(epoch, 1, name))
        writer.publish()
        return writer

    def heard(self, now_ms: int) -> list[tuple[int, int]]:
        """`(follower, log end)` of what moved."""
        return [(i, p.log_end_offset) for i, p in self.watch.poll(now_ms)]


def publish(writer: ProgressWriter, end: int) -> None:
    writer.update([progress(end)])
    writer.publish()


def test_only_what_moved_is_heard() -> None:
    watched = Watched()
    two, three = watched.session(2, "a"), watched.session(3, "a")
    publish(two, 5)
    publish(three, 4)
    assert watched.heard(0) == [(2, 5), (3, 4)]
    assert watched.heard(1) == []
    publish(three, 6)
    assert watched.heard(2) == [(3, 6)]


@pytest.mark.parametrize("away", [2, 3])
def test_a_follower_whose_storage_is_away_silences_no_other_and_is_heard_again(
    away: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was read before the failure counts, and what could not be read is read later."""
    watched = Watched()
    writers = {i: watched.session(i, "a") for i in (2, 3)}
    watched.heard(0)
    for writer in writers.values():
        publish(writer, 5)
    lost = watched.stores.objects(f"broker-{away}")

    def out_of_reach(path: str) -> bytes | None:
        raise StoreUnavailableError(f"{path} is out of reach")

    with monkeypatch.context() as cut:
        cut.setattr(lost, "get_optional", out_of_reach)
        assert watched.heard(1) == [(5 - away, 5)]
    assert watched.heard(1 + cadence.FOLLOWER_ROOT_RETRY.first_ms) == [(away, 5)]


def test_everything_known_is_there_for_a_partition_that_just_began_to_lead() -> None:
    watched = Watched()
    publish(watched.session(2, "a"), 5)
    watched.heard(0)
    assert [(i, p.log_end_offset) for i, p in watched.watch.known(T0)] == [(2, 5)]


def test_a_new_session_is_found_at_the_next_listing() -> None:
    watched = Watched()
    watched.session(2, "a")
    watched.heard(0)
    publish(watched.session(2, "b"), 7)
    assert watched.heard(cadence.SESSIONS_LISTED.shortest_ms - 1) == []
    assert watched.heard(cadence.SESSIONS_LISTED.shortest_ms) == [(2, 7)]


@pytest.mark.parametrize("delay_ms", [1, cadence.SESSIONS_LISTED.shortest_ms])
def test_when_a_session_ends_its_successor_is_looked_for_at_once(delay_ms: int) -> None:
    watched = Watched()
    elder = watched.session(2, "a")
    watched.heard(0)
    elder.state = ENDED
    elder.publish()
    publish(watched.session(2, "b"), 7)
    assert watched.heard(delay_ms) == [(2, 7)]


def test_that_another_session_stands_by_does_not_delay_it() -> None:
    watched = Watched()
    elder, _ = watched.session(2, "a"), watched.session(2, "b")
    watched.heard(0)
    elder.state = ENDED
    elder.publish()
    publish(watched.session(2, "c"), 7)
    assert watched.heard(1) == [(2, 7)]


def test_with_no_session_left_it_is_listed_at_every_look() -> None:
    watched = Watched()
    elder = watched.session(2, "a")
    elder.state = ENDED
    elder.publish()
    watched.heard(0)
    publish(watched.session(2, "b"), 7)
    assert watched.heard(1) == [(2, 7)]


def test_progress_of_an_older_registration_does_not_count() -> None:
    """Promise 13: what the earlier life had copied may be gone."""
    watched = Watched()
    elder = watched.session(2, "a")
    publish(elder, 9)
    watched.heard(0)
    assert watched.watch.update_brokers({**watched.brokers, 2: broker(2, 22)}) == [2]
    publish(elder, 10)
    assert watched.heard(1) == []
    assert list(watched.watch.known(T0)) == []
    publish(watched.session(2, "a", broker_epoch=22), 3)
    assert watched.heard(cadence.SESSIONS_LISTED.shortest_ms + 1) == [(2, 3)]
    assert watched.watch.broker_epochs() == {2: 22, 3: 13}


def test_who_came_up_anew_is_told_once_and_never_oneself() -> None:
    watch = FollowerWatch(1, MemoryStores().ports(), Wakeup(FakeClock()))
    brokers = {1: broker(1, 11), 2: broker(2, 12)}
    assert watch.update_brokers(brokers) == [2]
    assert watch.update_brokers(brokers) == []
    assert watch.update_brokers({**brokers, 1: broker(1, 30)}) == []
    assert watch.broker_epochs() == {2: 12}


def test_of_a_fenced_broker_nothing_counts_until_it_registers_anew() -> None:
    """Its leaders may go on in the same leader epoch (decision 0142)."""
    watched = Watched()
    session = watched.session(2, "a")
    publish(session, 9)
    watched.heard(0)
    fenced = {**watched.brokers, 2: replace(broker(2, 12), fenced=True)}
    assert watched.watch.update_brokers(fenced) == [2]
    assert watched.watch.update_brokers(fenced) == []
    publish(session, 10)
    assert watched.heard(cadence.SESSIONS_LISTED.shortest_ms + 1) == []
    assert list(watched.watch.known(T0)) == []
    assert watched.watch.broker_epochs() == {3: 13}
    recovering = {**watched.brokers, 2: replace(broker(2, 21), fenced=True)}
    assert watched.watch.update_brokers(recovering) == []
    assert watched.watch.update_brokers({**watched.brokers, 2: broker(2, 22)}) == [2]
    publish(watched.session(2, "a", broker_epoch=22), 3)
    assert watched.heard(2 * cadence.SESSIONS_LISTED.shortest_ms + 2) == [(2, 3)]


def test_a_broker_that_is_gone_is_forgotten() -> None:
    watched = Watched()
    publish(watched.session(2, "a"), 5)
    watched.heard(0)
    watched.watch.update_brokers({1: broker(1, 11)})
    assert list(watched.watch.known(T0)) == []


def test_leaders_objects_full_states_and_the_stop_sign_are_not_sessions() -> None:
    watched = Watched()
    objects = watched.stores.objects("broker-2")
    others = (
        fetch_progress_path(12, "a"),
        follower_progress_path(12, 3, "a"),
        full_state_path(follower_progress_path(12, 1, "a")),
    )
    for path in ("progress/12/leader", "progress/12/stop", *others):
        objects.put(path, b"{}")
    assert watched.heard(0) == []


def test_a_session_whose_object_was_deleted_is_dropped() -> None:
    watched = Watched()
    publish(watched.session(2, "a"), 5)
    watched.heard(0)
    watched.stores.objects("broker-2").delete(follower_progress_path(12, 1, "a"))
    watched.heard(cadence.SESSIONS_LISTED.shortest_ms)
    assert list(watched.watch.known(T0)) == []
