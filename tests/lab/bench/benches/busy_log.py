"""`busy_log`: hundreds of commits a second on one partition at default settings; what stays on storage and in memory.

I/O: a cluster of two brokers, whose follower fetches in Spark. Every commit adds a file, which a merge removes again:
as many files a second have to be deleted as are committed, and as many commits. Fetch sessions are shorter than by
default, so that the follower hands over at least ten times within the run; all other settings are the defaults.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq

from stratalog import Admin, Cluster, Producer, StratalogError
from stratalog.storage.delta.checkpoint import checkpoint_file
from stratalog.storage.records import TopicPartition
from tests.lab.bench import machine
from tests.lab.bench.benches.latency import hand_overs_s
from tests.lab.bench.lab import Curve, Lab, Outcome, show
from tests.lab.bench.measures import Row, Spread

SAMPLE_S = 10
SESSIONS = 12
"""Fetch sessions of the follower within a run. Two overlap, so it hands over about twice as often."""
SESSION_MS_MIN = 10_000
HAND_OVERS_MIN = 10
BEHIND_S_MAX = 1.0
"""Requests that are due longer ago than this are left out: a rate that was not reached must not be made up for."""
VALUES = 1_000
SIDES = ("leader", "follower")
LOG = "_delta_log"


@dataclass(frozen=True, slots=True)
class Held:
    """What one replica holds on storage. `inodes`: files and directories; `tombstones`: of the newest checkpoint."""

    inodes: int
    data_files: int
    commits: int
    tombstones: int

    @staticmethod
    def of(table: Path) -> Held:
        """Of a replica's directory, while it changes: a listing may return a name twice, which counts once."""
        found = {top: set(names) for top, _, names in os.walk(table)}
        return Held(
            inodes=sum(1 + len(names) for names in found.values()),
            data_files=sum(len(names) for top, names in found.items() if "segment=" in top),
            commits=sum(name.endswith(".json") for top, names in found.items() for name in names if top.endswith(LOG)),
            tombstones=_tombstones(table / LOG / "_last_checkpoint"),
        )


@dataclass(frozen=True, slots=True)
class Sample:
    """A sample `at_s` seconds from the start: the replicas in the order of `SIDES`, and MiB of memory by process."""

    at_s: float
    version: int
    replicas: tuple[Held, ...]
    memory_mib: Mapping[str, float]


