"""Where the time of one tiny record goes, from produce to consume: a table in Markdown for docs/measurements.json.

I/O: a cluster of ours. Two runs of single records: one at a time, and 200 a second. The first has its followers in
threads of this process, where each step can be measured: CPU without that of the steps inside it, per call and per
record, over all three replicas. The second is the cluster as it runs, with CPU by kind of thread and process.
"""

from __future__ import annotations

import functools
import importlib
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from stratalog import Cluster, Consumer, Producer
from tests.lab.bench import machine
from tests.lab.bench.benches.latency import OpenLoop, ours
from tests.lab.bench.lab import BROKERS, PARTITIONS, Lab, Outcome, show

RECORDS, WARM_RECORDS = 1_000, 200
LOOP = OpenLoop(PARTITIONS, 200, 8, 20)


@dataclass(frozen=True, slots=True)
class Step:
    """A function of ours on the record's way; `is_floor`: it mostly waits for the kernel or for Parquet."""

    way: str
    what: str
    place: str
    is_floor: bool = False


STEPS = (
    Step("produce", "record into a batch", "stratalog.clients.producer.producer:Producer.send"),
    Step("produce", "sender's turn", "stratalog.clients.producer.sender:Sender._turn"),
    Step("append", "broker's turn: the rest of it", "stratalog.replication.broker.broker:Broker.step"),
    Step("append", "group, answers, acks", "stratalog.replication.leader.replica:LeaderReplica.append_waiting"),
    Step("append", "checks of the batch", "stratalog.storage.log.append:admit"),
    Step("append", "commit prepared and folded", "stratalog.storage.log.partition_log:PartitionLog.append"),
    Step(
        "fetch",
        "session's turn: the rest of it",
        "stratalog.replication.follower.sessions.fetch_session:FollowerSession.step",
    ),
    Step("fetch", "which partitions", "stratalog.replication.follower.partitions:FollowedPartitions.catch_up"),
    Step("fetch", "one partition", "stratalog.replication.follower.replica:FollowedReplica.catch_up"),
    Step("fetch", "plan, commit prepared and folded", "stratalog.storage.log.partition_log:PartitionLog.copy_from"),
    Step("fetch", "data file copied", "stratalog.storage.delta.delta_table:DeltaLogTable.copy_file", is_floor=True),
    Step("high watermark", "followers' progress", "stratalog.replication.progress.follower_watch:FollowerWatch.poll"),
    Step("high watermark", "progress written", "stratalog.replication.progress.progress_object:ProgressWriter.publish"),
    Step("consume", "consumer's poll", "stratalog.clients.consumer.consumer:Consumer.poll"),
    Step("consume", "rows of the log", "stratalog.storage.log.reader:LogReader.read"),
    Step("all", "new commits read and folded", "stratalog.storage.log.reader:LogReader.refresh"),
    Step("all", "commit: JSON, race", "stratalog.storage.delta.commit_race:CommitRace.commit"),
    Step("all", "Parquet written", "stratalog.storage.files.batch_file:encode", is_floor=True),
    Step("all", "Parquet read", "stratalog.storage.files.batch_file:decode", is_floor=True),
    Step("all", "file created", "stratalog.storage.objects.local:LocalStore.put_new", is_floor=True),
    Step("all", "commit created if absent", "stratalog.storage.objects.local:LocalStore.create", is_floor=True),
    Step("all", "file read", "stratalog.storage.objects.local:LocalStore.get", is_floor=True),
    Step("all", "file read if it exists", "stratalog.storage.objects.local:LocalStore.get_optional", is_floor=True),
    Step("all", "register written", "stratalog.storage.objects.local:LocalStore.put_register", is_floor=True),
    Step("all", "register read", "stratalog.storage.objects.local:LocalStore.get_register", is_floor=True),
    Step("all", "waiting for news (inotify)", "stratalog.storage.objects.wakeup:Wakeup.wait_ms", is_floor=True),
)


@dataclass(slots=True)
class Spent:
    """Calls of one step, and the CPU time of the step itself in them [ns]."""

    calls: int = 0
    cpu_ns: int = 0


@dataclass(slots=True)
class Watch:
    """Counts calls and CPU time while `is_on`. Each thread keeps the CPU time of the steps inside its current step."""

    spent: dict[Step, Spent] = field(default_factory=dict)
    is_on: bool = False
    cpu_ns: Callable[[], int] = time.thread_time_ns
    _inside: threading.local = field(default_factory=threading.local)

    def wrap(self, step: Step, function: Callable[..., Any]) -> Callable[..., Any]:
        spent = self.spent.setdefault(step, Spent())
        inside = self._inside

        @functools.wraps(function)
        def watched(*arguments: Any, **named: Any) -> Any:
            outer_ns = getattr(inside, "ns", 0)
            inside.ns = 0
            began_ns = self.cpu_ns()
            try:
                return function(*arguments, **named)
            finally:
                took_ns = self.cpu_ns() - began_ns
                if self.is_on:
                    spent.calls += 1
                    spent.cpu_ns += took_ns - inside.ns
                inside.ns = outer_ns + took_ns

        return watched


