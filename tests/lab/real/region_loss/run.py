"""A region is lost under load, its copy is promoted, and later the way back.

    python -m tests.lab.real.region_loss.run --seconds 60
    python -m tests.lab.real.region_loss.run --seconds 60 --clouds      # make region-loss

Two broker processes in the rack of each region, whose place is a storage domain, and the metadata in another place. All
topics, those of coordinators too, are led in `east` and copied to `west`: two directories. With --clouds the east is a
bucket of S3, the west a container of Azure, and a directory in the `north` has a third copy. While idempotent producers
with acks=all write and a group of kafka-python reads and commits, the brokers of `east` are killed and its place is
destroyed, in a cloud with its server. The clients go on in other regions, `strata metadata domains --promote` makes
`west` the home, and a new place of the east becomes a copy and then the home again. In the end the history checker
finds nothing: what was acknowledged is there once, at its offset.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kafka import KafkaConsumer
from kafka.structs import TopicPartition as KafkaPartition

from stratalog.clients.admin.admin import Admin
from stratalog.jobs.replicas import metadata
from stratalog.replication.metadata.records import NO_LEADER, PartitionRecord
from stratalog.server.admin.admin import NewTopic
from stratalog.server.view.cluster_view import ClusterView
from stratalog.storage.records import TopicPartition
from tests.lab.foreign.served import HOST, free_ports
from tests.lab.real.bucket_storm.parties import SocketWriter
from tests.lab.real.harness.broker_processes import BrokerProcess
from tests.lab.real.harness.command import concluded, options, work_folder
from tests.lab.real.harness.faults import show
from tests.lab.real.harness.history import ACK, FAIL, SEND, STORED, Finding, History, check
from tests.lab.real.region_loss.places import EAST, NEW_EAST, NORTH, WEST, Clouds, Directories
from tests.waiting import wait_until

TOPIC, PARTITIONS = "loss", 4
BROKERS = {EAST: (1, 2), WEST: (3, 4), NORTH: (5, 6)}
"""Broker ids by rack, of which a run has those of its places."""
GROUP = "readers"
SETTINGS: dict[str, object] = {
    "broker.session.timeout.ms": 9_000,
    "offsets.topic.num.partitions": 2,
    "offsets.topic.replication.factor": 2,
    "transaction.state.log.num.partitions": 2,
    "transaction.state.log.replication.factor": 2,
    "transaction.state.log.min.isr": 1,
    "stratalog.storage.domain": "",
}


@dataclass(frozen=True, slots=True)
class RegionLoss:
    """What a run found. `pause_ms`: from the loss to the next acknowledgement; `offsets_before`, `offsets_after`: what
    the group had committed when the region was lost, and what it has in the promoted copy, by partition; `back_ms`:
    from the first copy in the new place to leadership there."""

    sent: int
    acknowledged: int
    failed: int
    stored: int
    pause_ms: int
    promoted_ms: int
    back_ms: int
    offsets_before: dict[int, int]
    offsets_after: dict[int, int]
    findings: list[Finding]

    @property
    def is_clean(self) -> bool:
        return not self.findings and self.offsets_before == self.offsets_after and self.stored >= self.acknowledged


class Regions:
    """The brokers' processes. At the end of a `with` block all are killed."""

    def __init__(self, folder: Path, names: Sequence[str]) -> None:
        """`names`: the regions of this run."""
        self.folder = folder
        self.metadata_root = str(folder / "metadata")
        self._racks = {broker_id: name for name in names for broker_id in BROKERS[name]}
        self.ports = dict(zip(self._racks, free_ports(len(self._racks)), strict=True))
        self.by_id = {i: BrokerProcess(folder, i, {**SETTINGS, **self._own(i)}, "thread") for i in self._racks}

    def _own(self, broker_id: int) -> dict[str, object]:
        return {
            "broker.rack": self._racks[broker_id],
            "listeners": f"PLAINTEXT://{HOST}:{self.ports[broker_id]}",
        }

    def bootstrap(self, *names: str) -> list[str]:
        """`bootstrap.servers` of the brokers in these regions; without names: of all."""
        return [f"{HOST}:{self.ports[i]}" for i, rack in self._racks.items() if not names or rack in names]

    def start(self, brokers: Iterable[int]) -> None:
        for broker_id in brokers:
            self.by_id[broker_id].start()
            self.by_id[broker_id].await_started()

    def __enter__(self) -> Regions:
        self.start(self._racks)
        return self

    def __exit__(self, *_raised: object) -> None:
        for broker in self.by_id.values():
            if broker.is_running:
                broker.kill()


def await_all(root: str, is_so: Callable[[PartitionRecord], bool], what: str) -> int:
    """Wait until all partitions are so; the time that it took, in ms."""
    view, begun_s = ClusterView(root), time.monotonic()

    def are() -> bool:
        view.refresh()
        return bool(view.image.partitions) and all(map(is_so, view.image.partitions.values()))

    wait_until(are, what, 180, pause_s=0.05)
    return round((time.monotonic() - begun_s) * 1_000)


def consumed(bootstrap: list[str], count: int) -> dict[int, int]:
    """Read at least so many records as the group and commit; what it has committed then, by partition."""
    consumer: Any = KafkaConsumer(
        TOPIC, bootstrap_servers=bootstrap, group_id=GROUP, auto_offset_reset="earliest", enable_auto_commit=False
    )
    read = 0

    def has_read() -> bool:
        nonlocal read
        read += sum(map(len, consumer.poll(1_000).values()))
        return read >= count

    wait_until(has_read, f"{count} records", 120)
    consumer.commit()
    found = committed(consumer)
    consumer.close()
    return found


