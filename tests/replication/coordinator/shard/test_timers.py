"""Timers by key: the newest schedule counts."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stratalog.replication.coordinator.shard.timers import ShardTimers


def test_a_key_is_due_when_it_was_scheduled_last() -> None:
    timers: ShardTimers[str] = ShardTimers()
    timers.schedule("a", 10)
    timers.schedule("b", 20)
    timers.schedule("a", 30)
    timers.schedule("b", 5)
    assert (timers.next_due_ms, timers.due_ms("a"), len(timers)) == (5, 30, 2)
    assert list(timers.pop_due(29)) == ["b"]
    timers.cancel("a")
    assert (timers.next_due_ms, list(timers.pop_due(100)), timers.due_ms("a")) == (None, [], None)


def test_what_is_scheduled_while_others_are_served_counts() -> None:
    timers: ShardTimers[str] = ShardTimers()
    timers.schedule("a", 1)
    timers.schedule("c", 3)
    served = []
    for key in timers.pop_due(3):
        served.append(key)
        if key == "a":
            timers.schedule("b", 2)
            timers.cancel("c")
    assert served == ["a", "b"]


Steps = st.lists(st.tuples(st.sampled_from("abcd"), st.one_of(st.none(), st.integers(0, 50)), st.integers(0, 10)))


@given(Steps)
def test_timers_agree_with_a_dict(steps: list[tuple[str, int | None, int]]) -> None:
    timers: ShardTimers[str] = ShardTimers()
    model: dict[str, int] = {}
    now_ms = 0
    for key, delay_ms, passed_ms in steps:
        if delay_ms is None:
            timers.cancel(key)
            model.pop(key, None)
        else:
            timers.schedule(key, now_ms + delay_ms)
            model[key] = now_ms + delay_ms
        assert timers.next_due_ms == min(model.values(), default=None)
        now_ms += passed_ms
        due = {each for each, due_ms in model.items() if due_ms <= now_ms}
        popped = list(timers.pop_due(now_ms))
        assert sorted(popped) == sorted(due)
        assert [model[each] for each in popped] == sorted(model[each] for each in due)
        model = {each: due_ms for each, due_ms in model.items() if each not in due}
