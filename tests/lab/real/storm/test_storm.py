"""Storms and single faults over three broker processes; `make storm` runs them for minutes."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.lab.real.harness.command import machine_of
from tests.lab.real.harness.faults import KILL, PAUSE
from tests.lab.real.harness.history import ACK, POLL, SEND, Finding, HistoryEvent
from tests.lab.real.harness.machine_watch import MachineWatch
from tests.lab.real.storm.report import write_storm_report
from tests.lab.real.storm.run import StormResult, longest_gap_s, run_storm
from tests.lab.real.storm.single_faults import SingleFault, SingleFaults, probes, run_single_faults


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(400)
def test_the_history_of_a_storm_over_three_processes_is_clean(tmp_path: Path) -> None:
    result = run_storm(tmp_path / "storm", seconds=40, seed=3)
    assert result.findings == []
    assert result.faults[KILL] + result.faults[PAUSE] >= 4
    assert result.leader_epochs > 6
    assert result.acknowledged > 300


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.spark
@pytest.mark.timeout(600)
def test_the_history_of_a_storm_with_spark_fetch_sessions_is_clean(tmp_path: Path) -> None:
    """Signals go to the driver and its JVM; Spark's Python workers are groups of their own and live on."""
    result = run_storm(tmp_path / "storm", seconds=40, seed=4, fetcher="spark")
    assert result.findings == []
    assert result.acknowledged > 300


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(300)
def test_produce_is_back_within_the_session_timeout_and_two_seconds(tmp_path: Path) -> None:
    settings = {"broker.session.timeout.ms": 3_000, "broker.heartbeat.interval.ms": 500}
    result = run_single_faults(tmp_path / "faults", 2, 5, "thread", settings=settings, rest_s=1)
    assert result.findings == []
    assert [fault.kind for fault in result.faults] == [KILL, PAUSE]
    assert max(fault.away_ms for fault in result.faults) <= result.limit_ms == 5_000


def test_a_gap_counts_from_the_storm_s_beginning_to_its_end() -> None:
    events = [HistoryEvent(time_ms, "w", ACK) for time_ms in (500, 1_000, 1_200, 4_000, 9_000)]
    assert longest_gap_s(events, 1_000, 8_000) == 4.0
    assert longest_gap_s([], 1_000, 8_000) == 7.0


def test_a_probe_s_latency_is_from_its_own_send() -> None:
    events = [
        HistoryEvent(1_000, "p", SEND, 0, value="probe-0:1"),
        HistoryEvent(1_100, "p", SEND, 0, value="probe-0:2"),
        HistoryEvent(1_250, "r", POLL, 0, 1, value="probe-0:2"),
        HistoryEvent(1_300, "p", ACK, 0, 1, value="probe-0:2"),
    ]
    assert probes(events, begun_ms=1_000) == [(0.1, 200)]


def test_a_machine_that_stood_still_differs_from_one_that_is_busy() -> None:
    machine = MachineWatch()
    machine.note(10.0, 10.5)
    machine.note(10.5, 15.6)
    machine.note(20.0, 22.1)
    assert [round(machine.stalled_s(since_ms)) for since_ms in (0, 12_000, 16_000, 23_000)] == [7, 7, 2, 0]


def fault(number: int, away_ms: int) -> SingleFault:
    return SingleFault(number, number * 20.0, KILL, 2, number == 1, 3, away_ms, 1.5)


def test_the_report_has_the_findings(tmp_path: Path) -> None:
    lost = [Finding("lost", "a:1 was acknowledged")]
    storm = StormResult(300, 6, "thread", {KILL: 20, PAUSE: 21}, 900, 890, 10, 1_800, 77, 4.2, 0.0, 6.1, lost)
    faults = SingleFaults(9_000, "thread", [fault(1, 9_500), fault(2, 11_001)], [(0.1, 20), (20.0, 9_000)], [], 1)
    assert not faults.is_clean
    write_storm_report(tmp_path, storm, faults, machine_of(tmp_path))
    text = (tmp_path / "STORM.md").read_text(encoding="utf-8")
    assert "Findings of the checker: **1**." in text
    assert re.search(r"\d+ processors, roots on \w+, load average \d+\)", text)
    assert "Longest: **11,001 ms**" in text
    assert "stood still for more than a second meanwhile (other work on it,\nor its host): 1." in text
    kept = json.loads((tmp_path / "storm.json").read_text(encoding="utf-8"))
    each = kept["single_faults"]["faults"]
    assert [(fault["away_ms"], fault["broker_id"], fault["is_controller"]) for fault in each] == [
        (9_500, 2, True),
        (11_001, 2, False),
    ]
    assert (tmp_path / "storm.png").read_bytes().startswith(b"\x89PNG")
