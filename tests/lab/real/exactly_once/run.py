"""Read, process, write exactly once while processors, coordinators and leaders are killed and paused.

    python -m tests.lab.real.exactly_once.run --records 1000000     # make exactly-once: results into docs/

Three brokers and some processors, each a process. Processors read `in` in one group and write each record to `out`, in
transactions that carry the group's offsets. Every few seconds one of them, or a broker that is a coordinator or
leader, is killed (SIGKILL) or paused (SIGSTOP). Every second processor that is paused is replaced at once under its
transactional id and comes back as a zombie; the others lose only their membership of the group. In the end every
input must be in `out` exactly once: for a read_committed consumer, and for
`tests.lab.real.exactly_once.committed_judge`, which reads the Delta tables of every replica without the product.
"""

from __future__ import annotations

import random
import shutil
import statistics
import sys
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from stratalog.clients.admin.admin import Admin
from stratalog.clients.consumer.consumer import Consumer
from stratalog.clients.producer.producer import Producer
from stratalog.replication.internal_topics import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC, partition_of_key
from stratalog.server.admin.admin import NewTopic
from stratalog.server.remote.remote_cluster import RemoteCluster
from stratalog.server.view.cluster_view import ClusterView
from stratalog.storage.errors import StratalogError
from stratalog.storage.records import TopicPartition
from tests.lab.real.exactly_once.committed_judge import judged
from tests.lab.real.exactly_once.processor import COMMITTED, GROUP, INPUT, OUTPUT
from tests.lab.real.exactly_once.processor_process import ProcessorProcess
from tests.lab.real.harness.broker_processes import BROKERS, BrokerProcesses, ClusterWatch
from tests.lab.real.harness.command import concluded, machine_of, options, work_folder, write_report
from tests.lab.real.harness.faults import KILL, PAUSE, Faults, show
from tests.lab.real.harness.machine_watch import MachineWatch
from tests.lab.real.harness.parties import replicas_are_equal
from tests.lab.real.storm.run import longest_gap
from tests.waiting import wait_until

INPUT_PARTITIONS, OUTPUT_PARTITIONS, INTERNAL_PARTITIONS = 8, 4, 4
SETTINGS = {
    "listeners": "PLAINTEXT://127.0.0.1:0",
    "broker.session.timeout.ms": 3_000,
    "broker.heartbeat.interval.ms": 500,
    "replica.lag.time.max.ms": 3_000,
    "offsets.topic.num.partitions": INTERNAL_PARTITIONS,
    "transaction.state.log.num.partitions": INTERNAL_PARTITIONS,
    "group.initial.rebalance.delay.ms": 500,
    "group.min.session.timeout.ms": 1_000,
}
FILL_ROWS, VALUE_BYTES, NUMBER_DIGITS = 1_000, 64, 9
DOWN_S, BROKER_PAUSED_S, PROCESSOR_PAUSED_S = (0.5, 5.0), (0.5, 8.0), (3.0, 12.0)
PROCESSOR, GROUP_COORDINATOR, TRANSACTION_COORDINATOR = "processor", "group coordinator", "transaction coordinator"
INPUT_LEADER, OUTPUT_LEADER = "input leader", "output leader"
VICTIMS = (PROCESSOR, PROCESSOR, GROUP_COORDINATOR, TRANSACTION_COORDINATOR, INPUT_LEADER, OUTPUT_LEADER)
PROGRESS_EVERY_S = 10.0
EVERY_S = 4.0

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Result:
    """The results of a run.

    faults        how many of each `<signal> <victim>`
    notes         the number of events of each kind that processors recorded
    wrong_…       inputs that are not in the output exactly once, for a consumer and in the three replicas
    uncommitted   partitions of the input whose committed offset is not its end
    undecided     records of the output in transactions that never ended
    gap_s_max     the longest time without a committed transaction
    """

    records: int
    seed: int
    processors: int
    seconds: float
    fill_s: float
    faults: dict[str, int]
    notes: dict[str, int]
    transaction_ms_median: float
    transaction_ms_max: float
    gap_s_max: float
    stalled_s: float
    wrong_for_consumer: int
    wrong_in_replicas: int
    aborted_records: int
    undecided: int
    uncommitted: int

    @property
    def is_clean(self) -> bool:
        return not (self.wrong_for_consumer or self.wrong_in_replicas or self.undecided or self.uncommitted)


