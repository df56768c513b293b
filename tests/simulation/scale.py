"""`python -m tests.simulation.scale`: the control plane with 10,000 partitions on three brokers, without Spark.

The metadata log is a real Delta table on the local disk, synced as in production. A line of JSON for each figure:

failover   a broker's session expired: decide and commit the new state of every partition that it touches, as one commit
refold     a new controller folds the metadata log from nothing, as it is after the failover
fold       a process of its own folds a log of 100,000 partition records; its memory is the peak of that process
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from stratalog.replication.controller.brokers import fence_brokers, register_broker
from stratalog.replication.controller.topics import create_topic
from stratalog.replication.metadata.image import ClusterImage, Result
from stratalog.replication.metadata.log import MetadataLog, open_metadata
from stratalog.replication.stores import DeltaStores
from stratalog.storage.clock import RandomIds, SystemClock
from stratalog.storage.files.cache import FileCache
from stratalog.storage.topic_config import LogConfig

PARTITIONS_A_TOPIC = 100
FAILOVER_S_MAX, REFOLD_S_MAX, FOLD_S_MAX, FOLD_BYTES_MAX = 1.0, 2.0, 10.0, 1 << 30


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure and its limit. `memory_bytes` 0: not measured."""

    name: str
    partition_records: int
    commits: int
    seconds: float
    seconds_max: float
    memory_bytes: int = 0
    memory_bytes_max: int = FOLD_BYTES_MAX

    @property
    def is_met(self) -> bool:
        return self.seconds <= self.seconds_max and self.memory_bytes <= self.memory_bytes_max


def open_log(root: str) -> MetadataLog:
    """The metadata log as opened by a new process."""
    ids = RandomIds()
    return open_metadata(DeltaStores(ids, FileCache(0)), root, SystemClock(), ids)


def make_cluster(root: str, partitions: int) -> MetadataLog:
    """Three live brokers, and topics of 100 partitions with three replicas each."""
    metadata, ids = open_log(root), RandomIds()
    metadata.create()
    for broker_id in (1, 2, 3):
        register(metadata, broker_id)
    metadata.elect_controller(1, 0)
    for number in range(partitions // PARTITIONS_A_TOPIC):
        metadata.propose(
            lambda image, number=number: create_topic(
                image,
                f"topic-{number}",
                ids.new_id(),
                PARTITIONS_A_TOPIC,
                3,
                start_index=number,
                check_configs=LogConfig.validated,
            )
        )
    return metadata


def register(metadata: MetadataLog, broker_id: int) -> None:
    incarnation_id = RandomIds().new_id()
    metadata.propose(lambda image: register_broker(image, broker_id, incarnation_id, f"memory:///broker-{broker_id}"))


def fail_over(metadata: MetadataLog, broker_id: int) -> tuple[int, int, float]:
    """(partition records, commits, seconds) of the fencing of one broker by the controller."""
    version, offset = metadata.log.version, metadata.log.log_end_offset
    began = time.perf_counter()
    epoch = metadata.image.brokers[broker_id].broker_epoch
    metadata.propose(lambda image: fence_brokers(image, {broker_id: epoch}), controller_epoch=1)
    seconds = time.perf_counter() - began
    return metadata.log.log_end_offset - offset - 1, metadata.log.version - version, seconds


def rejoin(metadata: MetadataLog) -> None:
    """Every follower catches up and joins its ISR again: otherwise three failovers would leave nothing to change."""

    def decide(image: ClusterImage) -> Result[None]:
        behind = [state for state in image.partitions.values() if set(state.isr) != set(state.replicas)]
        return Result(tuple(state.changed(isr=state.replicas, bump_leader_epoch=False) for state in behind), None)

    metadata.propose(decide)


def figures(folder: Path, partitions: int, records: int) -> Iterator[Figure]:
    """Measure in this folder."""
    root = str(folder)
    metadata = make_cluster(root, partitions)
    changed, commits, seconds = fail_over(metadata, 3)
    yield Figure("failover", changed, commits, seconds, FAILOVER_S_MAX)
    successor = open_log(root)
    began = time.perf_counter()
    successor.refresh()
    seconds = time.perf_counter() - began
    if successor.image != metadata.image:
        raise AssertionError("a successor folds another image than the controller has")
    yield Figure("refold", len(successor.image.partitions) + changed, successor.log.version, seconds, REFOLD_S_MAX)
    broker_id = 2
    while metadata.log.log_end_offset < records:
        for back_id in set(metadata.image.brokers) - set(metadata.image.live_brokers()):
            register(metadata, back_id)
        rejoin(metadata)
        fail_over(metadata, broker_id)
        broker_id = broker_id % 3 + 1
    yield _folded_elsewhere(root)


def _folded_elsewhere(root: str) -> Figure:
    command = [sys.executable, "-m", "tests.simulation.scale", "--fold", root]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return Figure(**json.loads(done.stdout))


def fold(root: str) -> Figure:
    """Fold the log in this process."""
    metadata = open_log(root)
    began = time.perf_counter()
    metadata.refresh()
    seconds = time.perf_counter() - began
    memory_bytes = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    count = metadata.log.log_end_offset
    return Figure("fold", count, metadata.log.version, seconds, FOLD_S_MAX, memory_bytes)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.scale", description=__doc__)
    parser.add_argument("--partitions", type=int, default=10_000)
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--fold", help="only fold the metadata log below this root")
    arguments = parser.parse_args()
    if arguments.fold:
        print(json.dumps(asdict(fold(arguments.fold))))
        return 0
    all_met = True
    with tempfile.TemporaryDirectory() as folder:
        for figure in figures(Path(folder), arguments.partitions, arguments.records):
            print(json.dumps({**asdict(figure), "met": figure.is_met}), flush=True)
            all_met &= figure.is_met
    return 0 if all_met else 1


if __name__ == "__main__":
    sys.exit(main())
