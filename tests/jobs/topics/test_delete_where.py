"""The delete-where tool: the report it prints, how long it waits, and what it refuses."""

from __future__ import annotations

import pytest

from stratalog.jobs.topics.delete_where import awaited, main, report_lines
from stratalog.server.admin.erasure import ErasureLeftover, ErasureReport, ReplicaErasure
from stratalog.storage.errors import StoreUnavailableError
from stratalog.storage.records import TopicPartition
from tests.storage.logs import FakeClock

TP = TopicPartition("events", 0)
GONE = ReplicaErasure(TP, 1, 12, True, 3, 40, 0, 0)
WAITING = ReplicaErasure(TP, 2, 9, True, 2, 40, 0, 2)
OPEN = ReplicaErasure(TP, 3, 7, False, 0, 0, 40, 0)
AWAY = ReplicaErasure(TP, 4, error=StoreUnavailableError("disk gone"))


def report(*replicas: ReplicaErasure) -> ErasureReport:
    return ErasureReport("events", 1, "{}", replicas)


@pytest.mark.parametrize(
    ("replicas", "last", "is_erased", "is_gone"),
    [
        ((GONE,), "Erased on all 1 replicas, and gone from storage.", True, True),
        ((GONE, WAITING), "Erased on all 2 replicas; 2 files wait for their deletion.", True, False),
        ((GONE, WAITING, OPEN), "Not done yet on 1 of 3 replicas.", False, False),
        ((GONE, AWAY), "Not done yet on 1 of 2 replicas.", False, False),
    ],
)
def test_the_last_line_says_how_far_it_is(
    replicas: tuple[ReplicaErasure, ...], last: str, is_erased: bool, is_gone: bool
) -> None:
    made = report(*replicas)
    assert report_lines(made)[-1] == last
    assert (made.is_erased, made.is_gone) == (is_erased, is_gone)


def test_a_replica_is_a_line() -> None:
    assert report_lines(report(GONE, OPEN, AWAY))[:-1] == [
        "partition\tbroker\tversion\tfiles rewritten\trecords erased\trecords left\tfiles waiting",
        "events-0\t1\t12\t3\t40\t0\t0",
        "events-0\t3\t7\tnot applied yet, 40 records left",
        "events-0\t4\terror: disk gone",
    ]


def test_what_a_deletion_left_is_not_gone() -> None:
    made = ErasureReport("events", 1, "{}", (GONE,), (ErasureLeftover(2, "events-0.ab-delete", 3),))
    assert report_lines(made)[-2:] == [
        "broker 2: 3 files of a deleted replica in events-0.ab-delete, which the broker deletes when it starts",
        "Erased on all 1 replicas; 3 files wait for their deletion.",
    ]
    assert (made.is_erased, made.is_gone) == (True, False)
    away = ErasureReport("events", 1, "{}", (GONE,), (ErasureLeftover(2, error=StoreUnavailableError("disk gone")),))
    assert report_lines(away)[-2] == "broker 2: what deleted replicas left there is not known: disk gone"
    assert not away.is_gone


def test_a_record_that_is_left_is_not_erased_whatever_the_replica_says() -> None:
    assert not ReplicaErasure(TP, 1, 12, True, 3, 40, 1, 0).is_erased


@pytest.mark.parametrize(("wait_ms", "polls"), [(0, 1), (1_000, 3), (5_000, 4)])
def test_it_waits_until_all_is_gone_or_the_time_is_over(wait_ms: int, polls: int) -> None:
    reports = [report(OPEN), report(WAITING), report(WAITING), report(GONE)]
    clock, seen = FakeClock(), []

    def read() -> ErasureReport:
        seen.append(clock.now_ms)
        return reports[len(seen) - 1]

    assert awaited(read, wait_ms, clock) is reports[polls - 1]
    assert len(seen) == polls


@pytest.mark.parametrize(
    ("arguments", "refusal"),
    [
        ([], 'Missing required argument "[topic]"'),
        (["--topic", "events"], 'Exactly one of "[where]" and "[report]" is needed'),
        (["--topic", "events", "--where", "{}", "--report", "1"], 'Exactly one of "[where]" and "[report]"'),
        (["--topic", "events", "--where", "{}"], "Which cluster? Give --root"),
    ],
)
def test_what_is_missing_is_named(capsys: pytest.CaptureFixture[str], arguments: list[str], refusal: str) -> None:
    assert main(arguments) == 1
    assert refusal in capsys.readouterr().err


def test_the_help_shows_predicates() -> None:
    assert '{"key": {"equals": "bob"}}' in main.help()
