"""Brokers die, return and leave: who leads, who is in sync, and that no acknowledged record is risked."""

from __future__ import annotations

import pytest

from stratalog.replication.controller.brokers import (
    FoundRoot,
    fence_brokers,
    give_up_broker,
    online_partitions,
    register_broker,
    shut_down_broker,
)
from stratalog.replication.metadata.records import (
    ControllerRecord,
    FenceBrokerRecord,
    PartitionRecord,
    RegisterBrokerRecord,
)
from stratalog.storage.errors import (
    DuplicateBrokerRegistrationError,
    InvalidRequestError,
    StaleBrokerEpochError,
    StratalogError,
)
from stratalog.storage.records import TopicPartition
from tests.replication.images import TOPIC, brief, commit, image_of, partition, state

# -- broker failure --------------------------------------------------------------------------------------

FAILOVER = [
    # replicas, leader, isr, dead, unclean -> leader, isr, leader epoch
    pytest.param((1, 2, 3), 1, (1, 2, 3), {1}, False, (2, (2, 3), 6), id="a surviving member leads"),
    pytest.param((1, 2, 3), 1, (1, 3), {1}, False, (3, (3,), 6), id="not the replica out of sync"),
    pytest.param((1, 2, 3), 1, (1, 2, 3), {2}, False, (1, (1, 3), 5), id="a follower leaves the ISR"),
    pytest.param((1, 2, 3), 1, (1, 2, 3), {2, 3}, False, (1, (1,), 5), id="the leader is left alone"),
    pytest.param((1, 2, 3), 1, (1,), {1}, False, (-1, (1,), 6), id="offline, the ISR stays"),
    pytest.param((1, 2, 3), 1, (1,), {1}, True, (2, (2,), 6), id="unclean"),
    pytest.param((1, 2, 3), 1, (1, 2), {1, 2, 3}, True, (-1, (1, 2), 6), id="all dead at once: the ISR stays"),
    pytest.param((1, 2, 3), 1, (1, 2), {1, 2}, False, (-1, (1, 2), 6), id="both members at once"),
    pytest.param((1, 2, 3), 1, (1, 2), {3}, False, (1, (1, 2), 5), id="a replica out of sync changes nothing"),
    pytest.param((1, 2), 1, (1, 2), {3}, False, (1, (1, 2), 5), id="not its partition"),
]


@pytest.mark.parametrize(("replicas", "leader", "isr", "dead", "unclean", "expected"), FAILOVER)
def test_failover(
    replicas: tuple[int, ...],
    leader: int,
    isr: tuple[int, ...],
    dead: set[int],
    unclean: bool,
    expected: tuple[int, tuple[int, ...], int],
) -> None:
    image = image_of([1, 2, 3], partition(replicas, leader, isr))
    fenced = commit(image, fence_brokers(image, {i: 10 + i for i in dead}, lambda topic: unclean))
    assert set(fenced) == dead
    assert set(image.live_brokers()) == {1, 2, 3} - dead
    assert brief(state(image)) == expected
    assert state(image).unclean == (unclean and expected[1] == (2,))


@pytest.mark.parametrize(
    ("leader", "isr", "others_fenced", "epoch", "expected"),
    [
        pytest.param(1, (1, 2, 3), (), 11, (2, (2, 3), 6), id="a member of the ISR leads"),
        pytest.param(2, (1, 2, 3), (), 11, (2, (2, 3), 5), id="it leaves the ISR as a follower"),
        pytest.param(1, (1,), (), 11, (-1, (1,), 6), id="the last member of the ISR stays in it"),
        pytest.param(1, (1, 2), (2,), 11, (-1, (1, 2), 6), id="another broker is live, but none in the ISR"),
        pytest.param(1, (1, 2, 3), (2, 3), 11, None, id="the only live broker stays"),
        pytest.param(1, (1, 2, 3), (), 10, None, id="of an earlier registration"),
    ],
)
def test_a_broker_whose_own_root_is_dead_gives_up_what_it_leads(
    leader: int,
    isr: tuple[int, ...],
    others_fenced: tuple[int, ...],
    epoch: int,
    expected: tuple[int, tuple[int, ...], int] | None,
) -> None:
    image = image_of([1, 2, 3], partition((1, 2, 3), leader, isr), fenced=dict.fromkeys(others_fenced, False))
    decision = give_up_broker(image, 1, epoch)
    if expected is None:
        assert (decision.records, decision.response) == ((), ())
        return
    assert commit(image, decision) == (1,)
    assert not image.is_live(1)
    assert not image.brokers[1].clean_shutdown, "its root may lack what it acknowledged"
    assert brief(state(image)) == expected
    assert give_up_broker(image, 1, epoch).records == (), "decided again, it changes nothing"


