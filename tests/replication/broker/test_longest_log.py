"""After a loss of power of a whole ISR: which log is the longest, and who leads."""

from __future__ import annotations

from itertools import permutations, product

import pytest

from stratalog.replication.broker.leadership.longest_log import (
    OWN_LEADS,
    WAITS,
    Comparison,
    Life,
    LongestLog,
    Others,
    longest_of,
    others_of,
    unsure_of,
)
from stratalog.replication.controller.brokers import (
    LongerLog,
    fence_brokers,
    hand_to_longer_log,
    register_broker,
    shut_down_broker,
)
from stratalog.replication.metadata.image import Result
from stratalog.replication.metadata.records import NO_LEADER
from stratalog.replication.metadata.state_changes import check_transitions
from stratalog.storage.errors import StaleBrokerEpochError
from stratalog.storage.log.leader_epochs import NO_LOG, LogEnd
from stratalog.storage.records import IdentifiedPartition, TopicPartition
from tests.replication.images import TOPIC, GrowingImage, brief, commit, image_of, partition, state

T0 = TopicPartition(TOPIC, 0)
NAMED = IdentifiedPartition("id-orders", T0)
ENDS = [
    pytest.param({}, LogEnd(5, 100), None, id="nobody else"),
    pytest.param({1: LogEnd(5, 101)}, LogEnd(5, 100), 1, id="the greater offset"),
    pytest.param({1: LogEnd(5, 100)}, LogEnd(5, 100), None, id="equal: the own one"),
    pytest.param({1: LogEnd(6, 80)}, LogEnd(5, 100), 1, id="the greater epoch first"),
    pytest.param({1: LogEnd(4, 200)}, LogEnd(5, 100), None, id="an older epoch, though with more records"),
    pytest.param({1: LogEnd(5, 101), 2: LogEnd(5, 102)}, LogEnd(5, 100), 2, id="the longest of several"),
    pytest.param({1: LogEnd(5, 101), 2: LogEnd(5, 101)}, LogEnd(5, 100), 1, id="of equal ones the first"),
    pytest.param({1: NO_LOG, 2: NO_LOG}, NO_LOG, None, id="all are empty"),
    pytest.param({1: NO_LOG}, LogEnd(0, 1), None, id="a wiped replica"),
    pytest.param({1: LogEnd(0, 1)}, NO_LOG, 1, id="the own one kept nothing"),
]


@pytest.mark.parametrize(("ends", "own", "longest"), ENDS)
def test_the_longest_log(ends: dict[int, LogEnd], own: LogEnd, longest: int | None) -> None:
    found = longest_of(own, {Life(broker_id, 10 + broker_id): end for broker_id, end in ends.items()})
    assert (None if found is None else found.broker_id) == longest


def test_no_two_brokers_hand_a_partition_to_each_other() -> None:
    """Whoever begins, a partition is handed on once at most, and ends with a longest log."""
    some = [NO_LOG, LogEnd(0, 1), LogEnd(0, 2), LogEnd(1, 1), LogEnd(1, 3)]
    for first, *ends in product((1, 2, 3), some, some, some):
        logs = dict(zip((1, 2, 3), ends, strict=True))
        leads = [first]
        while (
            to := longest_of(logs[leads[-1]], {Life(r, 0): end for r, end in logs.items() if r != leads[-1]})
        ) is not None:
            leads.append(to.broker_id)
            assert len(leads) <= 2, (first, logs)
        assert logs[leads[-1]] == max(logs.values())


def test_the_longest_log_has_what_any_log_has_of_committed_records() -> None:
    """Leaders of epochs 1 to 3, each with all that was committed when its epoch began: two of three replicas hold each
    committed record. Power takes any tail of each; of what any disk kept of it the longest log has all."""
    whole = [(1, 1, 2, 2), (1, 1, 2, 3), (1, 1, 2, 3, 3)]
    committed = (1, 1, 2)
    for kept in product(*(range(len(log) + 1) for log in whole)):
        logs = [log[:end] for log, end in zip(whole, kept, strict=True)]
        ends = [LogEnd(log[-1], len(log)) if log else NO_LOG for log in logs]
        longest = logs[ends.index(max(ends))]
        any_kept = max(min(len(log), len(committed)) for log in logs)
        assert longest[:any_kept] == committed[:any_kept], kept


# -- how long others are waited for ------------------------------------------------------------------------

ONE, TWO = Life(1, 11), Life(2, 12)
LONG, SHORT = LogEnd(5, 100), LogEnd(5, 90)
HANDED = Comparison(True, LongerLog(NAMED, 5, 1, 11))
WAITING = [
    # live, awaited, answers, own, before the deadline, after it
    pytest.param((), False, {}, SHORT, OWN_LEADS, OWN_LEADS, id="nobody may come"),
    pytest.param((), True, {}, SHORT, WAITS, OWN_LEADS, id="one recovers, or is dead"),
    pytest.param((ONE,), False, {}, SHORT, WAITS, OWN_LEADS, id="a root that answers nothing"),
    pytest.param((ONE,), False, {ONE: LONG}, SHORT, HANDED, HANDED, id="the other is longer"),
    pytest.param((ONE,), False, {ONE: SHORT}, LONG, OWN_LEADS, OWN_LEADS, id="the other is shorter"),
    pytest.param((ONE, TWO), False, {ONE: LONG}, SHORT, WAITS, HANDED, id="a third may be longer still"),
    pytest.param((ONE,), True, {ONE: LONG}, SHORT, WAITS, HANDED, id="a third recovers"),
    pytest.param((Life(1, 14),), False, {ONE: LONG}, SHORT, WAITS, OWN_LEADS, id="it restarted, it may have lost more"),
    pytest.param((), True, {ONE: LONG}, SHORT, WAITS, OWN_LEADS, id="it died after its answer"),
]