def committed(consumer: Any) -> dict[int, int]:
    found = {partition: consumer.committed(KafkaPartition(TOPIC, partition)) for partition in range(PARTITIONS)}
    return {partition: offset for partition, offset in found.items() if offset is not None}


def committed_by(bootstrap: list[str]) -> dict[int, int]:
    """What the group has committed, as these brokers say."""
    consumer: Any = KafkaConsumer(bootstrap_servers=bootstrap, group_id=GROUP, enable_auto_commit=False)
    found = committed(consumer)
    consumer.close()
    return found


def is_home(state: PartitionRecord, domain: str) -> bool:
    return state.domain == domain and not state.target


def records_of(root: str, history: History) -> int:
    """Tell the history what is stored; how many."""
    view, count = ClusterView(root), 0
    for partition in range(PARTITIONS):
        for table in view.records.committed_rows(TopicPartition(TOPIC, partition), 8 << 20):
            for row in table.select(["offset", "value"]).to_pylist():
                history.add("storage", STORED, partition, row["offset"], value=row["value"].decode())
                count += 1
    return count


def run(folder: Path, seconds: float, *, in_clouds: bool = False) -> RegionLoss:
    """A whole run; `folder` gets the roots, the history and what brokers print."""
    with ExitStack() as stack:
        places: Clouds | Directories = Clouds(folder) if in_clouds else Directories(folder)
        stack.enter_context(places)
        regions = stack.enter_context(Regions(folder, (EAST, *places.copies)))
        return _run(regions, places, seconds)


def _run(regions: Regions, places: Clouds | Directories, seconds: float) -> RegionLoss:
    root, replicas = regions.metadata_root, len(regions.by_id)
    admin = Admin(root)
    for name in (EAST, *places.copies):
        admin.add_storage_domain(name, places.urls[name], durable=True, racks=[name])
    copies = ",".join(places.copies)
    admin.alter_cluster_configs({"stratalog.storage.domain": EAST, "stratalog.storage.copies": copies})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 2, {"min.insync.replicas": 2, "retention.ms": -1})])
    history = History(regions.folder / "history.jsonl")
    with SocketWriter(regions.bootstrap(), TOPIC, PARTITIONS, history, "kafka-python"):
        consumed(regions.bootstrap(EAST), 200)
        await_all(root, lambda state: len(state.isr) == replicas, "all copies are in sync")
        time.sleep(seconds / 3)
        before = consumed(regions.bootstrap(EAST), 200)
        await_all(root, lambda state: len(state.isr) == replicas, "all copies are in sync")
        lost_s, acknowledged = time.monotonic(), history.counts[ACK]
        for broker_id in BROKERS[EAST]:
            regions.by_id[broker_id].kill()
        places.lose_east()
        await_all(root, lambda state: state.leader not in (NO_LEADER, *BROKERS[EAST]), "another region leads")
        wait_until(lambda: history.counts[ACK] > acknowledged + 4 * PARTITIONS, "acknowledgements go on", 120)
        pause_ms = round((time.monotonic() - lost_s) * 1_000)
        show(f"another region leads and acknowledges {pause_ms} ms after the loss")
        after = committed_by(regions.bootstrap(WEST))
        assert metadata.main(["domains", "--root", root, "--promote", WEST, "--leave", EAST]) == 0
        promoted_ms = await_all(root, lambda state: is_home(state, WEST), "the west is the home")
        assert metadata.main(["domains", "--root", root, "--remove", EAST, "--lost"]) == 0
        time.sleep(seconds / 3)
        consumed(regions.bootstrap(WEST), 200)
        begun_s = time.monotonic()
        places.make_new_east()
        admin.add_storage_domain(NEW_EAST, places.urls[NEW_EAST], durable=True, racks=[EAST])
        regions.start(BROKERS[EAST])
        copies = ",".join((NEW_EAST, *places.copies[1:]))
        for topic in admin.list_topics():
            admin.alter_configs(topic, {"stratalog.storage.copies": copies})
        await_all(root, lambda state: len(state.isr) == replicas and not state.target, "the new place has copies")
        admin.promote_storage_domain(NEW_EAST)
        await_all(root, lambda state: is_home(state, NEW_EAST) and state.leader in BROKERS[EAST], "the east leads")
        back_ms = round((time.monotonic() - begun_s) * 1_000)
        show(f"the east leads again, {back_ms} ms after its brokers began to start")
        time.sleep(seconds / 3)
        consumed(regions.bootstrap(EAST), 200)
    stored = records_of(root, history)
    history.close()
    counts = history.counts
    return RegionLoss(
        counts[SEND], counts[ACK], counts[FAIL], stored, pause_ms, promoted_ms, back_ms, before, after,
        check(history.events()),
    )  # fmt: skip


def main(arguments: list[str] | None = None) -> int:
    """Exit code 0 when nothing was lost or stored twice, and the group's offsets were the same."""
    parser = options(__doc__, seed=1)
    parser.add_argument("--seconds", type=float, default=60.0, help="of load, in three parts (60)")
    parser.add_argument("--clouds", action="store_true", help="S3, Azure and a directory (two directories)")
    given = parser.parse_args(arguments)
    with work_folder(given.folder, "region-loss") as folder:
        result = run(folder, given.seconds, in_clouds=given.clouds)
    return concluded(result)


if __name__ == "__main__":
    sys.exit(main())