def test_a_partitions_state_is_written_as_kafka_wrote_it_in_zookeeper() -> None:
    # as in ZooKeeper: {"controller_epoch":1272,"leader":0,"version":1,"leader_epoch":4,"isr":[0,2]}
    image = image_of([0, 1, 2], partition((1, 0, 2), 1, (1, 0, 2), leader_epoch=3))
    image = image.fold(ControllerRecord(0, 1272))
    commit(image, fence_brokers(image, {1: 11}))
    assert state(image).state_json() == (
        '{"controller_epoch":1272,"leader":0,"version":1,"leader_epoch":4,"isr":[0,2]}'
    )


def test_eight_brokers_of_which_three_are_stopped() -> None:
    # Brokers 1, 2 and 4 stop. Partition 2 keeps its live leader 3. Partition 3 takes 6, the first of the assigned
    # replicas, as in Kafka since 2.4; before, it took 7, the first of the ISR.
    before = [
        ((1, 3, 4), (1, 3, 4)), ((2, 4, 5), (2, 4, 5)), ((3, 5, 6), (5, 3, 6)), ((4, 6, 7), (4, 7, 6)),
        ((5, 7, 0), (5, 7, 0)), ((6, 0, 1), (0, 6, 1)), ((7, 1, 2), (7, 1, 2)), ((0, 2, 3), (0, 2, 3)),
    ]  # fmt: skip
    states = [partition(replicas, replicas[0], isr, number=i) for i, (replicas, isr) in enumerate(before)]
    image = image_of(range(8), *states)
    decision = fence_brokers(image, {1: 11, 2: 12, 4: 14})
    assert sum(isinstance(r, PartitionRecord) for r in decision.records) == 6, "partitions 2 and 4 are untouched"
    commit(image, decision)
    assert [brief(state(image, i))[:2] for i in range(8)] == [
        (3, (3,)), (5, (5,)), (3, (5, 3, 6)), (6, (7, 6)), (5, (5, 7, 0)), (6, (0, 6)), (7, (7,)), (0, (0, 3)),
    ]  # fmt: skip


def test_a_broker_that_registered_anew_or_is_fenced_is_not_fenced_again() -> None:
    image = image_of([1, 2, 3], partition((1, 2), 1, (1, 2)), fenced={3: False})
    decision = fence_brokers(image, {1: 10, 3: 13, 9: 1})
    assert (decision.records, decision.response) == ((), ())


def test_deciding_a_failover_again_does_nothing() -> None:
    image = image_of([1, 2], partition((1, 2), 1, (1, 2)))
    commit(image, fence_brokers(image, {1: 11}))
    assert fence_brokers(image, {1: 11}).records == ()


def test_unclean_election_is_a_topics_own_choice() -> None:
    image = image_of([1, 2], partition((1, 2), 1, (1,)))
    assert len(fence_brokers(image, {1: 11}, lambda topic: topic != TOPIC).records) == 2
    commit(image, fence_brokers(image, {1: 11}, lambda topic: topic == TOPIC))
    assert (brief(state(image)), state(image).unclean) == ((2, (2,), 6), 1)


