"""Elections on request, and the balance of leaders over brokers (KIP-460)."""

from __future__ import annotations

import pytest

from stratalog.replication.controller.brokers import IsrChange, alter_partition, fence_brokers, register_broker
from stratalog.replication.controller.election.preferred_leaders import (
    BrokerBalance,
    ElectionType,
    elect_leaders,
    leader_balance,
    rebalance_leaders,
)
from stratalog.replication.metadata.image import ClusterImage
from stratalog.replication.metadata.records import PartitionRecord
from stratalog.storage.errors import (
    ElectionNotNeededError,
    EligibleLeadersNotAvailableError,
    PreferredLeaderNotAvailableError,
    StratalogError,
    UnknownTopicOrPartitionError,
)
from stratalog.storage.records import TopicPartition
from tests.replication.images import TOPIC, brief, broker_epochs_of, commit, image_of, partition, state

PREFERRED, UNCLEAN = ElectionType.PREFERRED, ElectionType.UNCLEAN
P0 = TopicPartition(TOPIC, 0)

ELECTIONS = [
    # kind, partition, fenced -> leader, isr, leader epoch, or the error
    pytest.param(PREFERRED, partition((1, 2), 2, (2, 1)), (), (1, (2, 1), 6), id="the preferred replica leads again"),
    pytest.param(PREFERRED, partition((1, 2), 1, (1, 2)), (), ElectionNotNeededError, id="it leads"),
    pytest.param(PREFERRED, partition((1, 2), 2, (2,)), (), PreferredLeaderNotAvailableError, id="it is not in sync"),
    pytest.param(
        PREFERRED,
        partition((1, 2), 2, (2,), elr=(1,)),
        (),
        PreferredLeaderNotAvailableError,
        id="nor if it is eligible",
    ),
    pytest.param(PREFERRED, partition((1, 2), 2, (2, 1)), (1,), PreferredLeaderNotAvailableError, id="it is not live"),
    pytest.param(PREFERRED, partition((1, 2), -1, (1, 2)), (2,), (1, (1, 2), 6), id="nobody leads"),
    pytest.param(UNCLEAN, partition((1, 2), 2, (2,)), (), ElectionNotNeededError, id="somebody leads"),
    pytest.param(UNCLEAN, partition((1, 2), -1, (1,)), (1,), (2, (2,), 6), id="whoever is live"),
    pytest.param(UNCLEAN, partition((1, 2), -1, (1, 2)), (1,), (2, (2,), 6), id="one of the ISR: that is clean"),
    pytest.param(UNCLEAN, partition((1, 2), -1, (1,)), (1, 2), EligibleLeadersNotAvailableError, id="nobody is live"),
]


@pytest.mark.parametrize(("election_type", "before", "fenced", "expected"), ELECTIONS)
def test_an_election_is_won_or_answered_with_its_error(
    election_type: ElectionType,
    before: PartitionRecord,
    fenced: tuple[int, ...],
    expected: tuple[int, tuple[int, ...], int] | type[StratalogError],
) -> None:
    image = image_of([1, 2], before, fenced=dict.fromkeys(fenced, False), min_isr=2)
    answers = commit(image, elect_leaders(image, election_type, [P0]))
    if isinstance(expected, tuple):
        assert (answers, brief(state(image))) == ({P0: None}, expected)
    else:
        assert [type(error) for error in answers.values()] == [expected]
        assert state(image) == before
    assert state(image).unclean == (before.isr == (1,) and expected == (2, (2,), 6))


def test_an_error_gives_the_values_that_were_compared() -> None:
    image = image_of([1, 2, 3], partition((1, 2), 2, (2,)), fenced={1: False})
    answer = elect_leaders(image, PREFERRED, [P0]).response[P0]
    assert str(answer) == (
        "Failed to elect leader for partition orders-0: replicas [1, 2], ISR [2], live brokers [2, 3]"
    )
    assert answer is not None
    assert (answer.code, answer.retriable, answer.name) == (80, True, "PREFERRED_LEADER_NOT_AVAILABLE")


def test_partitions_are_decided_each_for_itself_and_in_one_commit() -> None:
    image = image_of(
        [1, 2],
        partition((1, 2), 2, (1, 2)),
        partition((1, 2), 1, (1, 2), number=1),
        partition((2, 1), 1, (1, 2), number=2),
    )
    asked = [P0, TopicPartition(TOPIC, 1), TopicPartition(TOPIC, 9), TopicPartition("gone", 0), P0]
    decision = elect_leaders(image, PREFERRED, asked)
    answers = commit(image, decision)
    assert len(decision.records) == 1
    assert {named: error and (type(error), str(error)) for named, error in answers.items()} == {
        P0: None,
        TopicPartition(TOPIC, 1): (ElectionNotNeededError, "Leader election not needed for orders-1: broker 1 leads"),
        TopicPartition(TOPIC, 9): (UnknownTopicOrPartitionError, "No such partition as orders-9"),
        TopicPartition("gone", 0): (UnknownTopicOrPartitionError, "No such topic as gone"),
    }


def test_asked_for_all_those_that_need_no_election_are_left_out() -> None:
    image = image_of([1, 2], partition((1, 2), 2, (1, 2)), partition((1, 2), 1, (1, 2), number=1))
    assert commit(image, elect_leaders(image, PREFERRED)) == {P0: None}
    assert elect_leaders(image, PREFERRED).response == {}


