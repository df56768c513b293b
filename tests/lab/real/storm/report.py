"""docs/STORM.md, storm.json and storm.png from the results of the storm and of the single faults."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import matplotlib as mpl

from tests.lab.real.harness.command import write_report
from tests.lab.real.harness.faults import KILL, PAUSE
from tests.lab.real.storm.run import EVERY_S, OF_CONTROLLER, SETTINGS, StormResult
from tests.lab.real.storm.single_faults import PARTITIONS, SingleFaults

COLOURS = {KILL: "#b8352c", PAUSE: "#4c8bb8"}
TEXT = """# Three broker processes under faults

Written by `make storm`. Three brokers (`python -m stratalog.jobs.broker`), each a process with a root of its own, on
one machine ({machine}); topics with replication factor 3 and `min.insync.replicas=2`, producers with `acks=all` in
another process. Every send, acknowledgement and poll goes into a history, and in the end every replica is read. The
checker looks for lost and doubled records, two values at one offset, wrong order, reads that go back, and high
watermarks that go back.

## Storm

{minutes:g} minutes, session timeout {session_s:g} s, seed {seed}, follower fetch by {fetcher}. Every {every:g} s a
random broker or the controller is killed (SIGKILL, started again after 0.5 to 6 s) or paused (SIGSTOP, for 0.5 to 9 s);
two of three are away at a time at most.

| what | count |
| --- | --- |
{storm_rows}

Findings of the checker: **{findings}**.

## One fault at a time

{count} faults, session timeout {timeout_ms:,} ms, the next one five seconds after the ISR is full again.
*Away* is the time from the fault until a record sent after it is acknowledged, in the slowest of {partitions}
partitions; at most session timeout + 2 s = {limit_ms:,} ms is allowed. Longest: **{longest_ms:,} ms**.
Findings of the checker: **{fault_findings}**. Each fault is in [storm.json](storm.json).{repeated}

![Latency of every record, and the time away of each fault](storm.png)
"""
REPEATED = """ Faults repeated because the whole machine stood still for more than a second meanwhile (other work on it,
or its host): {}."""


def write_storm_report(folder: Path, storm: StormResult, faults: SingleFaults, machine: str) -> None:
    """Write all three files. `machine` is a short description of the machine."""
    body = {
        "machine": machine,
        "storm": asdict(storm),
        "single_faults": {**asdict(faults), "limit_ms": faults.limit_ms},
    }
    del body["single_faults"]["probes"]
    write_report(folder, "storm", report_text(storm, faults, machine), body)
    draw(folder / "storm.png", faults)


def report_text(storm: StormResult, faults: SingleFaults, machine: str) -> str:
    return TEXT.format(
        machine=machine,
        minutes=round(storm.seconds / 60, 1),
        session_s=SETTINGS["broker.session.timeout.ms"] / 1000,
        seed=storm.seed,
        fetcher=storm.fetcher,
        every=EVERY_S,
        storm_rows="\n".join(f"| {what} | {value} |" for what, value in storm_facts(storm).items()),
        findings=len(storm.findings) or "none",
        count=len(faults.faults),
        timeout_ms=faults.session_timeout_ms,
        partitions=PARTITIONS,
        limit_ms=faults.limit_ms,
        repeated=REPEATED.format(faults.repeated) if faults.repeated else "",
        longest_ms=max(fault.away_ms for fault in faults.faults),
        fault_findings=len(faults.findings) or "none",
    )


def storm_facts(storm: StormResult) -> dict[str, str]:
    """The rows of the storm's table."""
    return {
        "SIGKILL": f"{storm.faults.get(KILL, 0)}",
        "SIGSTOP": f"{storm.faults.get(PAUSE, 0)}",
        "of them at the controller": f"{storm.faults.get(OF_CONTROLLER, 0)}",
        "leader epochs, over 6 partitions": f"{storm.leader_epochs:,}",
        "records sent": f"{storm.sent:,}",
        "acknowledged": f"{storm.acknowledged:,}",
        "expired in the producer (outcome unknown)": f"{storm.failed:,}",
        "polled": f"{storm.polled:,}",
        "longest time without an acknowledgement [s]": f"{storm.gap_s_max:.1f}",
        "the machine itself stood still, in total [s]": f"{storm.stalled_s:.1f}",
        "all replicas in sync after the storm [s]": f"{storm.in_sync_after_s:.1f}",
    }


def draw(path: Path, faults: SingleFaults) -> None:
    """Every probe's latency over time, with the faults as lines; below, each fault's time away beside the limit."""
    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, (upper, lower) = plt.subplots(2, 1, figsize=(11, 7), layout="constrained")
    upper.scatter(*zip(*faults.probes, strict=True), s=4, color="#777777", linewidths=0, rasterized=True)
    upper.set_yscale("log")
    upper.set_ylabel("acks=all latency [ms]")
    upper.set_xlabel("time at which the record was sent [s]")
    upper.axhline(faults.limit_ms, color="black", linestyle="--", linewidth=1)
    for fault in faults.faults:
        upper.axvline(fault.at_s, color=COLOURS[fault.kind], linewidth=1)
    upper.set_title("Every record; lines are faults (red SIGKILL, blue SIGSTOP), dashed the limit", loc="left")
    names = [f"{f.number}: {f.kind}\nbroker {f.broker_id}{'*' * f.is_controller}" for f in faults.faults]
    lower.bar(names, [f.away_ms / 1000 for f in faults.faults], color=[COLOURS[f.kind] for f in faults.faults])
    lower.axhline(faults.limit_ms / 1000, color="black", linestyle="--", linewidth=1)
    lower.set_ylabel("produce is away [s]")
    lower.tick_params(axis="x", labelsize=7)
    lower.set_title("Until the slowest partition acknowledges again (* the controller)", loc="left")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)