# -- partitions that wait --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("leader", "isr", "fenced", "unclean", "expected"),
    [
        (-1, (2,), {}, False, (2, (2,), 6)),
        (-1, (1, 2), {1: False}, False, (2, (2,), 6)),
        (-1, (1,), {1: False}, False, (-1, (1,), 5)),
        (-1, (1,), {1: False}, True, (2, (2,), 6)),
        (1, (1, 2), {1: False}, False, (2, (2,), 6)),  # a fenced leader that nobody has replaced
        (1, (1,), {1: False}, False, (-1, (1,), 6)),
        (1, (1, 2), {}, True, (1, (1, 2), 5)),
    ],
)
def test_waiting_partitions_get_a_leader_when_one_can_lead(
    leader: int, isr: tuple[int, ...], fenced: dict[int, bool], unclean: bool, expected: tuple[int, object, int]
) -> None:
    image = image_of([1, 2, 3], partition((1, 2, 3), leader, isr), fenced=fenced)
    elected = commit(image, online_partitions(image, lambda topic: unclean))
    assert brief(state(image)) == expected
    assert elected == ((TopicPartition(TOPIC, 0),) if expected[0] != leader and expected[0] != -1 else ())
    assert online_partitions(image, lambda topic: unclean).records == ()


# -- registration (promise 13, KIP-380, KIP-966) ---------------------------------------------------------

RESTART = [
    # leader, isr, fenced -> leader, isr, leader epoch, when broker 1 comes up as a new process
    pytest.param(1, (1, 2), {}, (2, (2,), 6), id="quick restart: may have lost its log, the other leads"),
    pytest.param(1, (1,), {}, (1, (1,), 6), id="alone in the ISR: leads on under a new epoch"),
    pytest.param(2, (1, 2), {}, (2, (2,), 5), id="a follower leaves the ISR until it has caught up"),
    pytest.param(2, (2, 3), {}, (2, (2, 3), 5), id="was out of sync: nothing changes"),
    pytest.param(-1, (1,), {1: False}, (-1, (1,), 5), id="waited for: stays in the ISR, led by online_partitions"),
    pytest.param(-1, (1, 2), {1: False, 2: False}, (-1, (2,), 6), id="both died: the other one may know more"),
    pytest.param(-1, (1, 2), {1: True, 2: False}, (-1, (1, 2), 5), id="stopped cleanly: stays"),
    pytest.param(1, (1, 2), {2: False}, (-1, (2,), 6), id="the other member is fenced: offline, not unsafe"),
]


@pytest.mark.parametrize(("leader", "isr", "fenced", "expected"), RESTART)
def test_restart(leader: int, isr: tuple[int, ...], fenced: dict[int, bool], expected: tuple[int, object, int]) -> None:
    image = image_of([1, 2, 3], partition((1, 2, 3), leader, isr), fenced=fenced)
    found = FoundRoot(previous_broker_epoch=11)  # the mark counts only after a clean stop of that registration
    decision = register_broker(image, 1, "run-1b", "/data/1", rack="r", endpoint="h:9092", found=found)
    assert decision.records[0] == RegisterBrokerRecord(1, 14, "run-1b", "/data/1", rack="r", endpoint="h:9092")
    assert commit(image, decision) == 14
    assert image.is_current(1, 14)
    assert not image.is_current(1, 11)
    assert brief(state(image)) == expected


def test_a_new_broker_touches_no_partition() -> None:
    image = image_of([1, 2], partition((1, 2), 1, (1, 2)))
    assert register_broker(image, 3, "run-3", "/data/3").records == (RegisterBrokerRecord(3, 13, "run-3", "/data/3"),)


def test_broker_epochs_never_repeat_over_all_brokers() -> None:
    image = image_of([])
    epochs = [commit(image, register_broker(image, i % 2, f"run-{i}", f"/data/{i % 2}")) for i in range(6)]
    assert epochs == [1, 2, 3, 4, 5, 6]


def test_registering_again_after_a_lost_answer_is_the_same_success() -> None:
    image = image_of([1, 2], partition((1, 2), 1, (1, 2)))
    again = register_broker(image, 1, "run-1", "/data/1")
    assert (again.records, again.response) == ((), 11)


