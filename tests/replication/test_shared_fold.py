"""The steps of a fold that the parts of a process share: what a part gets, and what it must not get."""

from __future__ import annotations

import threading
import time

from stratalog.replication.shared_fold import RECORDS_MAX, STEPS_MAX, FoldedStep, SharedFold


def numbers(*steps: FoldedStep[int, str]) -> SharedFold[int, str]:
    shared: SharedFold[int, str] = SharedFold()
    for step in steps:
        shared.add(step)
    return shared


def test_a_part_gets_the_newest_state_and_all_records_since_its_own() -> None:
    shared = numbers(FoldedStep(None, "a", 10), FoldedStep("a", "b", 11, ("x",)), FoldedStep("b", "c", 13, ("y", "z")))
    assert shared.since("a", "c") == (13, ["x", "y", "z"])
    assert shared.since("a", "b") == (11, ["x"])
    assert shared.since("b", "c") == (13, ["y", "z"])
    assert shared.state("c") == 13


def test_a_part_gets_nothing_whose_records_are_not_all_known() -> None:
    shared = numbers(FoldedStep(None, "b", 11, ("x",)), FoldedStep("b", "c", 13, ("y", "z")))
    assert shared.since("a", "c") is None, "the fold began again at b"
    assert shared.since(None, "c") is None
    assert shared.since("b", "d") is None
    assert shared.since("c", "c") is None
    assert (shared.state("d"), shared.state(None)) == (None, None)


def test_a_content_in_the_place_of_a_lost_one_has_steps_of_its_own() -> None:
    shared = numbers(
        FoldedStep("a", "lost", 11, ("x",)), FoldedStep("a", "kept", 12, ("y",)), FoldedStep("kept", "c", 13, ("z",))
    )
    assert shared.since("lost", "c") is None
    assert shared.since("a", "c") == (13, ["y", "z"])


def test_all_parts_hold_the_state_that_was_added_first() -> None:
    first, second = [1], [1]
    shared: SharedFold[list[int], str] = SharedFold()
    assert shared.add(FoldedStep(None, "a", first)) is first
    assert shared.add(FoldedStep("0", "a", second, ("x",))) is first
    assert shared.since("0", "a") == (first, ["x"]), "and its records, once somebody has them"
    assert shared.add(FoldedStep(None, "a", second)) is first
    assert shared.since("0", "a") == (first, ["x"])


def test_a_content_without_a_key_and_a_part_that_shares_with_nobody_keep_nothing() -> None:
    shared, alone = numbers(FoldedStep("a", None, 11, ("x",))), SharedFold[int, str](steps_max=0)
    assert (shared.state(None), shared.since("a", None)) == (None, None)
    assert alone.add(FoldedStep("a", "b", 11, ("x",))) == 11
    assert (alone.state("b"), alone.since("a", "b")) == (None, None)


def test_only_the_newest_steps_are_kept() -> None:
    shared = numbers(*(FoldedStep(number, number + 1, number + 1, ("x",)) for number in range(1_000)))
    assert shared.since(1_000 - STEPS_MAX, 1_000) == (1_000, ["x"] * STEPS_MAX)
    assert shared.since(999 - STEPS_MAX, 1_000) is None
    shared.add(FoldedStep(1_000, 1_001, 1_001, ("y",) * RECORDS_MAX))
    assert shared.since(999, 1_001) is None, "so many records leave no room for others"
    assert shared.since(1_000, 1_001) is not None
    shared.add(FoldedStep(1_001, 1_002, 1_002, ("z",)))
    assert shared.since(1_001, 1_002) == (1_002, ["z"])


def test_parts_fold_one_after_the_other() -> None:
    shared: SharedFold[int, str] = SharedFold()
    inside: list[int] = []
    most: list[int] = []

    def fold() -> None:
        with shared.turn():
            inside.append(1)
            most.append(len(inside))
            time.sleep(0.01)
            inside.pop()

    threads = [threading.Thread(target=fold) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert max(most) == 1


def test_a_part_whose_store_does_not_answer_holds_the_others_up_for_a_bounded_time() -> None:
    shared: SharedFold[int, str] = SharedFold()
    entered, answers = threading.Event(), threading.Event()

    def hang() -> None:
        with shared.turn():
            entered.set()
            answers.wait(30)

    thread = threading.Thread(target=hang, daemon=True)
    thread.start()
    assert entered.wait(10)
    begun = time.monotonic()
    with shared.turn():
        assert time.monotonic() - begun < 10
    answers.set()
    thread.join()
    with shared.turn():
        pass
