"""Power cuts under load: the disks of three broker processes lose what was not synced. `make power`; needs root, FUSE.

    python -m tests.lab.real.power.run --cuts 300 --report docs       # docs/POWER_CUTS.md
    python -m tests.lab.real.power.run --cuts 20 --seed 7 --order journal

Two topics are written at once: `flushed-…` with flush.messages=1, `plain-…` without. One cut takes one broker, two, or
all three with the metadata root. Brokers are killed, their disks drop what is not durable in a way that the seed
chooses, and they start again; then every acknowledged record has to be where it was acknowledged. Ctrl-C makes the
present cut the last one.
"""

from __future__ import annotations

import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from stratalog.clients.admin.admin import Admin
from stratalog.replication.metadata.records import PartitionRecord
from stratalog.replication.spark.session import stratalog_session
from stratalog.server.admin.admin import NewTopic
from stratalog.server.view.cluster_view import ClusterView
from stratalog.storage.errors import StratalogError
from tests.lab.history.checker import Finding
from tests.lab.real.harness.broker_processes import BROKERS
from tests.lab.real.harness.command import concluded, options, work_folder, write_report
from tests.lab.real.power.disks import why_not
from tests.lab.real.power.judge import Judge, Loss, Place, Row
from tests.lab.real.power.load import Ledger, LedgerReader, LedgerWriter
from tests.lab.real.power.powered_cluster import METADATA, BrokerEndedError, PoweredCluster
from tests.lab.real.power.readers import (
    UnreadableError,
    recovered_end,
    rows_by_deltalake,
    rows_by_spark,
    rows_by_stratalog,
)
from tests.lab.real.power.volatile_disk import JOURNAL, POSIX, CutResult, Rules
from tests.waiting import wait_until

SETTINGS = {
    "broker.session.timeout.ms": 3_000, "broker.heartbeat.interval.ms": 500, "replica.lag.time.max.ms": 3_000,
    "stratalog.progress.poll.max.ms": 50,
}  # fmt: skip
FLUSHED, PLAIN = "flushed", "plain"
PARTITIONS = 2
CUTS_A_TOPIC = 25
"""After so many cuts the topics are read by every reader and deleted, and the load goes on with new ones: tables that
are checked often stay small, and cuts meet deletions."""
CHECK_EVERY = 4
"""Cuts between two comparisons with the tables."""
LOAD_S = (0.1, 1.0)
PAUSE_S = 0.05
IN_SYNC_S = 60
ONE, TWO, ROOM = "one broker", "two brokers", "all brokers and the metadata root"


@dataclass(slots=True)
class PowerResult:
    """The results of a run."""

    seed: int
    rules: Rules
    seconds: float = 0.0
    cuts: Counter[str] = field(default_factory=Counter)
    disks: Counter[str] = field(default_factory=Counter)
    sent: int = 0
    acknowledged: int = 0
    failed: int = 0
    polled: int = 0
    lost_tail: int = 0
    tables_read: int = 0
    tables_recovered: int = 0
    tables_by_spark: int = 0
    in_sync_s: list[float] = field(default_factory=list)
    errors: dict[str, int] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)

    @property
    def is_clean(self) -> bool:
        return not self.findings