@pytest.mark.parametrize(("live", "awaited", "answers", "own", "before", "after"), WAITING)
def test_others_are_waited_for_until_a_deadline(
    live: tuple[Life, ...],
    awaited: bool,
    answers: dict[Life, LogEnd],
    own: LogEnd,
    before: Comparison,
    after: Comparison,
) -> None:
    comparison = LongestLog("id-orders", partition((1, 2, 3), 3, (3,)), 1_000, dict(answers))
    assert comparison.compare(own, Others(live, awaited), 999) == before
    assert comparison.compare(own, Others(live, awaited), 1_000) == after


def test_who_is_asked_and_who_is_awaited() -> None:
    image = image_of([1, 2, 3], partition((1, 2, 3, 4), 3, (3,)))
    assert others_of(image, state(image), 3) == Others((Life(1, 11), Life(2, 12)), awaited=False)  # 4 never registered
    commit(image, shut_down_broker(image, 1, 11))
    assert others_of(image, state(image), 3) == Others((Life(2, 12),), awaited=False)
    commit(image, fence_brokers(image, {2: 12}))
    assert others_of(image, state(image), 3) == Others((), awaited=True)


@pytest.mark.parametrize(
    ("replicas", "isr", "expected"), [((1, 2), (1,), {T0: 5}), ((1, 2), (1, 2), {}), ((1,), (1,), {})]
)
def test_only_partitions_with_other_replicas_and_no_other_member_are_unsure(
    replicas: tuple[int, ...], isr: tuple[int, ...], expected: dict[TopicPartition, int]
) -> None:
    assert unsure_of(image_of([1, 2], partition(replicas, 1, isr)), 1) == expected


# -- the decision in the metadata --------------------------------------------------------------------------

LONGER = LongerLog(NAMED, 5, 2, 12)
HAND_OVER = [
    # replicas, leader, isr, what was found -> leader, isr, leader epoch
    pytest.param((1, 2, 3), 3, (3,), LONGER, (2, (2,), 6), id="the longer log leads alone"),
    pytest.param((1, 2, 3), 3, (2, 3), LONGER, (3, (2, 3), 5), id="another member is there by now"),
    pytest.param((1, 2, 3), 1, (1,), LONGER, (1, (1,), 5), id="another one leads"),
    pytest.param((1, 2, 3), NO_LEADER, (3,), LONGER, (NO_LEADER, (3,), 5), id="nobody leads"),
    pytest.param((1, 2, 3), 3, (3,), LONGER._replace(leader_epoch=4), (3, (3,), 5), id="another leader epoch"),
    pytest.param((1, 2, 3), 3, (3,), LONGER._replace(broker_epoch=9), (3, (3,), 5), id="the other has restarted"),
    pytest.param((1, 3), 3, (3,), LONGER, (3, (3,), 5), id="it is not assigned any more"),
    pytest.param((1, 2, 3), 3, (3,), LongerLog(NAMED, 5, 3, 13), (3, (3,), 5), id="itself"),
]


@pytest.mark.parametrize(("replicas", "leader", "isr", "longer", "expected"), HAND_OVER)
def test_the_only_member_hands_over(
    replicas: tuple[int, ...],
    leader: int,
    isr: tuple[int, ...],
    longer: LongerLog,
    expected: tuple[int, tuple[int, ...], int],
) -> None:
    image = image_of([1, 2, 3], partition(replicas, leader, isr))
    is_handed = replayed(image, hand_to_longer_log(image, 3, 13, longer))
    assert brief(state(image)) == expected
    assert is_handed == (expected[1] == (2,))
    assert not commit(image, hand_to_longer_log(image, 3, 13, longer)), "decided again after a lost answer"


def test_the_new_leader_is_no_unclean_one_and_the_old_one_is_not_eligible() -> None:
    before = partition((1, 2, 3), 3, (3,), last_known_elr=(2,))
    image = image_of([1, 2, 3], before, min_isr=2)
    replayed(image, hand_to_longer_log(image, 3, 13, LONGER))
    assert (state(image).unclean, state(image).elr, state(image).last_known_elr) == (before.unclean, (), (3,))


def replayed(image: GrowingImage, result: Result[bool]) -> bool:
    """The decision in force. `commit` asks for leaders of the ISR or ELR, but here all members lost records."""
    check_transitions(image, result.records)
    image.becomes(image.fold(*result.records))
    return result.response


def test_a_fenced_broker_is_handed_nothing_and_hands_nothing() -> None:
    image = image_of([1, 2, 3], partition((1, 2, 3), 3, (3,)))
    commit(image, fence_brokers(image, {2: 12}))
    assert not commit(image, hand_to_longer_log(image, 3, 13, LONGER))
    commit(image, fence_brokers(image, {3: 13}))
    with pytest.raises(StaleBrokerEpochError):
        hand_to_longer_log(image, 3, 13, LONGER)


def test_in_whatever_order_all_register_the_last_one_alone_is_unsure() -> None:
    for order in permutations((1, 2, 3)):
        image = image_of([1, 2, 3], partition((1, 2, 3), 1, (1, 2, 3)))
        for broker_id in order:
            commit(image, register_broker(image, broker_id, f"after-{broker_id}", f"/data/{broker_id}"))
        assert [bool(unsure_of(image, broker_id)) for broker_id in order] == [False, False, True]