class Trouble:
    """Chooses faults. At most one broker is away at a time, and any number of processors."""

    def __init__(
        self, brokers: BrokerProcesses, processors: list[ProcessorProcess], view: ClusterView, rng: random.Random
    ) -> None:
        self.faults = Faults()
        self._brokers = brokers
        self._processors = processors
        self._view = view
        self._rng = rng

    def inject(self) -> None:
        """One fault, in the process that has the drawn role."""
        role, kind = self._rng.choice(VICTIMS), self._rng.choice((KILL, PAUSE))
        processor = self._rng.choice(self._processors)
        if role == PROCESSOR:
            is_replaced = self._rng.random() < 0.5
            processor.strike(self.faults, kind, self._rng.uniform(*PROCESSOR_PAUSED_S), role, is_replaced=is_replaced)
            return
        broker_id = self._holder(role, processor.name)
        if broker_id in BROKERS and not any(map(self.faults.has_struck, self._brokers.by_id.values())):
            lasts_s = self._rng.uniform(*(DOWN_S if kind == KILL else BROKER_PAUSED_S))
            self.faults.strike(self._brokers[broker_id], kind, lasts_s, role)

    def _holder(self, role: str, transactional_id: str) -> int:
        place = {
            GROUP_COORDINATOR: TopicPartition(GROUP_METADATA_TOPIC, partition_of_key(GROUP, INTERNAL_PARTITIONS)),
            TRANSACTION_COORDINATOR: TopicPartition(
                TRANSACTION_STATE_TOPIC, partition_of_key(transactional_id, INTERNAL_PARTITIONS)
            ),
            INPUT_LEADER: TopicPartition(INPUT, self._rng.randrange(INPUT_PARTITIONS)),
            OUTPUT_LEADER: TopicPartition(OUTPUT, self._rng.randrange(OUTPUT_PARTITIONS)),
        }[role]
        self._view.refresh()
        return self._view.image.partition(place).leader

    def end(self) -> None:
        """Restore all brokers, and kill all processors, zombies too."""
        self.faults.repair(at_once=True)
        for processor in self._processors:
            processor.end()


def run(
    folder: Path, records: int, seed: int, *, processors: int = 3, every_s: float = EVERY_S, limit_s: float = 1_500
) -> Result:
    """A whole run below `folder`, which is empty or absent. AssertionError when it does not finish."""
    rng = random.Random(seed)
    with BrokerProcesses(folder, SETTINGS) as brokers, ExitStack() as parties:
        root = brokers.metadata_root
        partitions = {INPUT: INPUT_PARTITIONS, OUTPUT: OUTPUT_PARTITIONS}
        Admin(root).create_topics([NewTopic(name, count, 3) for name, count in partitions.items()])
        watches = [ClusterWatch(root, topic) for topic in partitions]
        for watch in watches:
            watch.await_in_sync()
        begun = time.monotonic()
        fill(root, records)
        fill_s = time.monotonic() - begun
        show(f"{records:,} records written in {fill_s:.1f} s")
        machine = parties.enter_context(MachineWatch())
        living = [ProcessorProcess(root, folder, f"processor-{number}") for number in range(1, processors + 1)]
        for processor in living:
            parties.callback(processor.end)
            processor.start()
        progress = Progress(root)
        trouble = Trouble(brokers, living, ClusterView(root), rng)
        wait_until(lambda: progress.committed() > 0, "the first committed transaction", 90)
        begun, begun_wall = time.monotonic(), time.time()
        inject_faults(trouble, living, progress, records, every_s, limit_s)
        seconds = time.monotonic() - begun
        trouble.end()
        for watch in watches:
            watch.await_in_sync()
        wait_until(lambda: undecided(root) == 0, "all transactions have ended", 90)
        wait_until(lambda: replicas_are_equal(folder, OUTPUT, BROKERS, OUTPUT_PARTITIONS), "equal replicas", 120)
        notes = [note for processor in living for note in processor.notes()]
        took_ms = [note["took_ms"] for note in notes if note["kind"] == COMMITTED]
        replicas = [
            [judged(folder / f"broker-{broker_id}" / f"{OUTPUT}-{number}") for number in range(OUTPUT_PARTITIONS)]
            for broker_id in BROKERS
        ]
        ends = [note["at"] for note in notes if note["kind"] == COMMITTED and note["at"] >= begun_wall]
        return Result(
            records=records,
            seed=seed,
            processors=processors,
            seconds=round(seconds, 1),
            fill_s=round(fill_s, 1),
            faults=dict(sorted(trouble.faults.counts.items())),
            notes=dict(sorted(Counter(note["kind"] for note in notes).items())),
            transaction_ms_median=statistics.median(took_ms),
            transaction_ms_max=max(took_ms),
            gap_s_max=round(longest_gap([begun_wall, *sorted(ends)]), 1),
            stalled_s=round(machine.stalled_s(begun * 1_000), 1),
            wrong_for_consumer=wrong(consumed(root), records),
            wrong_in_replicas=sum(wrong([each.committed for each in replica], records) for replica in replicas),
            aborted_records=sum(each.aborted for each in replicas[0]),
            undecided=sum(each.open for each in replicas[0]),
            uncommitted=progress.uncommitted(),
        )