def function_of(step: Step) -> tuple[Any, str]:
    """The object that has the step's function, and its name there. AttributeError when it has been renamed."""
    module, _, path = step.place.partition(":")
    *holders, name = path.split(".")
    holder: Any = importlib.import_module(module)
    for each in holders:
        holder = getattr(holder, each)
    getattr(holder, name)
    return holder, name


@contextmanager
def watched(watch: Watch) -> Iterator[None]:
    """Count every step, also where its function was imported by name."""
    undo: list[tuple[Any, str, Any]] = []
    try:
        for step in STEPS:
            holder, name = function_of(step)
            before = getattr(holder, name)
            wrapped = watch.wrap(step, before)
            modules = [m for m in list(sys.modules.values()) if getattr(m, name, None) is before]
            for place in {id(each): each for each in (holder, *modules)}.values():
                undo.append((place, name, before))
                setattr(place, name, wrapped)
        yield
    finally:
        for place, name, before in undo:
            setattr(place, name, before)


def profile(lab: Lab) -> Outcome:
    """Prints both tables; no rows, since there is no peer to compare with."""
    print(steps_table(_watched_run(lab)), flush=True)
    print()
    print(processes_table(_real_run(lab)), flush=True)
    return Outcome([])


def _watched_run(lab: Lab) -> Watch:
    watch = Watch()
    with watched(watch), Cluster.start(lab.folder / lab.fresh("cluster"), BROKERS, fetcher="thread") as cluster:
        topic = lab.topic(cluster, "profile")
        consumer = Consumer(cluster, auto_offset_reset="earliest")
        consumer.assign_all(topic)
        with Producer(cluster, acks="all", linger_ms=0) as producer:
            for number in range(WARM_RECORDS + RECORDS):
                watch.is_on = number >= WARM_RECORDS
                producer.send(topic, b"x" * 100, partition=number % PARTITIONS).result()
                while not consumer.poll(timeout_ms=1_000):
                    pass
            watch.is_on = False
        consumer.close()
    return watch


def _real_run(lab: Lab) -> dict[str, float]:
    """CPU [µs] for each record of an open loop, by kind of thread and process."""
    with lab.cluster() as cluster:
        topic = lab.topic(cluster, "profile")
        ours(lab, cluster, topic, OpenLoop(LOOP.partitions, LOOP.rate_per_s, LOOP.warm_s, 1))
        before = _cpu_s(lab)
        ours(lab, cluster, topic, OpenLoop(LOOP.partitions, LOOP.rate_per_s, 0, LOOP.window_s))
        after = _cpu_s(lab)
        show(f"profile: {after}")
    records = LOOP.rate_per_s * LOOP.window_s
    return {name: 1e6 * (after[name] - before.get(name, 0.0)) / records for name in after}


def _cpu_s(lab: Lab) -> dict[str, float]:
    """CPU seconds by kind. The sender's threads end with their producer, so clients are the rest of this process."""
    brokers = sum(_thread_cpu_s(thread) for thread in threading.enumerate() if thread.name.startswith("broker-"))
    own, whole = time.process_time(), machine.cpu_s(lab.own_pids, without=lab.peer_pids)
    java = [pid for pid in machine.descendants(lab.own_pids, without=lab.peer_pids) if machine.name_of(pid) == "java"]
    java_s = sum(machine.own_cpu_s(pid) for pid in java)
    return {
        "three brokers' loops": brokers,
        "producer, and all else in its process": own - brokers,
        "followers' Python workers": whole - own - java_s,
        "Spark's JVM": java_s,
    }


def _thread_cpu_s(thread: threading.Thread) -> float:
    assert thread.ident is not None
    return time.clock_gettime(time.pthread_getcpuclockid(thread.ident))


def steps_table(watch: Watch) -> str:
    """Microseconds of CPU by step."""
    lines = [
        "| way | step | | calls a record | µs a call | µs a record |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for step, spent in watch.spent.items():
        calls, each_us = spent.calls / RECORDS, spent.cpu_ns / 1000 / max(1, spent.calls)
        kind = "floor" if step.is_floor else "ours"
        lines.append(f"| {step.way} | {step.what} | {kind} | {calls:.1f} | {each_us:.0f} | {calls * each_us:.0f} |")
    for kind, is_floor in (("ours", False), ("floor", True)):
        total = sum(spent.cpu_ns for step, spent in watch.spent.items() if step.is_floor == is_floor)
        lines.append(f"| | **all of it** | {kind} | | | **{total / 1000 / RECORDS:.0f}** |")
    return "\n".join(lines)


def processes_table(cpu_us: dict[str, float]) -> str:
    """Microseconds of CPU by kind of thread and process."""
    rows = [f"| {name} | {us:,.0f} |" for name, us in cpu_us.items()]
    head = [f"| CPU at {LOOP.rate_per_s} records/s | µs a record |", "| --- | --- |"]
    return "\n".join([*head, *rows, f"| **three replicas, sum** | **{sum(cpu_us.values()):,.0f}** |"])