class Run:
    """One cluster, many cuts. `findings` ends the run."""

    def __init__(
        self,
        folder: Path,
        seed: int,
        rules: Rules,
        chances: Sequence[float],
        *,
        reads_by_spark: bool = True,
        forgets: str = "",
    ) -> None:
        self._reads_by_spark, self._is_ended = reads_by_spark, False
        self.result = PowerResult(seed, rules)
        self.judge = Judge()
        self._folder, self._seed, self._chances = folder, seed, chances
        self._cluster = PoweredCluster(folder / "cluster", rules, SETTINGS, forgets)
        self._ledger = Ledger()
        self._rng = random.Random(seed)
        self._view: ClusterView | None = None
        self._topics: list[str] = []

    @property
    def view(self) -> ClusterView:
        if self._view is None:
            self._view = ClusterView(self._cluster.metadata_root)
        return self._view

    def run(self, cuts: int) -> PowerResult:
        begun = time.monotonic()
        with self._cluster:
            try:
                while self._left(cuts) and not self.judge.findings:
                    self._cuts_of_topics(cuts)
            except KeyboardInterrupt:  # Spark takes Ctrl-C for itself: what it has not read is missing in the count
                self.end()
            except (AssertionError, BrokerEndedError) as reason:
                self.judge.findings.append(Finding("not-available", str(reason)))
            finally:
                if self.judge.findings or sys.exc_info()[0] is not None:
                    self._keep()
        counts = self._ledger.counts
        result = self.result
        result.seconds = time.monotonic() - begun
        result.sent, result.acknowledged = counts.sent, counts.acknowledged
        result.failed, result.polled = counts.failed, counts.polled
        result.lost_tail = self.judge.lost_tail
        result.errors, result.findings = dict(self._ledger.errors), self.judge.findings
        return result

    def end(self) -> None:
        """Make the present cut the last one."""
        self._is_ended = True

    def _left(self, cuts: int) -> int:
        return 0 if self._is_ended else cuts - sum(self.result.cuts.values())

    def _cuts_of_topics(self, cuts: int) -> None:
        first = sum(self.result.cuts.values())
        topics = f"{FLUSHED}-{first}", f"{PLAIN}-{first}"
        common = {"min.insync.replicas": 2}
        Admin(self._cluster.metadata_root).create_topics([
            NewTopic(topics[0], PARTITIONS, 3, {**common, "flush.messages": 1}),
            NewTopic(topics[1], PARTITIONS, 3, common),
        ])  # fmt: skip
        self._topics = list(topics)
        self._await_in_sync()
        root, ledger = self._cluster.metadata_root, self._ledger
        with ExitStack() as parties:
            for name in ("a", "b"):
                parties.enter_context(LedgerWriter(root, topics, ledger, f"{name}{first}", PAUSE_S))
            parties.enter_context(LedgerReader(root, topics, ledger, "reader"))
            for number in range(first, first + CUTS_A_TOPIC):
                if not self._left(cuts):
                    break
                self._one_cut(number)
                if self.judge.findings:
                    return
        self._check_all()
        self._read_by_all(by_spark=self._reads_by_spark and not self._left(cuts))
        Admin(self._cluster.metadata_root).delete_topics(topics)

    def _one_cut(self, number: int) -> None:
        rng = self._rng
        time.sleep(rng.uniform(*LOAD_S))
        self._cluster.check_alive()
        kind = rng.choices((ONE, TWO, ROOM), self._chances)[0]
        away = rng.sample(BROKERS, {ONE: 1, TWO: 2, ROOM: 3}[kind])
        names = [f"broker-{i}" for i in away] + ([METADATA] if kind == ROOM else [])
        seed = self._seed * 100_000 + number
        times = [time.monotonic()]
        acknowledged = self._ledger.counts.acknowledged
        self._cluster.kill(away)
        states = self._states()  # what the brokers that are gone acted on last
        cuts = self._cluster.cut(names, seed)
        for name in names:
            self._cluster.disks.restore(name)
        if kind == ROOM:
            self._view = None
        lossy = [state for state in states if set(state.isr) <= set(away) and state.topic.startswith(PLAIN)]
        kept_ends = {(state.topic, state.partition): self._kept_end(state) for state in lossy}
        self.result.cuts[kind] += 1
        self._count(cuts)
        times.append(time.monotonic())
        self._cluster.start(away)
        times.append(epochs_s := time.monotonic())
        took_s = self._await_in_sync()
        self.result.in_sync_s.append(took_s)
        for state in lossy:
            place = state.topic, state.partition
            self.judge.lost(place, Loss(self._first_offset_after(state), epochs_s + took_s, kept_ends[place]))
        times.append(time.monotonic())
        if number % CHECK_EVERY == CHECK_EVERY - 1:
            self._check_all()
        times.append(time.monotonic())
        cut_s, start_s, sync_s, check_s = (after - before for before, after in pairwise(times))
        lost = ", ".join(f"{n} {c.changes_lost}/{c.changes}" for n, c in cuts.items())
        print(
            f"cut {number}, seed {seed}: {kind} {sorted(away)}, kept {min(c.kept_share for c in cuts.values()):.2f};"
            f" cut {cut_s:.1f} s, start {start_s:.1f} s, sync {sync_s:.1f} s, check {check_s:.1f} s;"
            f" {self._ledger.counts.acknowledged} acknowledged, {acknowledged} before; lost with right"
            f" {self.judge.lost_tail}; names lost: {lost}",
            flush=True,
        )

    def _count(self, cuts: dict[str, CutResult]) -> None:
        for cut in cuts.values():
            for name in ("changes", "changes_lost", "files_unsynced", "files_old", "files_torn", "files_lost"):
                self.result.disks[name] += getattr(cut, name)
            self.result.disks["cuts"] += 1

    # -- looking -----------------------------------------------------------------------------------------

    def _states(self) -> list[PartitionRecord]:
        """The states of all partitions of the run's topics."""
        self.view.refresh()
        image = self.view.image
        states = [image.partition(tp) for topic in self._topics for tp in sorted(image.partitions_of(topic))]
        for state in states:
            if state.leader >= 0:
                self.judge.led((state.topic, state.partition), state.leader_epoch, state.leader)
        return states

    def _await_in_sync(self) -> float:
        begun = time.monotonic()

        def is_so() -> bool:
            self._cluster.check_alive()
            try:
                return all(set(s.isr) == set(s.replicas) and s.leader in s.isr for s in self._states())
            except StratalogError:
                return False

        wait_until(is_so, "all replicas in sync", IN_SYNC_S)
        return time.monotonic() - begun

    def _kept_end(self, state: PartitionRecord) -> int:
        """The log end of the replica of the ISR with the longest log after the cut, by recovery of a copy of it."""
        ends = []
        for broker_id in state.isr:
            with tempfile.TemporaryDirectory(prefix="power-copy-") as folder:
                self._cluster.disks.dump(f"broker-{broker_id}", Path(folder), f"{state.topic}-{state.partition}/")
                ends.append(recovered_end(folder, str(state.topic_partition)))
                self.result.tables_recovered += 1
        return max(ends).offset

    def _first_offset_after(self, state: PartitionRecord) -> int:
        """The offset at which the first leader epoch after `state` begins."""
        epochs = self.view.records.read_from_log(state.topic_partition, lambda log: log.epochs, 30_000)
        later = [entry.start_offset for entry in epochs.entries if entry.epoch > state.leader_epoch]
        return min(later) if later else self.view.records.read_from_log(
            state.topic_partition, lambda log: log.log_end_offset, 30_000
        )  # fmt: skip

    # -- judging -----------------------------------------------------------------------------------------

    def _check_all(self) -> None:
        """Compare everything known so far with the in-sync replicas."""
        acks, polls = self._ledger.collect()
        self.judge.acknowledged(acks)
        self.judge.polled(polls)
        for state in self._states():
            place = state.topic, state.partition
            self.judge.check(place, {f"broker-{i}": self._rows(i, place) for i in state.isr})

    def _rows(self, broker_id: int, place: Place) -> list[Row]:
        """A replica's records as deltalake alone reads them."""
        self.result.tables_read += 1
        try:
            return rows_by_deltalake(self._table(broker_id, place))
        except UnreadableError as reason:
            self.judge.findings.append(Finding("unreadable", str(reason)))
            return []

    def _table(self, broker_id: int, place: Place) -> Path:
        return self._cluster.root(broker_id) / f"{place[0]}-{place[1]}"

    def _read_by_all(self, *, by_spark: bool) -> None:
        """Every table is read by every reader, with one result."""
        session = stratalog_session("power", log_dir=self._folder / "logs") if by_spark else None
        for state in self._states():
            place = state.topic, state.partition
            for table in (self._table(broker_id, place) for broker_id in state.replicas):
                try:
                    found = [rows_by_deltalake(table), rows_by_stratalog(table)]
                    if session is not None:
                        found.append(rows_by_spark(session, table))
                        self.result.tables_by_spark += 1
                except UnreadableError as reason:
                    self.judge.findings.append(Finding("unreadable", str(reason)))
                    continue
                if any(rows != found[0] for rows in found):
                    lengths = [len(rows) for rows in found]
                    self.judge.findings.append(Finding("readers-differ", f"{table}: {lengths} records"))

    def _keep(self) -> None:
        folder = self._folder / "kept"
        shutil.rmtree(folder, ignore_errors=True)
        try:
            self._cluster.keep(folder)
        except OSError as reason:
            print(f"cannot keep the disks: {reason}", flush=True)
        else:
            print(f"the disks are kept in {folder}", flush=True)