def inject_faults(
    trouble: Trouble, living: list[ProcessorProcess], progress: Progress, records: int, every_s: float, limit_s: float
) -> None:
    """Inject a fault every `every_s` seconds until every input is committed."""
    begun = shown = time.monotonic()

    def is_over() -> bool:
        nonlocal shown
        committed, now = progress.committed(), time.monotonic()
        assert now - begun < limit_s, f"only {committed:,} of {records:,} records are committed after {limit_s:.0f} s"
        for processor in living:
            processor.restore(trouble.faults)
        if now - shown >= PROGRESS_EVERY_S:
            shown = now
            show(f"{now - begun:.0f} s: {committed:,} records committed")
        return committed >= records

    trouble.faults.run(every_s, trouble.inject, is_over, first_s=every_s)


class Progress:
    """The offsets that the group has committed, as its coordinator returns them."""

    def __init__(self, metadata_root: str) -> None:
        self._consumer = Consumer(RemoteCluster(metadata_root), group_id=GROUP, enable_auto_commit=False)
        self._partitions = [TopicPartition(INPUT, number) for number in range(INPUT_PARTITIONS)]
        self._known = 0

    def committed(self) -> int:
        """The number of committed records; the last known one without an answer or while a transaction has offsets."""
        try:
            self._known = sum(each.offset for each in self._committed(300) if each is not None)
        except StratalogError:
            return self._known
        return self._known

    def uncommitted(self) -> int:
        """The number of partitions whose committed offset is not their end."""
        ends = self._consumer.end_offsets(self._partitions).values()
        return sum(each is None or each.offset != end for each, end in zip(self._committed(30_000), ends, strict=True))

    def _committed(self, timeout_ms: int):
        return self._consumer.committed(self._partitions, timeout_ms).values()


def fill(root: str, records: int) -> None:
    """Values `<number>…`, keyed by the number, in files of a thousand records."""
    padding = b"." * (VALUE_BYTES - NUMBER_DIGITS)
    with Producer(root, batch_size=1 << 17) as producer:
        sent = []
        for begin in range(0, records, FILL_ROWS * INPUT_PARTITIONS):
            numbers = range(begin, min(records, begin + FILL_ROWS * INPUT_PARTITIONS))
            keys = pa.array([b"%0*d" % (NUMBER_DIGITS, number) for number in numbers], pa.binary())
            values = pc.binary_join_element_wise(keys, pa.scalar(padding, pa.binary()), b"")
            partition = pa.array([number % INPUT_PARTITIONS for number in numbers], pa.int32())
            table = pa.table({"key": keys, "value": values, "partition": partition})
            sent.append(producer.send_table(INPUT, table))
        for each in sent:
            each.result(120)


def undecided(root: str) -> int:
    """The number of offsets of the output between the last stable offset and the high watermark."""
    with Consumer(root, isolation_level="read_committed") as stable, Consumer(root) as consumer:
        partitions = consumer.assign_all(OUTPUT)
        ends, stable_ends = consumer.end_offsets(partitions), stable.end_offsets(partitions)
    return sum(ends[each] - stable_ends[each] for each in partitions)


def consumed(root: str) -> list[pa.Array]:
    """Every value of the output that a read_committed consumer receives."""
    with Consumer(root, auto_offset_reset="earliest", isolation_level="read_committed") as consumer:
        partitions = consumer.assign_all(OUTPUT)
        ends = consumer.end_offsets(partitions)
        found = []
        while any(consumer.position(each) < end for each, end in ends.items()):
            found.append(consumer.poll_table(1_000)["value"].combine_chunks())
    return found


def wrong(values: list[pa.Array], records: int) -> int:
    """How many of the numbers below `records` are not in `values` exactly once."""
    digits = pc.binary_slice(pa.chunked_array(values, pa.binary()), 0, NUMBER_DIGITS)
    numbers = digits.cast(pa.string()).cast(pa.int64()).to_numpy()
    return int((np.bincount(numbers, minlength=records) != 1).sum())


def main(arguments: list[str] | None = None) -> int:
    """Exit code 0 when every input is in the output once."""
    from tests.lab.real.exactly_once.report import report_text

    parser = options(__doc__, seed=7, report="EXACTLY_ONCE.md and exactly_once.json")
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--processors", type=int, default=3)
    parser.add_argument("--every", type=float, default=EVERY_S, help="seconds from fault to fault")
    parser.add_argument("--runs", type=int, default=1, help="each with the next seed")
    given = parser.parse_args(arguments)
    results, codes = list[Result](), list[int]()
    with work_folder(given.folder, "exactly-once") as folder:
        machine = machine_of(folder)
        for seed in range(given.seed, given.seed + given.runs):
            place = folder / str(seed)
            results.append(run(place, given.records, seed, processors=given.processors, every_s=given.every))
            codes.append(concluded(results[-1]))
            if given.folder is None:
                shutil.rmtree(place)
    if given.report:
        body = {"machine": machine, "runs": [asdict(result) for result in results]}
        write_report(given.report, "exactly_once", report_text(results, machine), body)
    return max(codes)


if __name__ == "__main__":
    sys.exit(main())
