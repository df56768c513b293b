"""What a fetch session works on next."""

from __future__ import annotations

import pytest

from stratalog.replication.follower.look_queue import LookQueue
from stratalog.storage.records import TopicPartition

ONE, TWO, THREE = (TopicPartition("t", number) for number in (1, 2, 3))


def names(queue: LookQueue) -> tuple[str, str]:
    """What comes soon, and what is only checked."""
    soon, checks = (" ".join(str(each.partition) for each in part) for part in (queue.soon, queue.checks))
    return soon, checks


def test_each_comes_once_in_the_order_in_which_it_was_added() -> None:
    queue = LookQueue()
    for each in (TWO, ONE, TWO):
        queue.add(each)
    queue.check([THREE, ONE])
    assert (names(queue), bool(queue)) == (("2 1", "3 1"), True)
    queue.clear()
    assert (names(queue), bool(queue)) == (("", ""), False)


def test_what_was_delayed_comes_at_its_time() -> None:
    queue = LookQueue()
    queue.delay(ONE, 200)
    queue.delay(TWO, 100)
    queue.add(ONE)
    assert [queue.due_in_ms(now_ms, idle_ms=1_000) for now_ms in (40, 100, 130)] == [60, 0, 0]
    queue.release_due(99)
    assert names(queue) == ("", "")
    queue.release_due(100)
    assert (names(queue), queue.is_delayed(ONE), queue.is_delayed(TWO)) == (("2", ""), True, False)
    queue.clear()
    assert queue.due_in_ms(150, idle_ms=1_000) == 50
    queue.release_due(200)
    queue.clear()
    assert queue.due_in_ms(210, idle_ms=1_000) == 1_000


@pytest.mark.parametrize(("is_held", "soon"), [(False, "1"), (True, "")])
def test_what_its_leader_publishes_ends_a_delay_unless_it_is_held(is_held: bool, soon: str) -> None:
    queue = LookQueue()
    queue.delay(ONE, 100, is_held=is_held)
    queue.published(ONE)
    queue.add(ONE)
    assert names(queue) == (soon, "")


def test_what_is_released_is_held_no_more() -> None:
    queue = LookQueue()
    queue.delay(ONE, 100, is_held=True)
    queue.release(ONE)
    queue.delay(ONE, 100)
    queue.published(ONE)
    queue.add(ONE)
    assert names(queue) == ("1", "")


def test_one_that_was_held_until_its_time_is_held_no_more() -> None:
    queue = LookQueue()
    queue.delay(ONE, 100, is_held=True)
    queue.release_due(100)
    queue.delay(ONE, 300)
    queue.published(ONE)
    assert not queue.is_delayed(ONE)
