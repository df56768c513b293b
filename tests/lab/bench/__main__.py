"""`python -m tests.lab.bench`: measure ours beside Kafka; JSON lines on standard output, progress on standard error.

--only produce,latency    only these benches; `--only profile` prints the CPU time of each step of one record,
                          `--only codec` measures Kafka's record batches beside aiokafka,
                          `--only handler` Produce and Fetch through Kafka's handler,
                          `--only clients` Kafka's Java tools against both,
                          `--only clients_tls` what TLS costs them,
                          `--only group` rebalances of 100 members over 1,000 partitions
--rounds 1                how often each side is measured (3)
--long                    the benches that take minutes, instead of the others
--soak                    a log after 100,000 commits, disk under load, and a busy log's files and memory: ours
                          alone, without the peer
--cloud                   ours alone in a simulated bucket, three copies and one table: simulated_fast, _slow, _express,
                          simulated_fast_domain …; simulated_idle, what three idle brokers cost a month, and
                          simulated_wake, how soon one serves; needs versitygw (`make test-s3`)
--minutes 30, --commits-per-s 400   of `busy_log`
--report docs             write BENCHMARKS.md and its charts there
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

from tests.lab.bench import machine
from tests.lab.bench.benches.busy_log import busy_log
from tests.lab.bench.benches.clients import clients
from tests.lab.bench.benches.codec import codec
from tests.lab.bench.benches.group import group
from tests.lab.bench.benches.handler import handler
from tests.lab.bench.benches.latency import latency_acks_all, partitions_500
from tests.lab.bench.benches.produce import produce, producers_8
from tests.lab.bench.benches.profile import profile
from tests.lab.bench.benches.soak import soak_commits, soak_disk
from tests.lab.bench.benches.spark import spark
from tests.lab.bench.benches.standing import disk_bytes, idle_cpu, memory
from tests.lab.bench.benches.time_to_table import time_to_table
from tests.lab.bench.benches.tls import clients_tls
from tests.lab.bench.benches.typed_table import typed_table
from tests.lab.bench.lab import Lab, Outcome, show
from tests.lab.bench.measures import json_line
from tests.lab.bench.peer.kafka import PeerError, fetch_jars
from tests.lab.bench.report import Run
from tests.lab.bench.results import write_report
from tests.lab.bench.simulated.bench import BENCHES as SIMULATED
from tests.lab.bench.simulated.idle import BENCHES as IDLE
from tests.lab.bench.volume import data_folder

Bench = Callable[[Lab], Outcome]

SHORT: dict[str, Bench] = {
    "produce": produce,  # first: it warms the peer up for the others
    "latency": latency_acks_all,
    "time_to_table": time_to_table,
    "producers_8": producers_8,
    "spark": spark,
    "typed_table": typed_table,
    "disk_bytes": disk_bytes,
    "idle_cpu": idle_cpu,
}
LONG: dict[str, Bench] = {"partitions_500": partitions_500, "memory": memory}
SOAK: dict[str, Bench] = {"soak_commits": soak_commits, "soak_disk": soak_disk, "busy_log": busy_log}
CLOUD: dict[str, Bench] = {**SIMULATED, **IDLE}
ASKED: dict[str, Bench] = {
    "profile": profile,
    "codec": codec,
    "handler": handler,
    "group": group,
    "clients": clients,
    "clients_tls": clients_tls,
}
"""The benches that run only when they are named."""


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; its exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.lab.bench", description=__doc__)
    parser.add_argument(
        "--only", default="", metavar="NAMES", help=f"of {', '.join(sorted({*SHORT, *LONG, *SOAK, *CLOUD, *ASKED}))}"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--long", action="store_true")
    parser.add_argument("--soak", action="store_true")
    parser.add_argument("--cloud", action="store_true")
    parser.add_argument("--minutes", type=int, default=30)
    parser.add_argument("--commits-per-s", type=int, default=400)
    parser.add_argument("--report", type=Path, metavar="FOLDER")
    given = parser.parse_args(arguments)
    regular = CLOUD if given.cloud else SOAK if given.soak else LONG if given.long else SHORT
    benches = regular | ASKED
    chosen = given.only.split(",") if given.only else list(regular)
    if unknown := set(chosen) - set(benches):
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    try:
        if _has_peer(given):
            fetch_jars()
    except PeerError as reason:
        print(f"ERROR {reason}", file=sys.stderr)
        return 1
    # On a signal a bench stops Kafka and the cluster before it ends.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    run({name: benches[name] for name in chosen}, given)
    return 0


def run(benches: dict[str, Bench], given: argparse.Namespace) -> None:
    """Run the benches one after the other, in one folder that is deleted at the end."""
    began, outcomes = time.monotonic(), []
    with data_folder() as folder, closing(_lab(folder, given)) as lab:
        described = machine.describe(folder, with_peer=_has_peer(given))
        show(f"data on {described['data on']}")
        for name, bench in benches.items():
            bench_began = time.monotonic()
            outcomes.append(bench(lab))
            for row in outcomes[-1].rows:
                print(json_line(row), flush=True)
            show(f"{name} took {time.monotonic() - bench_began:.0f} s")
    if given.report is not None:
        rows = [row for outcome in outcomes for row in outcome.rows]
        notes = [note for outcome in outcomes for note in outcome.notes]
        named = {"make bench-cloud": given.cloud, "make soak": given.soak, "make bench-long": given.long}
        command = next((command for command, is_given in named.items() if is_given), "make bench")
        day = f"{datetime.now(UTC):%Y-%m-%d}"
        whole = Run(command, day, round(time.monotonic() - began), described, rows, notes)
        write_report(given.report, whole, outcomes)


def _has_peer(given: argparse.Namespace) -> bool:
    return not (given.soak or given.cloud)


def _lab(folder: Path, given: argparse.Namespace) -> Lab:
    return Lab(folder, given.rounds, busy_minutes=given.minutes, busy_commits_per_s=given.commits_per_s)


if __name__ == "__main__":
    sys.exit(main())
