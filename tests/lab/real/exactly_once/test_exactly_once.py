"""Exactly once over processes under faults, small; `make exactly-once` runs a million records three times."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from stratalog.clients.admin.admin import Admin
from stratalog.server.admin.admin import NewTopic
from tests.lab.real.exactly_once.committed_judge import COLUMNS, CONTROL, TRANSACTIONAL, judge
from tests.lab.real.exactly_once.processor import ASSIGNED, CONSUMER, INPUT, LOST, OUTPUT, REVOKED, STARTED
from tests.lab.real.exactly_once.processor_process import ProcessorProcess
from tests.lab.real.exactly_once.report import report_text
from tests.lab.real.exactly_once.run import SETTINGS, Result, run, wrong
from tests.lab.real.harness.broker_processes import BrokerProcesses, ClusterWatch
from tests.lab.real.harness.machine_watch import MachineWatch
from tests.waiting import wait_until

COMMIT, ABORT = b"\x00\x00\x00\x01", b"\x00\x00\x00\x00"


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(400)
def test_each_input_is_in_the_output_once_though_processors_and_brokers_die(tmp_path: Path) -> None:
    result = run(tmp_path / "run", 200_000, seed=3, every_s=2.0, limit_s=300)
    assert result.is_clean, result
    assert sum(result.faults.values()) >= 3, result.faults


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_member_that_was_killed_is_replaced_within_its_session_timeout_and_a_second(tmp_path: Path) -> None:
    """Its process leaves no group; its partitions are assigned to the member of another process."""
    with BrokerProcesses(tmp_path, SETTINGS) as brokers, MachineWatch() as machine:
        Admin(brokers.metadata_root).create_topics([NewTopic(INPUT, 4, 3), NewTopic(OUTPUT, 1, 3)])
        ClusterWatch(brokers.metadata_root, INPUT).await_in_sync()
        first, second = (ProcessorProcess(brokers.metadata_root, tmp_path, name) for name in ("first", "second"))
        try:
            first.start()
            second.start()
            wait_until(
                lambda: owned(first) | owned(second) == set(range(4)) and owned(first) and owned(second), "shares"
            )
            victims = owned(second)
            killed_at = second.kill()
            wait_until(lambda: victims <= owned(first), "the partitions of the one that was killed")
            taken_at = max(note["at"] for note in first.notes() if note["kind"] == ASSIGNED)
        finally:
            first.end()
            second.end()
    away_s = taken_at - killed_at - machine.stalled_s()
    assert 0 < away_s <= CONSUMER["session_timeout_ms"] / 1_000 + 1, away_s


def owned(processor: ProcessorProcess) -> set[int]:
    """The partitions that its newest process recorded as assigned and not as lost."""
    found: set[int] = set()
    for note in processor.notes():
        if note["kind"] == STARTED:
            found = set()
        elif note["kind"] == ASSIGNED:
            found |= set(note["partitions"])
        elif note["kind"] in (REVOKED, LOST):
            found -= set(note["partitions"])
    return found


def rows(*given: tuple[int, int, bytes | None, bytes | None]) -> pa.Table:
    """A replica's rows, one offset after the other: producer, attributes, key, value."""
    producers, attributes, keys, values = zip(*given, strict=True)
    offsets = pa.array(range(len(given)), pa.int64())
    columns = [pa.array([0] * len(given), pa.int64()), offsets, pa.array(producers, pa.int64())]
    columns += [pa.array(attributes, pa.int16()), pa.array(keys, pa.binary()), pa.array(values, pa.binary())]
    return pa.table(columns, names=COLUMNS)


def test_the_judge_counts_what_its_producer_s_next_marker_commits() -> None:
    table = rows(
        (1, TRANSACTIONAL, None, b"a"),
        (2, TRANSACTIONAL, None, b"b"),
        (-1, 0, None, b"plain"),
        (2, TRANSACTIONAL | CONTROL, ABORT, b""),
        (1, TRANSACTIONAL | CONTROL, COMMIT, b""),
        (2, TRANSACTIONAL, None, b"c"),
        (1, TRANSACTIONAL, None, b"d"),
        (2, TRANSACTIONAL | CONTROL, COMMIT, b""),
    )
    shuffled = table.take([5, 0, 7, 2, 4, 1, 6, 3])
    found = judge(shuffled)
    assert (found.committed.to_pylist(), found.aborted, found.open) == ([b"a", b"plain", b"c"], 1, 1)


def test_what_is_missing_or_doubled_is_wrong() -> None:
    assert wrong([pa.array([b"000000000|x", b"000000002|y", b"000000001|x"])], 3) == 0
    assert wrong([pa.array([b"000000000|x", b"000000002|y"]), pa.array([b"000000002|x"])], 4) == 3


def test_the_report_counts_kills_by_role() -> None:
    faults = {"SIGKILL processor": 4, "SIGKILL group coordinator": 2, "SIGSTOP output leader": 3}
    notes = {"committed": 1_234, "aborted": 5, "fenced": 2, "assigned": 30}
    result = Result(1_000_000, 7, 3, 91.4, 1.5, faults, notes, 310.0, 6_200, 5.1, 0.0, 0, 1, 17, 0, 0)
    assert not result.is_clean
    text = report_text([result, result], "2 processors")
    assert "| SIGKILL of brokers | 2 | 2 |" in text
    assert "| at a leader of the output | 3 | 3 |" in text
    assert "| inputs not in the output exactly once, in the three replicas | **1** | **1** |" in text