def test_a_process_that_was_only_fenced_keeps_its_place_in_the_isr() -> None:
    image = image_of([1, 2], partition((1, 2), -1, (1, 2)), fenced={1: False, 2: False})
    assert commit(image, register_broker(image, 1, "run-1", "/data/1")) == 13
    assert commit(image, online_partitions(image)) == (TopicPartition(TOPIC, 0),)
    assert brief(state(image)) == (1, (1,), 6)


def test_a_clean_stop_does_not_count_on_another_root() -> None:
    image = image_of([1, 2], partition((1, 2), -1, (1, 2)), fenced={1: True, 2: False})
    commit(image, register_broker(image, 1, "run-1b", "/new/1", found=FoundRoot(11)))
    assert brief(state(image)) == (-1, (2,), 6)


@pytest.mark.parametrize(
    ("broker_id", "root", "fenced", "error"),
    [
        (1, "/other/1", {}, DuplicateBrokerRegistrationError),
        (3, "/data/2", {}, InvalidRequestError),
        (3, "/data/2/", {}, InvalidRequestError),
        (3, "/data/2", {2: True}, InvalidRequestError),  # a stopped broker's data is still its own
        (-1, "/data/9", {}, InvalidRequestError),
    ],
)
def test_brokers_never_share_an_id_or_a_root(
    broker_id: int, root: str, fenced: dict[int, bool], error: type[StratalogError]
) -> None:
    with pytest.raises(error):
        register_broker(image_of([1, 2], fenced=fenced), broker_id, "new", root)


def test_a_fenced_broker_may_move_to_another_root() -> None:
    image = image_of([1, 2], fenced={1: True})
    commit(image, register_broker(image, 1, "new", "/other/1"))
    assert image.brokers[1].registration.root == "/other/1"


# -- controlled shutdown ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("leader", "isr", "fenced", "expected", "remains"),
    [
        (1, (1, 2, 3), {}, (2, (2, 3), 6), False),
        (2, (1, 2, 3), {}, (2, (2, 3), 5), False),
        (2, (2, 3), {}, (2, (2, 3), 5), False),
        (1, (1,), {}, (-1, (1,), 6), True),
        (1, (1, 3), {3: False}, (-1, (1, 3), 6), True),
    ],
)
def test_controlled_shutdown(
    leader: int, isr: tuple[int, ...], fenced: dict[int, bool], expected: tuple[int, object, int], remains: bool
) -> None:
    image = image_of([1, 2, 3], partition((1, 2, 3), leader, isr), fenced=fenced)
    decision = shut_down_broker(image, 1, 11)
    assert decision.records[-1] == FenceBrokerRecord(1, 11, clean=True)
    remaining = commit(image, decision)
    assert remaining == ((TopicPartition(TOPIC, 0),) if remains else ())
    assert brief(state(image)) == expected
    assert image.brokers[1].clean_shutdown
    again = shut_down_broker(image, 1, 11)
    assert (again.records, again.response) == ((), remaining)


def test_a_clean_stop_of_the_last_member_and_its_return_lose_nothing() -> None:
    image = image_of([1, 2], partition((1, 2), 1, (1,)))
    commit(image, shut_down_broker(image, 1, 11))
    commit(image, register_broker(image, 1, "run-1b", "/data/1", found=FoundRoot(11)))
    commit(image, online_partitions(image))
    assert brief(state(image)) == (1, (1,), 7)
    assert state(image).unclean == 0


@pytest.mark.parametrize(("broker_id", "broker_epoch", "fenced"), [(1, 10, {}), (1, 11, {1: False}), (9, 1, {})])
def test_only_the_current_registration_shuts_down(broker_id: int, broker_epoch: int, fenced: dict[int, bool]) -> None:
    with pytest.raises(StaleBrokerEpochError):
        shut_down_broker(image_of([1, 2], fenced=fenced), broker_id, broker_epoch)
