"""Stalls: which requests belong together, what is told of them, and what is looked at."""

from __future__ import annotations

import os
import time
from pathlib import Path

from tests.bench.benches.stalls import Look, checkpoints_s, looking, stalls_of, told
from tests.bench.lab import Moment


def test_slow_requests_that_were_due_shortly_after_each_other_are_one_stall() -> None:
    moments = [Moment(0.0, 60.0), Moment(0.1, 5.0), Moment(0.15, 200.0), Moment(0.31, 50.0), Moment(0.4, 49.0)]
    first, second = stalls_of(moments)
    assert (first.began_s, first.ended_s, first.count, first.worst_ms) == (0.0, 0.35, 2, 200.0)
    assert (second.began_s, second.count) == (0.31, 1)
    assert stalls_of([Moment(1.0, 3.0)]) == []


def test_only_what_fell_into_a_stall_or_shortly_before_is_told() -> None:
    (stall,) = stalls_of([Moment(10.0, 100.0)])
    looks = [Look(9.0, 99.0, 1.0, 0.5), Look(10.05, 2.0, 0.5, 0.25)]
    text = told(stall, {1: [9.6, 9.8], 2: [10.2]}, {3: [10.05]}, looks)
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


def test_looks_at_the_machine_until_the_block_ends() -> None:
    began_s = time.time()
    with looking() as looks:
        while len(looks) < 2:
            assert time.time() < began_s + 60
    count = len(looks)
    assert count >= 2
    assert all(look.at_s >= began_s and 0 <= look.busy <= 1 and 0 <= look.stolen <= 1 for look in looks)
