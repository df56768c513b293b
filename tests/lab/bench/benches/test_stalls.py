"""Stalls: which requests belong together, what is reported of them, and how the machine is sampled."""

from __future__ import annotations

import os
import time
from pathlib import Path

from tests.lab.bench.benches.stalls import Sample, checkpoints_s, described, sampling, stalls_of
from tests.lab.bench.lab import Moment


def test_slow_requests_that_were_due_shortly_after_each_other_are_one_stall() -> None:
    moments = [Moment(0.0, 60.0), Moment(0.1, 5.0), Moment(0.15, 200.0), Moment(0.31, 50.0), Moment(0.4, 49.0)]
    first, second = stalls_of(moments)
    assert (first.began_s, first.ended_s, first.count, first.worst_ms) == (0.0, 0.35, 2, 200.0)
    assert (second.began_s, second.count) == (0.31, 1)
    assert stalls_of([Moment(1.0, 3.0)]) == []


def test_only_what_happened_during_a_stall_or_shortly_before_is_reported() -> None:
    (stall,) = stalls_of([Moment(10.0, 100.0)])
    samples = [Sample(9.0, 99.0, 1.0, 0.5), Sample(10.05, 2.0, 0.5, 0.25)]
    text = described(stall, {1: [9.6, 9.8], 2: [10.2]}, {3: [10.05]}, samples)
    assert text == (
        "stall at 10.0 s: 1 requests, worst 100 ms; hand-overs of 1; checkpoints of 3; "
        "busy 50 %, stolen 25 %, late 2 ms"
    )


def test_checkpoints_are_found_by_broker_with_their_time(tmp_path: Path) -> None:
    log = tmp_path / "broker-1" / "t-0" / "_delta_log"
    log.mkdir(parents=True)
    (log / f"{7:020}.checkpoint.parquet").touch()
    (log / f"{7:020}.json").touch()
    os.utime(log / f"{7:020}.checkpoint.parquet", (1_003.5, 1_003.5))
    roots = {1: str(tmp_path / "broker-1"), 2: str(tmp_path / "broker-2")}
    assert checkpoints_s(roots, 1_000_000) == {1: (3.5,), 2: ()}


def test_the_machine_is_sampled_until_the_block_ends() -> None:
    began_s = time.time()
    with sampling() as samples:
        while len(samples) < 2:
            assert time.time() < began_s + 60
    count = len(samples)
    assert count >= 2
    assert all(each.at_s >= began_s and 0 <= each.busy <= 1 and 0 <= each.stolen <= 1 for each in samples)