def main(arguments: list[str] | None = None) -> int:
    """Exit code 0 when nothing was found, 2 when disks cannot be mounted here."""
    from tests.lab.real.power.report import counts_of, report_text

    parser = options(__doc__, seed=1, report="POWER_CUTS.md and power_cuts.json")
    parser.add_argument("--cuts", type=int, default=300)
    parser.add_argument("--order", choices=(POSIX, JOURNAL), default=POSIX, help="what is durable of directories")
    parser.add_argument("--stale-blocks", action="store_true", help="unwritten blocks hold those of deleted files")
    parser.add_argument("--writeback-ms", type=int, default=5_000, help="age at which the kernel writes back; 0: never")
    parser.add_argument("--kinds", default="4,1,5", help="weights of: one broker, two, all with the metadata root")
    parser.add_argument("--without-spark", action="store_true", help="do not read the tables by delta-spark in the end")
    parser.add_argument("--forget", choices=("files", "directories"), help="brokers never sync these: must find losses")
    given = parser.parse_args(arguments)
    if reason := why_not():
        print(f"power cuts cannot be tried here: {reason}", file=sys.stderr)
        return 2
    rules = Rules(given.order, given.stale_blocks, given.writeback_ms)
    weights = [float(weight) for weight in given.kinds.split(",")]
    with work_folder(given.folder, "power") as folder:
        spark = not given.without_spark
        run = Run(folder, given.seed, rules, weights, reads_by_spark=spark, forgets=given.forget or "")
        signal.signal(signal.SIGINT, lambda *_: run.end())
        result = run.run(given.cuts)
        if given.report:
            stale = " --stale-blocks" if given.stale_blocks else ""
            chosen = f"--cuts {sum(result.cuts.values())} --seed {given.seed} --order {given.order}{stale}"
            command = f"python -m tests.lab.real.power.run {chosen}"
            found = [f"{each.rule}: {each.text}" for each in result.findings]
            body = {"command": command, "counts": counts_of(result), "findings": found}
            write_report(given.report, "power_cuts", report_text(result, command), body)
        if code := concluded(result):
            sys.exit(code)  # the folder stays
    return 0


if __name__ == "__main__":
    sys.exit(main())