def busy_log(lab: Lab) -> Outcome:
    """One record a commit, acks=1, as many a second as asked for. Memory is that of the process with both brokers and
    the producer, and of the workers that run the follower's sessions."""
    duration_s = lab.busy_minutes * 60
    session_ms = max(SESSION_MS_MIN, duration_s * 1_000 // SESSIONS)
    path = lab.folder / lab.fresh("busy")
    config = {"stratalog.fetch.session.ms": session_ms}
    with Cluster.start(path, len(SIDES), spark=lab.spark, config=config) as cluster:
        Admin(cluster).create_topic("busy", 1, len(SIDES))
        place = TopicPartition("busy", 0)
        leader = Admin(cluster).describe_topics(["busy"])["busy"].partitions[0].leader
        order = sorted(cluster.brokers(), key=lambda broker_id: broker_id != leader)
        tables = [path / f"broker-{broker_id}" / str(place) for broker_id in order]
        began_ms = round(1_000 * time.time())
        samples = load(lab, cluster, duration_s, lambda at_s: sample(at_s, tables))
        hand_overs = len(hand_overs_s(cluster, began_ms, duration_s)[order[1]])
    rate = (samples[-1].version - samples[0].version) / (samples[-1].at_s - samples[0].at_s)
    note = (
        f"`busy_log`: {lab.busy_minutes} min, {lab.busy_commits_per_s} commits/s asked for, {rate:.0f}/s made; the "
        f"follower handed over between fetch sessions of {session_ms // 1_000} s {hand_overs} times."
    )
    if hand_overs < HAND_OVERS_MIN:
        note += f" That is fewer than the {HAND_OVERS_MIN} wanted."
    show(note)
    rows = [Row("busy_log", "commits/s", "commits/s", False, Spread.of([rate]), None), *_rows(samples)]
    return Outcome(rows, (note,), curves={"busy-log": ("seconds", _curves(samples))})


def load(lab: Lab, cluster: Cluster, duration_s: int, sampled: Callable[[float], Sample]) -> list[Sample]:
    """Send at the rate for so long, and sample; the first sample is from before."""
    payload = lab.payload(100)
    values = [payload.value(number) for number in range(VALUES)]
    samples, number = [sampled(0.0)], 0
    failures: list[StratalogError] = []
    with Producer(cluster, acks="1", linger_ms=0) as producer:
        start = time.perf_counter()
        while (now_s := time.perf_counter() - start) < duration_s:
            due_s = number / lab.busy_commits_per_s
            if now_s >= len(samples) * SAMPLE_S:
                samples.append(sampled(now_s))
                show(f"busy_log: {samples[-1]}")
            if now_s - due_s > BEHIND_S_MAX:
                number = round(now_s * lab.busy_commits_per_s)
            elif due_s > now_s:
                time.sleep(due_s - now_s)
            producer.send(
                "busy", values[number % VALUES], partition=0,
                on_delivery=lambda _, error: failures.extend(filter(None, [error])),
            )  # fmt: skip
            number += 1
        producer.flush()
    samples.append(sampled(time.perf_counter() - start))
    if failures:
        raise failures[0]
    return samples


def sample(at_s: float, tables: Sequence[Path]) -> Sample:
    """What is on storage and in memory now."""
    return Sample(at_s, _version(tables[0]), tuple(Held.of(table) for table in tables), _memory_mib())


def _memory_mib() -> dict[str, float]:
    own = os.getpid()
    workers = [pid for pid in machine.descendants([own]) if pid != own and machine.name_of(pid) != "java"]
    return {
        "brokers": machine.proportional_mib(own),
        "fetch sessions": sum(machine.proportional_mib(pid) for pid in workers),
    }


def _tombstones(pointer: Path) -> int:
    """Those in the checkpoint that is pointed at; 0 while there is none."""
    try:
        version = json.loads(pointer.read_text(encoding="utf-8"))["version"]
        removes = pq.ParquetFile(pointer.with_name(checkpoint_file(version))).read(columns=["remove.path"])["remove"]
    except (OSError, ValueError):
        return 0
    return int(len(removes) - removes.null_count)


def _version(table: Path) -> int:
    names = [name for name in os.listdir(table / LOG) if name.endswith(".json") and name[:1].isdigit()]
    return int(max(names).removesuffix(".json"))


def _figures(samples: Sequence[Sample]) -> dict[str, tuple[str, list[float]]]:
    """Each figure's unit and values over the run."""
    found: dict[str, tuple[str, list[float]]] = {}
    for number, side in enumerate(SIDES):
        held = [each.replicas[number] for each in samples]
        found[f"inodes of the {side}"] = ("", [each.inodes for each in held])
        found[f"data files of the {side}"] = ("", [each.data_files for each in held])
        found[f"commits of the {side}"] = ("", [each.commits for each in held])
        found[f"tombstones of the {side}"] = ("", [each.tombstones for each in held])
    for name in samples[0].memory_mib:
        found[f"memory of the {name}"] = ("MiB", [each.memory_mib[name] for each in samples])
    return found


def _rows(samples: Sequence[Sample]) -> list[Row]:
    """The second half's most against that of the first half."""
    half, rows = len(samples) // 2, []
    for what, (unit, values) in _figures(samples).items():
        late, early = (Spread.of([max(part)]) for part in (values[half:], values[:half]))
        rows.append(Row("busy_log", what, unit, True, late, early, "the first half"))
    return rows


def _curves(samples: Sequence[Sample]) -> tuple[Curve, ...]:
    at_s = [each.at_s for each in samples]
    return tuple(
        Curve(f"{what} [{unit}]" if unit else what, at_s, values) for what, (unit, values) in _figures(samples).items()
    )
