"""SIGKILL of a whole process in the middle of produce: acknowledged records are stored, the rest is invisible."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from stratalog.storage.clock import RandomIds, SystemClock
from stratalog.storage.delta.delta_table import DeltaLogTable
from stratalog.storage.log.reader import LogReader
from stratalog.storage.objects.opened import open_store
from tests.lab.real.harness.broker_processes import ServerProcess
from tests.lab.real.harness.children import module
from tests.lab.real.harness.history import ACK, History, HistoryEvent, assert_clean, read_events
from tests.lab.real.harness.parties import note_replicas, table_rows
from tests.lab.real.processes.killed_process import READY
from tests.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROUNDS = int(os.environ.get("STRATALOG_PROCESS_KILLS", "3"))
"""The number of kills; more on demand, since each takes a few seconds."""
TOPIC, PARTITIONS = "orders", 3
BROKERS = (1, 2, 3)


class Run:
    """One cluster folder and one history over several processes, each killed but the last."""

    def __init__(self, folder: Path, fetcher: str) -> None:
        self.cluster = folder / "cluster"
        self.history = folder / "history.jsonl"
        self._log = folder / "process.log"
        self._fetcher = fetcher

    def events(self, kind: str | None = None, client: str | None = None) -> list[HistoryEvent]:
        return [e for e in read_events(self.history) if kind in (None, e.kind) and client in (None, e.client)]

    def kill_in_the_middle(self, name: str, acks: int) -> None:
        """Let a process produce until `acks` records are acknowledged, then SIGKILL its process group."""
        with self._process(name) as process:
            is_done = lambda: len(self.events(ACK, name)) >= acks or not process.is_running  # noqa: E731
            wait_until(is_done, f"{acks} acks", timeout_s=120)
            assert process.is_running, f"{name} ended by itself: {self.output()}"
            process.kill()

    def check(self, name: str) -> None:
        """Run a last process that reads everything, produces a little, and stops in order."""
        with self._process(name, "--check") as process:
            assert process.wait(120) == 0, self.output()

    def output(self) -> str:
        return self._log.read_text(encoding="utf-8")[-4_000:]

    @contextmanager
    def _process(self, name: str, *more: str) -> Iterator[ServerProcess]:
        arguments = self.cluster, self.history, name, self._fetcher, TOPIC, PARTITIONS, *more
        process = ServerProcess(name, module("tests.lab.real.processes.killed_process", *arguments), self._log)
        process.start()
        try:
            yield process
        finally:
            if process.is_running:
                process.kill()

    def replica(self, broker_id: int, partition: int) -> Path:
        return self.cluster / f"broker-{broker_id}" / f"{TOPIC}-{partition}"


def kill_rounds(run: Run, rounds: int, seed: int) -> None:
    rng = random.Random(seed)
    for number in range(1, rounds + 1):
        run.kill_in_the_middle(f"life-{number}", rng.randrange(100, 600))
    run.check("life-last")


def assert_every_process_found_all(run: Run, rounds: int) -> None:
    """Every record that was acknowledged to a process was read by the next one before it produced anything."""
    assert READY in run.output()
    acked: set[tuple[int, int, str]] = set()
    for name in [*(f"life-{number}" for number in range(1, rounds + 1)), "life-last"]:
        polled = {(e.partition, e.offset, e.value) for e in run.events(client=f"{name}-first")}
        assert acked <= polled
        acked |= {(e.partition, e.offset, e.value) for e in run.events(ACK, name)}


def own_rows(run: Run, broker_id: int, partition: int) -> list[tuple[int, bytes]]:
    """A replica as our own reader shows it."""
    store = open_store(str(run.cluster / f"broker-{broker_id}"))
    reader = LogReader(DeltaLogTable(store, f"{TOPIC}-{partition}", RandomIds()), SystemClock())
    tables = reader.read_range(reader.log_start_offset, reader.log_end_offset)
    return [(o, v) for t in tables for o, v in zip(t["offset"].to_pylist(), t["value"].to_pylist(), strict=True)]


def deltalake_rows(run: Run, broker_id: int, partition: int) -> list[tuple[int, bytes]]:
    rows = table_rows(run.replica(broker_id, partition))
    return list(zip(rows["offset"].to_pylist(), rows["value"].to_pylist(), strict=True))


def leave_unfinished_commits(run: Run) -> list[Path]:
    """Leave the files of a process that dies between writing a file and committing it, or while it writes a commit.

    Each replica gets a whole data file that no commit names, producer state that none names, and the temporary
    name under which the store writes before it links.
    """
    planted: list[Path] = []
    for broker_id in BROKERS:
        for partition in range(PARTITIONS):
            replica = run.replica(broker_id, partition)
            data = next(replica.glob("segment=*/**/*.parquet"))
            last = max((replica / "_delta_log").glob("*.json"))
            orphan = data.with_name(f"{'0' * 32}.{data.name.split('.')[1]}.parquet")
            torn = last.with_name(f"{int(last.stem) + 1:020d}.json#1")
            shutil.copyfile(data, orphan)
            torn.write_bytes(last.read_bytes()[:100])
            planted += [orphan, torn]
    return planted


@pytest.mark.timeout(240)
def test_a_killed_process_loses_nothing_acknowledged_and_continues(tmp_path: Path) -> None:
    run = Run(tmp_path, "thread")
    kill_rounds(run, ROUNDS, seed=3)
    assert_every_process_found_all(run, ROUNDS)
    note_all_replicas(run)
    assert_clean(run.events())


def note_all_replicas(run: Run) -> None:
    note_replicas(History(run.history), run.cluster, TOPIC, BROKERS, PARTITIONS)


def test_files_of_unfinished_commits_are_invisible_and_do_no_harm(tmp_path: Path) -> None:
    run = Run(tmp_path, "thread")
    run.kill_in_the_middle("life-1", 150)
    before = {(b, p): own_rows(run, b, p) for b in BROKERS for p in range(PARTITIONS)}
    planted = leave_unfinished_commits(run)
    for place, rows in before.items():
        assert own_rows(run, *place) == rows
        assert deltalake_rows(run, *place) == rows
    run.check("life-last")
    assert_every_process_found_all(run, 1)
    assert_clean(run.events())
    assert [path for path in planted if not path.exists()] == []


def test_delta_spark_does_not_see_files_of_unfinished_commits(spark: SparkSession, tmp_path: Path) -> None:
    run = Run(tmp_path, "thread")
    run.kill_in_the_middle("life-1", 60)
    leave_unfinished_commits(run)
    table = spark.read.format("delta").load(str(run.replica(1, 0)))
    rows = table.selectExpr("base_offset + offset_delta AS offset", "value").collect()
    assert sorted((row.offset, bytes(row.value)) for row in rows) == own_rows(run, 1, 0)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.spark
@pytest.mark.timeout(300)
def test_a_killed_process_with_spark_fetch_sessions_loses_nothing(tmp_path: Path) -> None:
    """The Python workers of its fetch sessions are process groups of their own and may outlive it for a while."""
    run = Run(tmp_path, "spark")
    kill_rounds(run, 2, seed=4)
    assert_every_process_found_all(run, 2)
    note_all_replicas(run)
    assert_clean(run.events())
