"""`python -m tests.lab.real.black_hole.run`: the root of one of three brokers answers nothing, and its process lives.

I/O: a cluster in this process whose third broker's root is a FUSE mount of a server that is stopped (`--kind mount`;
needs root and /dev/fuse), or all roots on an S3 double that never answers below that root (`--kind s3`). An open loop
of records with acks=all goes to partitions with three replicas and `min.insync.replicas=2`. Shown are the latencies
before, the longest pause of acknowledgements after the root was lost, and the latencies from then on.

--kind mount|s3     --seconds 60   how long the root answers nothing     --before 20   seconds before that
--rate 100          records a second over six partitions
--session 9000      broker.session.timeout.ms
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from stratalog import Admin, Cluster, NewTopic, Producer, RecordMetadata, StratalogError
from tests.lab.real.harness.command import options, work_folder
from tests.lab.real.power.disks import Disks, why_not
from tests.lab.real.power.volatile_disk import Rules
from tests.stores.s3_double import BUCKET, s3_double

PARTITIONS, TOPIC = 6, "orders"
DEAD = 3
"""The broker whose root is lost."""
REQUEST_MS = 10_000
"""The producer's `request.timeout.ms`: for so long it waits for an answer of a leader that is stuck."""


@dataclass(frozen=True, slots=True)
class Answered:
    """A record: when it was due, when it was acknowledged, seconds since the root was lost; who led its partition."""

    due_s: float
    at_s: float
    leader: int
    error: str = ""


@contextmanager
def on_a_mount(folder: Path) -> Iterator[tuple[str | Path, Callable[[], None], Callable[[], None]]]:
    """`(place of the cluster, lose the root, find it again)`."""
    reason = why_not()
    if reason:
        raise SystemExit(reason)
    with Disks(Rules()) as disks:
        disks.mount("broker", folder / "cluster" / f"broker-{DEAD}")
        try:
            yield folder / "cluster", disks.pause, disks.resume
        finally:
            disks.resume()


@contextmanager
def on_s3(_folder: Path) -> Iterator[tuple[str | Path, Callable[[], None], Callable[[], None]]]:
    """`(place of the cluster, lose the root, find it again)`."""
    with s3_double() as double:
        os.environ.update(double.environment())

        def lose() -> None:
            double.silent_below = f"cluster/broker-{DEAD}"

        def find() -> None:
            double.silent_below = ""
            double.answers_again.set()

        try:
            yield f"s3://{BUCKET}/cluster", lose, find
        finally:
            find()


KINDS = {"mount": on_a_mount, "s3": on_s3}


def percentile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else float("nan")


def figures(answers: list[Answered], seconds: float) -> dict[str, object]:
    """Pauses in seconds, latencies in ms. `pause_s`: of the partitions that a living broker led from the beginning,
    between two acknowledgements. `after_ms`: of records that were due when the last request to the lost leader had
    timed out."""
    good = [each for each in answers if not each.error]
    times = sorted(each.at_s for each in good if each.leader != DEAD and 0 < each.at_s <= seconds)
    points = [0.0, *times, seconds]
    gaps = [(late - early, early) for early, late in pairwise(points)]
    pause_s, began_s = max(gaps)
    calm_s = max(began_s + pause_s, REQUEST_MS / 1_000) + 2
    before = [1_000 * (each.at_s - each.due_s) for each in good if each.due_s < -1]
    after = [1_000 * (each.at_s - each.due_s) for each in good if calm_s < each.due_s < seconds - 1]
    return {
        "pause_s": round(pause_s, 2),
        "pause_began_s": round(began_s, 2),
        "longest_pause_after_that_s": round(max((gap for gap, at in gaps if at > calm_s), default=0.0), 3),
        "before_ms": {f"p{share}": round(percentile(before, share / 100), 1) for share in (50, 99)},
        "after_ms": {f"p{share}": round(percentile(after, share / 100), 1) for share in (50, 99)},
        "records_before": len(before),
        "records_after": len(after),
        "errors": sorted({each.error for each in answers if each.error}),
    }


def load(cluster: Cluster, rate: int, before_s: float, seconds: float, lose: Callable[[], None]) -> list[Answered]:
    """Send at a fixed rate; after `before_s` the root is lost."""
    leaders = {
        number: partition.leader
        for number, partition in enumerate(Admin(cluster).describe_topics([TOPIC])[TOPIC].partitions)
    }
    answers: list[Answered] = []
    times = {"linger_ms": 0, "delivery_timeout_ms": 60_000, "request_timeout_ms": REQUEST_MS}
    with Producer(cluster, acks="all", **times) as producer:
        begun = time.perf_counter()
        lost = begun + before_s
        timer = threading.Timer(before_s, lose)
        timer.start()
        for number in range(int(rate * (before_s + seconds))):
            due = begun + number / rate
            partition = number % PARTITIONS

            def answered(
                _: RecordMetadata | None, error: StratalogError | None, due: float = due, partition: int = partition
            ) -> None:
                name = "" if error is None else error.name
                answers.append(Answered(due - lost, time.perf_counter() - lost, leaders[partition], name))

            if (pause_s := due - time.perf_counter()) > 0:
                time.sleep(pause_s)
            producer.send(TOPIC, b"x" * 100, partition=partition, on_delivery=answered)
        producer.flush(60)
        timer.join()
    return answers


def main(arguments: list[str] | None = None) -> int:
    """The command; its exit code."""
    parser = options(__doc__)
    parser.add_argument("--kind", choices=KINDS, default="mount")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--before", type=float, default=20)
    parser.add_argument("--rate", type=int, default=100)
    parser.add_argument("--session", type=int, default=9_000)
    given = parser.parse_args(arguments)
    config = {"broker.session.timeout.ms": given.session}
    with work_folder(given.folder, "black-hole") as folder, KINDS[given.kind](folder) as (place, lose, find):
        cluster = Cluster.start(place, 3, fetcher="thread", config=config)
        try:
            Admin(cluster).create_topics([NewTopic(TOPIC, PARTITIONS, 3, {"min.insync.replicas": 2})])
            answers = load(cluster, given.rate, given.before, given.seconds, lose)
            print(json.dumps({"kind": given.kind, **figures(answers, given.seconds)}), flush=True)
        finally:
            find()
            cluster.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
