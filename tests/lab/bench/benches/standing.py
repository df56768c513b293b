"""The standing costs of a cluster: idle_cpu, disk_bytes, memory.

I/O: both clusters, /proc, the files below their folders. CPU and memory are of all processes of a side: ours is this
process with its brokers, Spark's JVM and the Python workers of the fetch sessions.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import pyarrow as pa

from stratalog import Admin, Cluster, Producer
from stratalog.jobs.demo.log import read_lines
from tests.lab.bench import machine
from tests.lab.bench.lab import BROKERS, Lab, Outcome, show
from tests.lab.bench.measures import Row, Spread, slope
from tests.lab.bench.peer.kafka import NODES

IDLE_PARTITIONS = 300
IDLE_S, SETTLE_S = 10, 12
LINES_A_TABLE = 1_000
STILL_S, STILL_MAX_S = 8, 90
MEMORY_S, MEMORY_FROM_S, MEMORY_RECORDS_PER_S, MEMORY_TABLES_PER_S = 600, 120, 20_000, 20


def idle_cpu(lab: Lab) -> Outcome:
    """300 partitions with three replicas and nothing to do, as a share of one core; both sides in the same windows."""
    ours, peer = [], []
    with lab.cluster() as cluster:
        lab.topic(cluster, "idle", IDLE_PARTITIONS)
        lab.peer_topic("idle", IDLE_PARTITIONS)
        time.sleep(SETTLE_S)
        for _ in range(lab.rounds):
            before, began = _cpu_s(lab), time.perf_counter()
            time.sleep(IDLE_S)
            took_s = time.perf_counter() - began
            mine, others = (_used_s(now, then) / took_s for now, then in zip(_cpu_s(lab), before, strict=True))
            ours.append(100 * mine)
            peer.append(100 * others)
            show(f"idle_cpu: {ours[-1]:.1f} % against {peer[-1]:.1f} % of one core")
    lab.peer.delete_topics("idle-.*")
    return Outcome([Row("idle_cpu", "", "% of one core", True, Spread.of(ours), Spread.of(peer))])


def _cpu_s(lab: Lab) -> tuple[dict[int, float], dict[int, float]]:
    """CPU seconds by process: of ours, and of the peer's brokers, which are children of this process, too."""
    peer = machine.cpu_s_by_process(lab.peer.pids)
    return machine.cpu_s_by_process(lab.own_pids, without=lab.peer_pids), peer


def _used_s(now: dict[int, float], then: dict[int, float]) -> float:
    """CPU seconds used between two samples, without processes that ended meanwhile."""
    return sum(seconds - then.get(pid, 0.0) for pid, seconds in now.items())


def disk_bytes(lab: Lab) -> Outcome:
    """The web log, values only, zstd on both sides: disk blocks of all three replicas with everything beside them."""
    lines = read_lines()
    file = lab.folder / "access.log"
    file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    with lab.cluster(stratalog_checkpoint_interval_ms=2_000) as cluster:
        topics = [
            lab.topic(
                cluster, "disk", compression_type="zstd", file_delete_delay_ms=1_000, stratalog_snapshot_retention_ms=0
            )
            for _ in range(lab.rounds)
        ]
        for topic in topics:
            _send_lines(cluster, topic, lines)
        peer_topics = [lab.peer_topic("disk") for _ in topics]
        for topic in peer_topics:
            lab.peer.program(
                "ManyProducers", lab.peer.bootstrap, topic, 1, len(lines), 0, file, "compression.type=zstd"
            )
        peer = [machine.allocated_bytes(_folders(map(lab.peer.data, NODES), topic)) for topic in peer_topics]
        brokers = [cluster.path / f"broker-{number}" for number in range(1, BROKERS + 1)]
        ours = _when_still(brokers, topics)
        sealed = _sealed(lab, cluster, lines, file)
    lab.peer.delete_topics("disk-.*")
    show(f"disk_bytes: {ours} against {peer}")
    more = {"lines": len(lines), "bytes_of_lines": file.stat().st_size, "replicas": BROKERS}
    return Outcome([Row("disk_bytes", "", "bytes", True, Spread.of(ours), Spread.of(peer), more=more), sealed])


