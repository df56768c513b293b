"""The simulated cluster without random faults, with a handle for everything that a scenario may do to it.

Brokers, controllers and fetch sessions are the real code; storage accesses never hang or fail by chance, so the
scenario decides what happens. Only the order in which actors run is the seed's. Time is virtual.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from stratalog.replication.broker.broker import Broker
from stratalog.replication.controller.controller import Controller
from stratalog.replication.metadata.log import open_metadata
from stratalog.replication.metadata.records import MetadataRecord, PartitionRecord
from stratalog.storage.records import TopicPartition
from tests.simulation.cluster import METADATA_ROOT, Host, Setting, SimCluster
from tests.simulation.faults import Faults
from tests.storage.memory_table import MemoryDisk

FOR_EVER_MS = 10**9
INTERLEAVING = 0.2
"""The probability that an actor yields at a storage access: a history must end the same in any order."""


class ScenarioCluster(SimCluster):
    """Hosts 1 to `brokers`; each is a machine with a broker, a controller candidate and fetch sessions."""

    def __init__(self, brokers: int, seed: int) -> None:
        faults = Faults(switch=INTERLEAVING, park=0, lost_request=0, lost_answer=0)
        super().__init__(seed, faults, Setting(brokers=brokers, notifies=False))
        self.invariants.only_leaders = True  # a history runs to its end
        self.metadata = open_metadata(self, METADATA_ROOT, self.clock, self.ids)
        self.controllers: dict[int, Controller] = {}
        self.earlier: dict[int, Broker] = {}
        self.history: list[PartitionRecord] = []
        self.known_high_watermarks: dict[tuple[int, TopicPartition], int] = {}
        self._not_fetching: set[int] = set()
        self._old_names: dict[int, list[str]] = {}

    # -- time --------------------------------------------------------------------------------------------

    def wait(self, duration_ms: int) -> None:
        end_ms = self.scheduler.now_ms + duration_ms
        self.scheduler.run_until(end_ms)
        self.scheduler.now_ms = max(self.scheduler.now_ms, end_ms)  # with all hosts dead nothing else moves it

    # -- starting ----------------------------------------------------------------------------------------

    def start_all(self) -> None:
        """Broker 1 first, so that it is the controller in every scenario."""
        self.metadata.create()
        for broker_id in self.hosts:
            self.start_host(broker_id)
            self.wait(500)

    def start_beside(self, broker_id: int) -> None:
        """A new process of the broker while its earlier one still exists, from now on known as `old-<id>`."""
        host = self.hosts[broker_id]
        assert host.broker is not None, f"broker {broker_id} is not running"
        self.earlier[broker_id] = host.broker
        self._old_names[broker_id] = [host.process, host.controller]
        self.start_host(broker_id)

    def _run_controller(self, controller: Controller, broker: Broker, process: str) -> None:
        self.controllers[broker.broker_id] = controller
        super()._run_controller(controller, broker, process)

    def _start_sessions(self, host: Host, broker_epoch: int) -> None:
        super()._start_sessions(host, broker_epoch)
        if host.broker_id in self._not_fetching:
            self.stop_fetching(host.broker_id)

    # -- events of a host -----------------------------------------------------------------------

    def stop_fetching(self, broker_id: int) -> None:
        """The broker's fetch tasks are paused, also those of its later processes."""
        self._not_fetching.add(broker_id)
        for name in self._names(f"fetch-{broker_id}"):
            self.pause(name, FOR_EVER_MS)

    def resume_fetching(self, broker_id: int) -> None:
        self._not_fetching.discard(broker_id)
        for name in self._names(f"fetch-{broker_id}"):
            self.scheduler.resume(name)

    def pause_target(self, target: str, duration_ms: int) -> None:
        for name in self._names(target):
            self.pause(name, duration_ms)

    def resume_target(self, target: str) -> None:
        for name in self._names(target):
            self.scheduler.resume(name)

    def cut_target(self, target: str, root: str, duration_ms: int) -> None:
        for name in self._names(target):
            self.cut(name, f"memory:///{root}", duration_ms)

    def kill_machines(self, broker_ids: Iterable[int], *, power_loss: bool = False) -> None:
        """Brokers and their fetch tasks stop at once. A power loss also removes unsynced files."""
        for broker_id in broker_ids:
            self.crash(broker_id)
            names = set(self._names(str(broker_id)))
            self.scheduler.kill([a for a in list(self.scheduler.actors) if a.host in names])
            for name in names:
                self.scheduler.paused_until_ms.pop(name, None)
            if power_loss:
                self.hosts[broker_id].disk.lose_unsynced()
                self.invariants.lost_power(broker_id)

    def _names(self, target: str) -> list[str]:
        """Scheduler hosts of a target: `2` the machine, `broker-2` its process, `fetch-2` its fetch tasks, `old-2`."""
        kind, _, number = target.rpartition("-")
        fetches = sorted({a.host for a in self.scheduler.actors if a.host.startswith(f"fetch-{number}.")})
        if kind == "old":
            return self._old_names[int(number)]
        host = self.hosts[int(number)]
        process = [host.process, host.controller]
        return {"": [*process, *fetches], "broker": process, "fetch": fetches}[kind]

    def is_paused(self, broker_id: int) -> bool:
        return self.scheduler.paused_until_ms.get(self.hosts[broker_id].process, 0) > self.scheduler.now_ms

    def process(self, name: str) -> Broker | None:
        """`1` or `broker-1`: the running broker; `old-1`: its earlier process."""
        kind, _, number = name.rpartition("-")
        return self.earlier.get(int(number)) if kind == "old" else self.hosts[int(number)].broker

    # -- observations ------------------------------------------------------------------------------------

    def metadata_committed(self, records: Sequence[MetadataRecord]) -> None:
        self.history += [record for record in records if isinstance(record, PartitionRecord)]
        super().metadata_committed(records)

    def acknowledged(self, topic_partition: TopicPartition, offset: int, value: bytes) -> None:
        log = self.invariants.log_id(topic_partition)
        if log is not None:
            self.invariants.acknowledged(log, offset, value)

    def was_read(self, topic_partition: TopicPartition, offset: int, value: bytes | None) -> None:
        log = self.invariants.log_id(topic_partition)
        if log is not None:
            self.invariants.was_read(log, offset, value)

    def object_written(self, root: str, path: str, data: bytes) -> None:
        super().object_written(root, path, data)
        if path.endswith("/leader"):
            broker_id = int(root.rsplit("-", 1)[1])
            for topic_partition, replica in self._led_by(broker_id):
                self.known_high_watermarks[broker_id, topic_partition] = replica

    def _led_by(self, broker_id: int) -> list[tuple[TopicPartition, int]]:
        broker = self.hosts[broker_id].broker
        led = broker.leaders if broker is not None else {}
        return [(tp, r.partition.high_watermark) for tp, r in led.items() if r.partition is not None]

    def broker_of(self, disk: MemoryDisk) -> int:
        return next(i for i, host in self.hosts.items() if host.disk is disk)
