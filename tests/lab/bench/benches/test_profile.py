"""The profiled steps are functions that exist, and a step's time excludes that of the steps inside it."""

from __future__ import annotations

import pytest

from tests.lab.bench.benches.profile import RECORDS, STEPS, Spent, Step, Watch, function_of, steps_table


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.place)
def test_a_step_names_a_function_that_is_there(step: Step) -> None:
    holder, name = function_of(step)
    assert callable(getattr(holder, name))


class Cpu:
    """CPU time that passes only in `burn`."""

    now_ns = 0

    def burn(self, duration_ns: int) -> None:
        self.now_ns += duration_ns


def test_the_time_of_a_step_is_without_that_of_the_steps_inside_it() -> None:
    cpu = Cpu()
    watch = Watch(cpu_ns=lambda: cpu.now_ns)
    inner_step, outer_step = Step("a", "inner", ""), Step("a", "outer", "")
    inner = watch.wrap(inner_step, lambda: cpu.burn(4))

    def work() -> None:
        cpu.burn(1)
        inner()
        inner()

    outer = watch.wrap(outer_step, work)
    outer()
    assert watch.spent[outer_step] == Spent()
    watch.is_on = True
    outer()
    assert watch.spent == {inner_step: Spent(2, 8), outer_step: Spent(1, 1)}


def test_the_table_is_per_record() -> None:
    watch = Watch({Step("fetch", "copy", ""): Spent(2 * RECORDS, 2 * RECORDS * 50_000)})
    lines = steps_table(watch).splitlines()
    assert lines[2] == "| fetch | copy | ours | 2.0 | 50 | 100 |"
    assert lines[3] == "| | **all of it** | ours | | | **100** |"