def _sealed(lab: Lab, cluster: Cluster, lines: list[str], file: Path) -> Row:
    """One partition whose segment was rolled and merged, commit log counted, against the peer's `.log` files alone."""
    topic = lab.topic(
        cluster, "disk", 1, compression_type="zstd", file_delete_delay_ms=1_000, stratalog_snapshot_retention_ms=0
    )
    _send_lines(cluster, topic, lines)
    Admin(cluster).alter_configs(topic, {"segment.ms": 1})
    _send_lines(cluster, topic, lines[-1:])  # makes the next segment, which has this line alone
    peer_topic = lab.peer_topic("disk", 1)
    lab.peer.program("ManyProducers", lab.peer.bootstrap, peer_topic, 1, len(lines), 0, file, "compression.type=zstd")
    logs = [path for root in map(lab.peer.data, NODES) for path in (root / f"{peer_topic}-0").glob("*.log")]
    replicas = [cluster.path / f"broker-{number}" / f"{topic}-0" for number in range(1, BROKERS + 1)]
    _when_still([path.parent for path in replicas], [topic])
    ours, peer = [[_blocks_of(path) for path in paths] for paths in (replicas, logs)]
    parts = {name: sum(f.stat().st_size for f in replicas[0].glob(name)) for name in ("segment=*/**/*", "_delta_log/*")}
    more = {"bytes_of_data": parts["segment=*/**/*"], "bytes_of_delta_log": parts["_delta_log/*"]}
    show(f"disk_bytes, one partition: {ours} against {peer}, {more}")
    return Row("disk_bytes", "one sealed replica", "bytes", True, Spread.of(ours), Spread.of(peer), more=more)


def _blocks_of(path: Path) -> int:
    return path.stat().st_blocks * 512 if path.is_file() else machine.allocated_bytes([path])


def _send_lines(cluster: Cluster, topic: str, lines: list[str]) -> None:
    with Producer(cluster, acks="all", compression_type="zstd") as producer:
        for first in range(0, len(lines), LINES_A_TABLE):
            values = [line.encode() for line in lines[first : first + LINES_A_TABLE]]
            producer.send_table(topic, pa.table({"value": pa.array(values, pa.binary())}))
        producer.flush()


def _folders(roots: Iterable[Path], topic: str) -> list[Path]:
    return [folder for root in roots for folder in root.glob(f"{topic}-*")]


def _when_still(brokers: list[Path], topics: list[str]) -> list[int]:
    """Bytes by topic once merges and the removal of what they replaced have come to rest."""
    began = changed = time.monotonic()
    found: list[int] = []
    while time.monotonic() - changed < STILL_S and time.monotonic() - began < STILL_MAX_S:
        now = [machine.allocated_bytes(_folders(brokers, topic)) for topic in topics]
        if now != found:
            found, changed = now, time.monotonic()
        time.sleep(1)
    return found


def memory(lab: Lab) -> Outcome:
    """Ten minutes at 20,000 records a second: how fast resident memory rises from the second minute on. It is sampled
    every second, since each merge uses more memory for a moment, and it is chance which samples see one."""
    rows = MEMORY_RECORDS_PER_S // MEMORY_TABLES_PER_S
    once: list[tuple[float, dict[str, float]]] = []
    each: list[tuple[float, dict[str, float]]] = []
    with lab.cluster() as cluster:
        topic, payload = lab.topic(cluster, "memory"), lab.payload(100)
        with Producer(cluster, acks="all") as producer:
            start = time.perf_counter()
            for number in range(MEMORY_S * MEMORY_TABLES_PER_S):
                due = start + number / MEMORY_TABLES_PER_S
                time.sleep(max(0.0, due - time.perf_counter()))
                producer.send_table(topic, payload.table(number).slice(number % 10 * rows, rows))
                if number % MEMORY_TABLES_PER_S == 0:
                    once.append((number / MEMORY_TABLES_PER_S, machine.resident_mib(lab.own_pids)))
                if number % (5 * MEMORY_TABLES_PER_S) == 0:
                    each.append((number / MEMORY_TABLES_PER_S, machine.resident_mib_of_each(lab.own_pids)))
            producer.flush()
    rises, last = _rises(once), once[-1][1]
    show(f"memory: {rises} MiB a minute, in the end {last}; shared pages counted in each process: {_rises(each)}")
    more = {f"{name}_mib_in_the_end": round(mib) for name, mib in last.items()}
    counted_in_each = Spread.of([sum(_rises(each).values())])
    return Outcome(
        [
            Row("memory", "", "MiB a minute", True, Spread.of([sum(rises.values())]), None, more=more),
            Row("memory", "Python processes alone", "MiB a minute", True, Spread.of([rises["python"]]), None),
            Row("memory", "shared pages counted in each process", "MiB a minute", True, counted_in_each, None),
        ]
    )


def _rises(samples: Sequence[tuple[float, dict[str, float]]]) -> dict[str, float]:
    """MiB a minute by program, least squares from the second minute on; `samples`: (seconds, MiB by program)."""
    late = [(at_s / 60, mib) for at_s, mib in samples if at_s >= MEMORY_FROM_S]
    return {name: slope([(minute, mib.get(name, 0.0)) for minute, mib in late]) for name in ("python", "java")}