# -- the balance -----------------------------------------------------------------------------------------


def leaders(image: ClusterImage) -> list[int]:
    return [image.partitions[named].leader for named in image.partitions_of(TOPIC)]


def imbalances(image: ClusterImage) -> dict[int, float]:
    return {broker_id: balance.imbalance_percentage for broker_id, balance in leader_balance(image).items()}


def in_sync(image: ClusterImage, broker_id: int) -> None:
    """The broker is back and has caught up everywhere."""
    commit(image, register_broker(image, broker_id, f"run-{broker_id}", f"/data/{broker_id}"))
    for now in list(image.partitions.values()):
        if broker_id in now.replicas and broker_id not in now.isr:
            isr = (*now.isr, broker_id)
            epochs = broker_epochs_of(image)
            change = IsrChange(
                image.identified(now.topic_partition), now.leader_epoch, now.partition_epoch, isr, epochs
            )
            commit(image, alter_partition(image, now.leader, epochs[now.leader], [change]))


ARTICLE = [(1, 3, 4), (2, 4, 5), (3, 5, 6), (4, 6, 7), (5, 7, 0), (6, 0, 1), (7, 1, 2), (0, 2, 3)]
"""Eight brokers, eight partitions, three replicas."""


def test_eight_brokers_of_which_three_are_stopped_and_come_back() -> None:
    states = [partition(replicas, replicas[0], replicas, number=i) for i, replicas in enumerate(ARTICLE)]
    image = image_of(range(8), *states)
    assert imbalances(image) == dict.fromkeys(range(8), 0)

    commit(image, fence_brokers(image, {1: 11, 2: 12, 4: 14}))
    assert leaders(image) == [3, 5, 3, 6, 5, 6, 7, 0]
    assert imbalances(image) == {0: 0, 1: 100, 2: 100, 3: 0, 4: 100, 5: 0, 6: 0, 7: 0}

    in_sync(image, 1)
    assert leaders(image) == [3, 5, 3, 6, 5, 6, 7, 0], "broker 1 is back and leads nothing"
    answers = commit(image, elect_leaders(image, PREFERRED))
    assert leaders(image) == [1, 5, 3, 6, 5, 6, 7, 0]
    assert {named.partition: error and error.name for named, error in answers.items()} == {
        0: None, 1: "PREFERRED_LEADER_NOT_AVAILABLE", 3: "PREFERRED_LEADER_NOT_AVAILABLE",
    }  # fmt: skip

    in_sync(image, 2)
    in_sync(image, 4)
    assert leaders(image) == [1, 5, 3, 6, 5, 6, 7, 0], "they are back: nothing changes"
    assert commit(image, elect_leaders(image, PREFERRED)) == {
        TopicPartition(TOPIC, 1): None,
        TopicPartition(TOPIC, 3): None,
    }
    assert leaders(image) == [1, 2, 3, 4, 5, 6, 7, 0]
    assert imbalances(image) == dict.fromkeys(range(8), 0)


def test_the_controller_does_the_same_by_itself() -> None:
    states = [partition(replicas, replicas[0], replicas, number=i) for i, replicas in enumerate(ARTICLE)]
    image = image_of(range(8), *states)
    commit(image, fence_brokers(image, {1: 11, 2: 12, 4: 14}))
    assert rebalance_leaders(image, 10).records == (), "whoever is down waits for the next look"
    for broker_id in (1, 2, 4):
        in_sync(image, broker_id)
    moved = commit(image, rebalance_leaders(image, 10))
    assert [named.partition for named in moved] == [0, 1, 3]
    assert leaders(image) == [1, 2, 3, 4, 5, 6, 7, 0]
    assert rebalance_leaders(image, 10).records == ()


def ten_partitions(led_by_others: int) -> ClusterImage:
    """Broker 1 is preferred for ten partitions, broker 2 leads some of them."""
    return image_of([1, 2], *(partition((1, 2), 2 if i < led_by_others else 1, (1, 2), number=i) for i in range(10)))


@pytest.mark.parametrize(
    ("led_by_others", "percentage_max", "moves"), [(0, 10, 0), (1, 10, 0), (2, 10, 2), (5, 50, 0), (10, 99, 10)]
)
def test_leaders_move_when_the_imbalance_is_above_the_percentage(
    led_by_others: int, percentage_max: int, moves: int
) -> None:
    image = ten_partitions(led_by_others)
    assert imbalances(image) == {1: 10 * led_by_others}
    assert len(commit(image, rebalance_leaders(image, percentage_max))) == moves


def test_a_look_moves_a_bounded_number_and_the_next_one_goes_on() -> None:
    image = ten_partitions(10)
    assert len(commit(image, rebalance_leaders(image, 10, elections_max=6))) == 6
    assert len(commit(image, rebalance_leaders(image, 10, elections_max=6))) == 4


def test_a_partition_without_a_leader_and_one_that_is_being_reassigned_stay() -> None:
    moving = PartitionRecord(TOPIC, 1, (1, 2, 3), 2, 5, (1, 2), 9, 3, adding=(3,))
    image = image_of([1, 2, 3], partition((1, 2), -1, (2,)), moving)
    assert leader_balance(image) == {1: BrokerBalance(2, (TopicPartition(TOPIC, 1),))}
    assert rebalance_leaders(image, 10).records == ()
