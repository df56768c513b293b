"""The demo's verdict: it holds for a faultless run, and each fault by itself makes it fail."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest

from stratalog.jobs.demo.verdict import (
    Ack,
    Differences,
    KeyedLine,
    Outcome,
    PartitionEpoch,
    ReplicaComparison,
    differences,
    epochs_moved,
    failover_ms,
    percentile,
    verdict,
)

SAME = Differences(lost=0, duplicated=0, never_sent=0, reordered_keys=0)

GOOD = Outcome(
    sent=100,
    acknowledged=100,
    consumed=100,
    counted=100,
    shares=(60, 40),
    counts_differ=0,
    differences=SAME,
    failover_ms=10_400.0,
    before={0: PartitionEpoch(1, 0), 1: PartitionEpoch(2, 0)},
    after={0: PartitionEpoch(3, 1), 1: PartitionEpoch(2, 1)},
    killed=1,
    sql=ReplicaComparison(3, 300, 0),
    deltalake=ReplicaComparison(3, 300, 0),
)


def records(text: str) -> list[KeyedLine]:
    """`a1 b1` as records of the keys a and b."""
    return [KeyedLine(word[0], word[1:]) for word in text.split()]


@pytest.mark.parametrize(
    ("consumed", "expected"),
    [
        ("a1 b1 a2 a2", SAME),
        ("b1 a1 a2 a2", SAME),
        ("a1 b1 a2", replace(SAME, lost=1)),
        ("", replace(SAME, lost=4)),
        ("a1 b1 a2 a2 b1 b1", replace(SAME, duplicated=2)),
        ("a1 b1 a2 a2 a2", replace(SAME, duplicated=1)),
        ("a1 b1 a2 a2 c9", replace(SAME, never_sent=1)),
        ("a2 a1 b1 a2", replace(SAME, reordered_keys=1)),
        ("a1 b1 a2 b2", replace(SAME, lost=1, never_sent=1)),
    ],
    ids=[
        "as sent",
        "another order between keys",
        "one of two equal lines lost",
        "nothing came",
        "one came three times",
        "equal lines are counted",
        "a stranger",
        "another order within a key",
        "a changed value",
    ],
)
def test_differences(consumed: str, expected: Differences) -> None:
    assert differences(records("a1 b1 a2 a2"), records(consumed)) == expected


def test_a_faultless_run_passes() -> None:
    assert [check.name for check in verdict(GOOD) if not check.holds] == []


@pytest.mark.parametrize(
    ("outcome", "failing"),
    [
        (replace(GOOD, acknowledged=99), ["acknowledged"]),
        (replace(GOOD, consumed=99, differences=replace(SAME, lost=1)), ["consumed", "lost"]),
        (replace(GOOD, consumed=101, differences=replace(SAME, duplicated=1)), ["consumed", "duplicated"]),
        (replace(GOOD, differences=replace(SAME, never_sent=1)), ["duplicated"]),
        (replace(GOOD, differences=replace(SAME, reordered_keys=2)), ["order per key"]),
        (replace(GOOD, counted=99), ["hits read by a group"]),
        (replace(GOOD, counts_differ=2), ["hits read by a group"]),
        (replace(GOOD, shares=(100, 0)), ["hits read by a group"]),
        (replace(GOOD, failover_ms=12_001.0), ["failover"]),
        (replace(GOOD, failover_ms=None), ["failover"]),
        (replace(GOOD, after=GOOD.before), ["leader epochs"]),
        (replace(GOOD, killed=7), ["leader epochs"]),
        (replace(GOOD, sql=ReplicaComparison(3, 300, 1)), ["replicas by Delta SQL"]),
        (replace(GOOD, deltalake=ReplicaComparison(3, 299, 0)), ["replicas by deltalake"]),
    ],
    ids=lambda part: " and ".join(part) if isinstance(part, list) else "",
)
def test_each_fault_fails(outcome: Outcome, failing: Sequence[str]) -> None:
    assert [check.name for check in verdict(outcome) if not check.holds] == failing


@pytest.mark.parametrize(
    ("after", "moved"),
    [
        (PartitionEpoch(2, 5), True),
        (PartitionEpoch(2, 4), False),
        (PartitionEpoch(1, 5), False),
    ],
    ids=["new leader, new epoch", "new leader, old epoch", "the dead one leads on"],
)
def test_epochs_of_the_dead_brokers_partitions(after: PartitionEpoch, moved: bool) -> None:
    assert epochs_moved({0: PartitionEpoch(1, 4)}, {0: after}, killed=1) == {0: moved}


def test_an_epoch_of_another_broker_may_rise_but_not_fall() -> None:
    before = {0: PartitionEpoch(2, 4), 1: PartitionEpoch(2, 4), 2: PartitionEpoch(2, 4)}
    after = {0: PartitionEpoch(2, 4), 1: PartitionEpoch(2, 5), 2: PartitionEpoch(2, 3)}
    assert epochs_moved(before, after, killed=1) == {0: True, 1: True, 2: False}


def test_failover_ends_with_the_first_answer_of_a_partition_that_the_dead_broker_led() -> None:
    acks = [Ack(0, 900, 990), Ack(0, 995, 1_002), Ack(1, 1_100, 1_300), Ack(0, 1_400, 9_000), Ack(0, 9_100, 9_200)]
    assert failover_ms(acks, {0}, kill_ms=1_000, dead_ms=1_010) == 8_000
    assert failover_ms(acks, {2}, kill_ms=1_000, dead_ms=1_010) is None


@pytest.mark.parametrize(("percent", "expected"), [(50, 5), (90, 9), (99, 10), (100, 10), (1, 1)])
def test_percentiles_of_one_to_ten(percent: int, expected: int) -> None:
    assert percentile([float(n) for n in range(10, 0, -1)], percent) == expected


def test_nothing_has_no_percentile() -> None:
    assert math.isnan(percentile([], 50))
