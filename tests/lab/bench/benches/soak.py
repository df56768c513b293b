"""`soak_commits`: a log's speed after very many commits; `soak_disk`: disk use under load with `retention.bytes`.

I/O: one log with its upkeep on the local disk, as a broker runs it; then a cluster of three brokers. Settings of upkeep
are the defaults: with shorter ones a fault showed in no bench that deleted nothing at the default.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pyarrow as pa

from stratalog import Producer
from stratalog.replication.config import BrokerConfig
from stratalog.replication.replica.upkeep_rounds import UpkeepRounds
from stratalog.replication.threads.interpreter import share_interpreter
from stratalog.storage.clock import RandomIds, SystemClock
from stratalog.storage.delta.delta_table import DeltaLogTable
from stratalog.storage.errors import StratalogError
from stratalog.storage.files.cache import FileCache
from stratalog.storage.log.append import Appended
from stratalog.storage.log.partition_log import PartitionLog
from stratalog.storage.log.reader import LogReader
from stratalog.storage.objects.opened import open_store
from stratalog.storage.records import PAYLOAD_SCHEMA, NewRecordBatch, TopicPartition
from stratalog.storage.topic_config import LogConfig
from stratalog.storage.upkeep.chore import UpkeepDone, UpkeepLimits
from stratalog.storage.upkeep.upkeep import Upkeep
from tests.lab.bench import machine
from tests.lab.bench.lab import BROKERS, PARTITIONS, Curve, Lab, Outcome, show
from tests.lab.bench.measures import Row, Spread, quantile

RUNS, COMMITS, SHORTER_TIMES = 3, 100_000, 100
WARM_COMMITS, WARM_S = 55_000, 80
"""Commits before the measured ones, and their time at least. After so many the oldest commits are deleted, and after so
long (`file.delete.delay.ms` and the time of a few checkpoints) the oldest files, so that all upkeep is at work."""
RECORDS_A_COMMIT, VALUE_BYTES, DISTINCT_RECORDS = 10, 100, 100_000
SAMPLE_COMMITS = 1_000
UPKEEP_MS, REST_MS = 1_000, 3_000
LOOK_UPS, REOPENS = 300, 5
FIRST_MS = 1_700_000_000_000
LOAD_S, LOAD_SAMPLE_S = 600, 2
LOAD_PER_S = 200_000
"""Records a second at most, of 100 bytes."""
RETENTION_BYTES, SEGMENT_BYTES = 32 << 20, 8 << 20
PARTITION = TopicPartition("soak", 0)


@dataclass(frozen=True, slots=True)
class Moment:
    """What is on storage after a number of commits."""

    commits: int
    live_files: int
    delta_log_entries: int
    data_files: int


@dataclass(slots=True)
class Grown:
    """A log after its commits: the milliseconds of each, and what was on storage in between. `warm_count`: of the
    commits that are not measured."""

    root: Path
    append_ms: list[float]
    moments: list[Moment]
    warm_count: int = 0

    def tenths_ms(self) -> list[list[float]]:
        counted = self.append_ms[self.warm_count :]
        tenth = len(counted) // 10
        return [counted[start : start + tenth] for start in range(0, 10 * tenth, tenth)]

    def reopened(self) -> LogReader:
        return LogReader(_table(self.root), SystemClock())


def soak_commits(lab: Lab) -> Outcome:
    """100,000 commits to one log with upkeep on: what a commit, a look-up and opening cost first and last."""
    runs = [grow(lab.folder / lab.fresh("soak"), COMMITS, WARM_COMMITS, WARM_S) for _ in range(RUNS)]
    whole = runs[-1]
    short = grow(lab.folder / lab.fresh("soak"), COMMITS // SHORTER_TIMES)
    tenths = [run.tenths_ms() for run in runs]
    for each in tenths:
        show(f"soak_commits: p50 of each tenth {[round(quantile(tenth, 0.5), 3) for tenth in each]} ms")
    last, first = [each[-1] for each in tenths], [each[0] for each in tenths]
    rows = [
        _against("soak_commit", name, last, first, share, "the first tenth")
        for name, share in (("p50", 0.5), ("p99", 0.99))
    ]
    rows += [
        _most("soak_live_files", runs, lambda moment: moment.live_files),
        _most("soak_delta_log_entries", runs, lambda moment: moment.delta_log_entries),
        _most("soak_data_files", runs, lambda moment: moment.data_files),
        Row("soak_reopen", "", "ms", True, Spread.of([_reopen_ms(whole) for _ in range(REOPENS)]), None),
        *_look_ups(whole, short),
    ]
    for row in rows:
        show(f"{row.bench} {row.of}: {row.ours} against {row.peer}")
    commits = [moment.commits for moment in whole.moments]
    p50 = [quantile(whole.append_ms[max(0, at - SAMPLE_COMMITS) : at], 0.5) for at in commits]
    curves = (
        Curve(f"commit, p50 of {SAMPLE_COMMITS:,} [ms]", commits, p50),
        Curve("live files", commits, [moment.live_files for moment in whole.moments]),
        Curve("entries of _delta_log", commits, [moment.delta_log_entries for moment in whole.moments]),
        Curve("data files on storage", commits, [moment.data_files for moment in whole.moments]),
    )
    return Outcome(rows, curves={"soak-commits": ("commits", curves)})


def _table(root: Path, cache: FileCache | None = None) -> DeltaLogTable:
    return DeltaLogTable(open_store(str(root), create=True), str(PARTITION), RandomIds(), cache)


def grow(root: Path, commits: int, warm_commits: int = 0, warm_s: int = 0) -> Grown:
    """Make commits as fast as upkeep allows, with a broker's upkeep, and return when that has nothing left to do.
    Before them at least `warm_commits`, for at least `warm_s`."""
    share_interpreter()  # as brokers do
    clock, ids = SystemClock(), RandomIds()
    config = LogConfig.from_properties({"retention.ms": -1})
    log = PartitionLog(_table(root, FileCache(BrokerConfig().stratalog_tail_cache_bytes)), config, clock, ids)
    log.exists_or_create(ids.new_id())
    log.start_epoch(0, as_leader=True)
    batches, grown = _batches(), Grown(root, [], [])
    with ThreadPoolExecutor(1) as executor:
        rounds, due_ms, worked_ms = UpkeepRounds(clock), 0, 0
        rounds.add(PARTITION, Upkeep(log, UpkeepLimits(), executor))

        def step(_: TopicPartition, upkeep: Upkeep, is_busy: bool) -> UpkeepDone | None:
            nonlocal worked_ms
            done = upkeep.step(clock.wall_ms(), log.log_end_offset, 0, is_busy=is_busy)
            worked_ms = clock.monotonic_ms() if done is not None else worked_ms
            return done

        for number in _numbers(grown, commits, warm_commits, warm_s):
            batch = batches(number)
            began = time.perf_counter()
            if pause_ms := rounds.append_pause_ms(PARTITION, 1):
                clock.sleep_ms(pause_ms)
            if not isinstance(log.append([batch], 0, clock.wall_ms()), Appended):
                raise RuntimeError(f"commit {number} lost a race, although it has the only writer")
            grown.append_ms.append((time.perf_counter() - began) * 1_000)
            if clock.monotonic_ms() >= due_ms or rounds.is_pressing:
                rounds.run(step, _broken)
                due_ms = clock.monotonic_ms() + UPKEEP_MS
            if (number + 1) % SAMPLE_COMMITS == 0:
                grown.moments.append(_moment(root, number + 1, log))
        worked_ms = clock.monotonic_ms()
        while clock.monotonic_ms() < worked_ms + REST_MS:
            rounds.run(step, _broken)
            clock.sleep_ms(20)
    return grown


def _numbers(grown: Grown, commits: int, warm_commits: int, warm_s: int) -> Iterator[int]:
    """The numbers of the commits; `warm_count` is set once it is known."""
    end_s = time.perf_counter() + warm_s
    while grown.warm_count < warm_commits or time.perf_counter() < end_s:
        yield grown.warm_count
        grown.warm_count += 1
    yield from range(grown.warm_count, grown.warm_count + commits)


def _broken(topic_partition: TopicPartition, reason: StratalogError) -> None:
    raise RuntimeError(f"{topic_partition} has no upkeep any more") from reason


def _batches() -> Callable[[int], NewRecordBatch]:
    """Batches by number; the records' timestamps go up by a millisecond."""
    rng = Random(0)
    values = pa.array([rng.randbytes(VALUE_BYTES // 2).hex().encode() for _ in range(DISTINCT_RECORDS)], pa.binary())
    keys, headers = (pa.nulls(RECORDS_A_COMMIT, PAYLOAD_SCHEMA.field(name).type) for name in ("key", "headers"))

    def batch(number: int) -> NewRecordBatch:
        first_ms = FIRST_MS + number * RECORDS_A_COMMIT
        times = pa.array(range(first_ms, first_ms + RECORDS_A_COMMIT), PAYLOAD_SCHEMA.field("timestamp").type)
        first = number * RECORDS_A_COMMIT % DISTINCT_RECORDS
        own = values.take(pa.array(range(first, first + RECORDS_A_COMMIT)))  # memory of its own, as a producer's batch
        return NewRecordBatch(pa.Table.from_arrays([times, keys, own, headers], schema=PAYLOAD_SCHEMA))

    return batch


def _moment(root: Path, commits: int, log: PartitionLog) -> Moment:
    table = root / str(PARTITION)
    data_files = sum(len(names) for folder in table.glob("segment=*") for _, _, names in os.walk(folder))
    return Moment(commits, len(log.files), len(os.listdir(table / "_delta_log")), data_files)


def _against(
    bench: str, of: str, ours: Sequence[Sequence[float]], other: Sequence[Sequence[float]], share: float, what: str
) -> Row:
    """A quantile of two parts of each run."""
    here, there = (Spread.of([quantile(values, share) for values in parts]) for parts in (ours, other))
    return Row(bench, of, "ms", True, here, there, what)


def _most(bench: str, runs: Sequence[Grown], count: Callable[[Moment], int]) -> Row:
    """The largest count after the first tenth of each run's measured commits, beside the one in its second tenth."""
    counts = [[count(each) for each in run.moments if each.commits > run.warm_count] for run in runs]
    tenth = len(counts[0]) // 10
    steady, second = ([max(each[tenth:end]) for each in counts] for end in (None, 2 * tenth))
    return Row(bench, "most", "", True, Spread.of(steady), Spread.of(second), peer_is="the second tenth")


def _reopen_ms(grown: Grown) -> float:
    began = time.perf_counter()
    log = grown.reopened()
    if log.log_end_offset != len(grown.append_ms) * RECORDS_A_COMMIT or len(log.producers.producers):
        raise RuntimeError(f"reopened at {log.log_end_offset}")
    return (time.perf_counter() - began) * 1_000


def _look_ups(whole: Grown, short: Grown) -> list[Row]:
    """By offset and by time, on both logs in turns."""
    rng, logs = Random(1), (whole.reopened(), short.reopened())
    ends = [log.log_end_offset for log in logs]
    offset_ms: tuple[list[float], list[float]] = ([], [])
    time_ms: tuple[list[float], list[float]] = ([], [])
    for _ in range(LOOK_UPS):
        for log, end, by_offset, by_time in zip(logs, ends, offset_ms, time_ms, strict=True):
            wanted = rng.randrange(end)
            began = time.perf_counter()
            found = log.read(wanted, 1)["offset"][0].as_py()
            by_offset.append((time.perf_counter() - began) * 1_000)
            began = time.perf_counter()
            at = log.offset_for_timestamp(FIRST_MS + wanted)
            by_time.append((time.perf_counter() - began) * 1_000)
            if (found, at) != (wanted, (wanted, FIRST_MS + wanted)):
                raise RuntimeError(f"looked for offset {wanted}, found {found} and {at}")
    what = f"a log {SHORTER_TIMES} times shorter"
    return [
        _against(bench, name, latencies[:1], latencies[1:], share, what)
        for bench, latencies in (("soak_offset_look_up", offset_ms), ("soak_time_look_up", time_ms))
        for name, share in (("p50", 0.5), ("p99", 0.99))
    ]


def soak_disk(lab: Lab) -> Outcome:
    """Ten minutes of `LOAD_PER_S` with `retention.bytes`: what the topic takes on the disks of three brokers.

    What retention removes stays for the default `file.delete.delay.ms`, so the rate decides what the disk has to hold.
    Retention is checked each second, not each five minutes, for the same reason.
    """
    sampled: list[tuple[float, float]] = []
    with lab.cluster(log_retention_check_interval_ms=1_000) as cluster:
        topic = lab.topic(
            cluster,
            "soak",
            retention_bytes=RETENTION_BYTES,
            segment_bytes=SEGMENT_BYTES,
        )
        folders = [
            cluster.path / f"broker-{broker}" / f"{topic}-{partition}"
            for broker in range(1, BROKERS + 1)
            for partition in range(PARTITIONS)
        ]
        payload, sent, records = lab.payload(100), 0, 0
        began = time.perf_counter()
        with Producer(cluster, acks="all") as producer:
            while (passed_s := time.perf_counter() - began) < LOAD_S:
                producer.send_table(topic, payload.table(sent))
                records += payload.table(sent).num_rows
                sent += 1
                if passed_s >= len(sampled) * LOAD_SAMPLE_S:
                    sampled.append((passed_s, machine.allocated_bytes(folders) / (1 << 20)))
                time.sleep(max(0.0, records / LOAD_PER_S - passed_s))
            producer.flush()
    show(f"soak_disk: {records / LOAD_S:.0f}/s, MiB {[round(mib) for _, mib in sampled[:: len(sampled) // 20]]}")
    half = len(sampled) // 2
    early, late = ([mib for _, mib in part] for part in (sampled[half // 5 : half], sampled[half:]))
    limit_mib = RETENTION_BYTES / (1 << 20) * PARTITIONS * BROKERS
    more = {"records_per_s": round(records / LOAD_S), "retention_mib": limit_mib, "median": statistics.median(late)}
    row = Row(
        "soak_disk", "most", "MiB", True, Spread.of([max(late)]), Spread.of([max(early)]), "the minutes before", more
    )
    curve = Curve("disk blocks of all replicas [MiB]", [at_s for at_s, _ in sampled], [mib for _, mib in sampled])
    return Outcome([row], curves={"soak-disk": ("seconds", (curve,))})
