"""The commands of a scenario: each has its words, acts on the cluster and returns lines of text.

brokers 3                                         machines 1 to 3, started one by one; broker 1 is the controller;
                                                  also cluster settings by their Kafka names
create-topic t partitions=1 rf=3 min-isr=2        or replicas=2,1 or replicas=2:1,1:2; unclean=true;
                                                  any Kafka name=value
delete-topic t · set-config t min-isr=1
reassign t-0 4,5,6 · cancel t-0 · reassignment t-0
produce t-0 a b acks=all                          one batch; also timeout=500ms to=1 id=7 seq=0 later=x
answer x                                          the answer of a `later=x`
delete-records t-0 3                              -1: up to the high watermark; also timeout=500ms
ask-to-delete t-0 3                               the same request, whose answer nobody waits for
read t-0 [from=2] [avoid=1,2]                     what a client reads that cannot read these brokers' tables
show t-0 · history t-0 · controller               the present state; states since the last `history`
tables t-0                                        the brokers that have a table of it
kill 1 2 · power-off 1 · kill-process 1           machines / and unsynced data / the process, not its fetch tasks
restart 1 · start-beside 1 · shut-down 1          `start-beside`: the earlier process, `old-1`, still exists
pause 2 3000ms · resume 2                         a machine; or broker-2, fetch-2, old-2
cut 1 metadata 2000ms                             a machine, broker-1 or fetch-1 cannot reach a root (broker-2 …)
stop-fetching 3 · resume-fetching 3 · wait 1500ms
fence-as 1 3 · alter-isr-as old-1 t-0 1,2,3       requests of a deposed controller, or leader
truncate-by high-watermark                        Kafka before 0.11
and those of `election_verbs` and `disk_verbs`.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from contextlib import ExitStack

from stratalog.clients.admin.record_deletion import RecordDeletion
from stratalog.jobs.text.reassignment import under_way_line
from stratalog.replication.broker_root import mark_clean_shutdown
from stratalog.replication.controller.brokers import IsrChange, alter_partition, fence_brokers
from stratalog.replication.controller.topics import alter_config, create_topic, delete_topic
from stratalog.replication.metadata.records import PartitionRecord
from stratalog.replication.progress.progress import UNKNOWN, leader_progress_path
from stratalog.replication.progress.progress_object import ProgressReader
from stratalog.replication.requests.delete_records import DeleteRecordsRequest
from stratalog.replication.requests.produce import ACKS_ALL, ACKS_LEADER, ACKS_NONE, ProduceRequest, ProduceResponse
from stratalog.server.admin.reassignment import alter_reassignments, list_reassignments
from stratalog.server.view.cluster_view import ClusterView
from stratalog.storage.delta.table import LogTable
from stratalog.storage.errors import LogDirNotFoundError, StratalogError
from stratalog.storage.log.reader import LogReader
from stratalog.storage.objects.port import ObjectStore
from stratalog.storage.records import IdentifiedPartition, NewRecordBatch, TopicPartition, payload_table
from stratalog.storage.topic_config import LogConfig
from tests.replication.images import broker_epochs_of
from tests.scenarios.disk_verbs import DiskVerbs
from tests.scenarios.election_verbs import ElectionVerbs, eligible_lines, partition_assignment, settings
from tests.scenarios.high_watermark_truncation import truncation_by_high_watermark
from tests.scenarios.scenario_cluster import ScenarioCluster
from tests.simulation.cluster import METADATA_ROOT, Disk, with_defaults
from tests.simulation.scheduler import Actor

ACKS = {"0": ACKS_NONE, "1": ACKS_LEADER, "all": ACKS_ALL}
SHORT_CONFIGS = {"min-isr": "min.insync.replicas", "unclean": "unclean.leader.election.enable"}
PATIENCE_MS = 3_000


class WithoutTablesOf:
    """The stores of a client that cannot read the tables of some brokers."""

    def __init__(self, sim: ScenarioCluster, avoided: tuple[int, ...]) -> None:
        self._sim = sim
        self._roots = {sim.hosts[i].root for i in avoided}

    def objects(self, root: str) -> ObjectStore:
        return self._sim.objects(root)

    def table(self, root: str, topic_partition: TopicPartition) -> LogTable:
        if root in self._roots:
            raise LogDirNotFoundError(f"{root} is out of reach")
        return self._sim.table(root, topic_partition)

    def replicas(self, root: str) -> list[TopicPartition]:
        return self._sim.replicas(root)


class WaitingClock:
    """The clock of a client that waits outside the simulation: meanwhile the brokers take their turns."""

    def __init__(self, sim: ScenarioCluster) -> None:
        self._sim = sim

    def wall_ms(self) -> int:
        return self._sim.clock.wall_ms()

    def monotonic_ms(self) -> int:
        return self._sim.clock.monotonic_ms()

    def sleep_ms(self, duration_ms: float) -> None:
        self._sim.wait(int(duration_ms))


class Stage(ElectionVerbs, DiskVerbs):
    """One scenario's cluster and the verbs that act on it."""

    def __init__(self, seed: int) -> None:
        self.sim = ScenarioCluster(0, seed)
        self._seed = seed
        self._later: dict[str, tuple[Future[ProduceResponse], list[str]]] = {}
        self._views: dict[str, ClusterView] = {}
        self._taken_out: dict[int, Disk] = {}
        self._held_creates: dict[str, Actor] = {}
        self._patches = ExitStack()
        self._verbs: dict[str, Callable[..., list[str]]] = {
            name.removeprefix("do_").replace("_", "-"): getattr(self, name) for name in dir(self) if name[:3] == "do_"
        }

    def run(self, command: str) -> list[str]:
        """Run one line. Errors of the cluster are output; an unknown verb or word is an error of the scenario."""
        verb, *words = command.split()
        options = dict(word.split("=", 1) for word in words if "=" in word)
        try:
            return self._verbs[verb](*(word for word in words if "=" not in word), options=options)
        except StratalogError as reason:
            return [f"{reason.name}: {reason}"]

    def close(self) -> None:
        self.sim.scheduler.kill(list(self.sim.scheduler.actors))
        self._patches.close()

    # -- the cluster ---------------------------------------------------------------------------------------

    def do_brokers(self, count: str, options: dict[str, str]) -> list[str]:
        self._patches.enter_context(settings(options))
        self.sim = ScenarioCluster(int(count), self._seed)
        self.sim.start_all()
        return []

    def do_truncate_by(self, what: str, options: dict[str, str]) -> list[str]:
        assert what == "high-watermark"
        self._patches.enter_context(truncation_by_high_watermark(self.sim))
        return []

    def do_wait(self, duration: str, options: dict[str, str]) -> list[str]:
        self.sim.wait(milliseconds(duration))
        return []

    def do_kill(self, *machines: str, options: dict[str, str]) -> list[str]:
        self.sim.kill_machines(map(int, machines))
        return []

    def do_power_off(self, *machines: str, options: dict[str, str]) -> list[str]:
        self.sim.kill_machines(map(int, machines), power_loss=True)
        return []

    def do_kill_process(self, broker: str, options: dict[str, str]) -> list[str]:
        self.sim.crash(int(broker))
        return []

    def do_restart(self, *brokers: str, options: dict[str, str]) -> list[str]:
        for broker in brokers:
            self.sim.start_host(int(broker))
        return []

    def do_start_beside(self, broker: str, options: dict[str, str]) -> list[str]:
        self.sim.start_beside(int(broker))
        return []

    def do_shut_down(self, broker: str, options: dict[str, str]) -> list[str]:
        running = self.sim.hosts[int(broker)].broker
        assert running is not None
        running.shut_down()
        self.sim.wait(200)
        self.sim.kill_machines([int(broker)])
        mark_clean_shutdown(self.sim.objects(running.root), running.broker_epoch)
        return []

    def do_pause(self, target: str, duration: str, options: dict[str, str]) -> list[str]:
        self.sim.pause_target(target, milliseconds(duration))
        return []

    def do_resume(self, target: str, options: dict[str, str]) -> list[str]:
        self.sim.resume_target(target)
        return []

    def do_cut(self, target: str, root: str, duration: str, options: dict[str, str]) -> list[str]:
        self.sim.cut_target(target, root, milliseconds(duration))
        return []

    def do_stop_fetching(self, *brokers: str, options: dict[str, str]) -> list[str]:
        for broker in brokers:
            self.sim.stop_fetching(int(broker))
        return []

    def do_resume_fetching(self, *brokers: str, options: dict[str, str]) -> list[str]:
        for broker in brokers:
            self.sim.resume_fetching(int(broker))
        return []

    # -- topics --------------------------------------------------------------------------------------------

    def do_create_topic(self, topic: str, options: dict[str, str]) -> list[str]:
        assignment = None
        partitions, replication_factor = int(options.pop("partitions", 1)), int(options.pop("rf", 1))
        if "replicas" in options:
            replicas = options.pop("replicas")
            assignment = partition_assignment(replicas) if ":" in replicas else {0: numbers(replicas)}
            partitions = replication_factor = -1
        configs = kafka_names(options)
        # An unclean election may lose acknowledged records: the invariants are for clean ones.
        self.sim.invariants.clean &= "unclean.leader.election.enable" not in configs
        self.sim.metadata.propose(
            lambda image: with_defaults(
                create_topic(
                    image,
                    topic,
                    self.sim.ids.new_id(),
                    partitions,
                    replication_factor,
                    assignment,
                    configs,
                    check_configs=LogConfig.validated,
                )
            )
        )
        self.sim.wait(300)
        return []

    def do_delete_topic(self, topic: str, options: dict[str, str]) -> list[str]:
        self.sim.metadata.propose(lambda image: delete_topic(image, topic))
        self.sim.wait(300)
        return []

    def do_set_config(self, topic: str, options: dict[str, str]) -> list[str]:
        changes: dict[str, str | None] = {**kafka_names(options)}
        self.sim.metadata.propose(lambda image: alter_config(image, topic, changes, check_configs=LogConfig.validated))
        self.sim.wait(300)
        return []

    def do_reassign(self, partition: str, replicas: str, options: dict[str, str]) -> list[str]:
        return self._reassigned(partition_of(partition), numbers(replicas))

    def do_cancel(self, partition: str, options: dict[str, str]) -> list[str]:
        return self._reassigned(partition_of(partition), None)

    def _reassigned(self, topic_partition: TopicPartition, target: tuple[int, ...] | None) -> list[str]:
        """As by an admin client elsewhere."""
        asked = {topic_partition: target}
        answer = alter_reassignments(self._admin_view(), asked, allow_replication_factor_change=True)[topic_partition]
        self.sim.wait(300)
        return [] if answer is None else [f"{answer.name}: {answer}"]

    def do_reassignment(self, partition: str, options: dict[str, str]) -> list[str]:
        topic_partition = partition_of(partition)
        under_way = list_reassignments(self._admin_view(), [topic_partition])
        if topic_partition in under_way:
            return [under_way_line(under_way[topic_partition])]
        self.sim.metadata.refresh()
        replicas = self.sim.metadata.image.partition(topic_partition).replicas
        return [f"nothing under way. replicas: {','.join(map(str, replicas))}"]

    def _admin_view(self) -> ClusterView:
        return ClusterView(METADATA_ROOT, timeout_ms=0, stores=self.sim, clock=self.sim.clock, ids=self.sim.ids)

    # -- clients -------------------------------------------------------------------------------------------

    def do_produce(self, partition: str, *values: str, options: dict[str, str]) -> list[str]:
        topic_partition = partition_of(partition)
        self.sim.metadata.refresh()
        leader = options.get("to") or str(self.sim.metadata.image.partition(topic_partition).leader)
        broker = self.sim.process(leader) if leader != "-1" else None
        if broker is None:
            return [f"{' '.join(values)} -> LEADER_NOT_AVAILABLE" if leader == "-1" else f"broker {leader} is down"]
        acks = ACKS[options.get("acks", "all")]
        timeout_ms = milliseconds(options.get("timeout", "1500ms"))
        request = ProduceRequest(
            self.sim.metadata.image.identified(topic_partition), self._batch(values, options), acks, timeout_ms
        )
        future: Future[ProduceResponse] = Future()
        broker.calls.produce_then(request, future.set_result)
        if "later" in options:
            self._later[options["later"]] = (future, list(values))
            return []
        if acks == ACKS_NONE:
            self.sim.wait(100)
            return [f"{' '.join(values)} -> sent"]
        return self._await(future, list(values), acks)

    def _batch(self, values: tuple[str, ...], options: dict[str, str]) -> NewRecordBatch:
        payload = payload_table([(self.sim.clock.wall_ms(), None, value.encode(), None) for value in values])
        producer_id = int(options.get("id", -1))
        return NewRecordBatch(payload, producer_id, 0 if producer_id >= 0 else -1, int(options.get("seq", -1)))

    def do_answer(self, name: str, options: dict[str, str]) -> list[str]:
        return self._await(*self._later.pop(name), ACKS_ALL)

    def _await(self, future: Future[ProduceResponse], values: list[str], acks: int) -> list[str]:
        self.sim.scheduler.run_until(self.sim.scheduler.now_ms + PATIENCE_MS, future.done)
        said = " ".join(values)
        if not future.done():
            return [f"{said} -> no answer"]
        response = future.result()
        if response.error is not None:
            return [f"{said} -> {response.error.name}"]
        if acks == ACKS_ALL:
            for i, value in enumerate(values):
                offset = response.base_offset + i
                self.sim.acknowledged(response.topic_partition, offset, value.encode())
        self.sim.wait(100)  # what followers and readers receive of it
        base, last = response.base_offset, response.last_offset
        where = f"offset {base}" if base == last else f"offsets {base}-{last}"
        return [f"{said} -> {where}, epoch {response.leader_epoch}{', duplicate' if response.duplicate else ''}"]

    def do_read(self, partition: str, options: dict[str, str]) -> list[str]:
        topic_partition = partition_of(partition)
        avoided = options.get("avoid", "")
        if avoided not in self._views:
            stores = WithoutTablesOf(self.sim, numbers(avoided) if avoided else ())
            self._views[avoided] = ClusterView(
                METADATA_ROOT, timeout_ms=0, stores=stores, clock=self.sim.clock, ids=self.sim.ids
            )
        view = self._views[avoided]
        view.refresh()
        rows = view.records.read(topic_partition, int(options.get("from", 0)), 1 << 20, timeout_ms=0)
        columns = (rows[name].to_pylist() for name in ("offset", "value", "producer_id", "sequence"))
        found = list(zip(*columns, strict=True))
        for record in found:
            self.sim.was_read(topic_partition, *record[:2])
        return [" ".join(f"{offset}:{value.decode()}" for offset, value, _, _ in found) or "nothing"]

    def do_delete_records(self, partition: str, offset: str, options: dict[str, str]) -> list[str]:
        topic_partition = partition_of(partition)
        view = ClusterView(METADATA_ROOT, stores=self.sim, clock=WaitingClock(self.sim), ids=self.sim.ids)
        timeout_ms = milliseconds(options.get("timeout", "5000ms"))
        log = self.sim.invariants.log_id(topic_partition)
        if log is not None:
            self.sim.invariants.may_delete(log, None if offset == "-1" else int(offset))
        running = {i: host.broker.calls for i, host in self.sim.hosts.items() if host.broker is not None}
        answer = RecordDeletion(view, running, {topic_partition: int(offset)}, timeout_ms).run()[topic_partition]
        if answer.error is not None:
            return [f"{answer.error.name}: {answer.error}"]
        return [f"low watermark {answer.low_watermark}"]

    def do_ask_to_delete(self, partition: str, offset: str, options: dict[str, str]) -> list[str]:
        self.sim.metadata.refresh()
        image, named = self.sim.metadata.image, self.sim.metadata.image.identified(partition_of(partition))
        leader = self.sim.hosts[image.partition(named.topic_partition).leader].broker
        assert leader is not None
        self.sim.invariants.may_delete((named.topic_id, named.topic_partition.partition), None)
        leader.calls.delete_records(DeleteRecordsRequest({named: int(offset)}, 60_000), lambda _answers: None)
        return []

    # -- deposed controllers and leaders -----------------------------------------------------------------------------

    def do_fence_as(self, controller: str, dead: str, options: dict[str, str]) -> list[str]:
        """Controller `controller` fences broker `dead` under the epoch that it assumes."""
        candidate = self.sim.controllers[int(controller)]
        broker_epoch = self.sim.metadata.image.brokers[int(dead)].broker_epoch
        candidate.metadata.propose(
            lambda image: fence_brokers(image, {int(dead): broker_epoch}), controller_epoch=candidate.epoch
        )
        return ["committed"]

    def do_alter_isr_as(self, process: str, partition: str, isr: str, options: dict[str, str]) -> list[str]:
        """A leader proposes an ISR, with the epochs that it last knew."""
        broker, topic_partition = self.sim.process(process), partition_of(partition)
        assert broker is not None
        known = broker.leaders[topic_partition].state
        epochs = broker_epochs_of(broker.metadata.image)
        named = IdentifiedPartition(broker.leaders[topic_partition].topic_id, topic_partition)
        change = IsrChange(named, known.leader_epoch, known.partition_epoch, numbers(isr), epochs)
        answers = broker.metadata.propose(
            lambda image: alter_partition(image, broker.broker_id, broker.broker_epoch, [change])
        )
        return [a.state_json() if isinstance(a, PartitionRecord) else f"{a.name}: {a}" for a in answers]

    # -- output -------------------------------------------------------------------------------------------

    def do_controller(self, options: dict[str, str]) -> list[str]:
        self.sim.metadata.refresh()
        image = self.sim.metadata.image
        return [f"controller {image.controller_id}, epoch {image.controller_epoch}"]

    def do_history(self, partition: str, options: dict[str, str]) -> list[str]:
        topic_partition = partition_of(partition)
        found = [r.state_json() for r in self.sim.history if r.topic_partition == topic_partition]
        self.sim.history = [r for r in self.sim.history if r.topic_partition != topic_partition]
        return found or ["nothing changed"]

    def do_show(self, partition: str, options: dict[str, str]) -> list[str]:
        topic_partition = partition_of(partition)
        self.sim.metadata.refresh()
        state = self.sim.metadata.image.partitions.get(topic_partition)
        if state is None:
            return [f"no partition {partition}; {self.do_tables(partition, options)[0]}"]
        replicas = [self._replica_line(broker_id, state) for broker_id in sorted(state.replicas)]
        return [state.state_json(), *eligible_lines(state), *replicas, f"high watermark {self._high_watermark(state)}"]

    def do_tables(self, partition: str, options: dict[str, str]) -> list[str]:
        tables = {i: host.disk.tables.get(partition) for i, host in self.sim.hosts.items()}
        holders = [str(i) for i, files in tables.items() if files is not None and files.commits]
        return [f"tables on: {', '.join(holders) or 'none'}"]

    def _replica_line(self, broker_id: int, state: PartitionRecord) -> str:
        topic_partition = state.topic_partition
        head = f"{broker_id} {self._role(broker_id, state):<8}"
        host = self.sim.hosts[broker_id]
        files = host.disk.tables.get(str(topic_partition))
        if files is None or not files.commits:
            return f"{head} no table"
        log = LogReader(self.sim.table(host.root, topic_partition), self.sim.clock)
        line = f"{head} epoch {log.leader_epoch}  end {log.log_end_offset} "
        shown_epoch = None
        rows = log.read(log.log_start_offset, 1 << 20)
        for epoch, value in zip(rows["leader_epoch"].to_pylist(), rows["value"].to_pylist(), strict=True):
            if epoch != shown_epoch:
                line += f" e{epoch}:"
                shown_epoch = epoch
            line += f" {value.decode()}"
        return line.rstrip()

    def _role(self, broker_id: int, state: PartitionRecord) -> str:
        broker = self.sim.hosts[broker_id].broker
        if broker is None or broker.stopped_by is not None:
            return "down"
        if broker_id != state.leader and state.topic_partition in broker.leaders:
            return "zombie"
        if self.sim.is_paused(broker_id):
            return "paused"
        return "leader" if broker_id == state.leader else "follower"

    def _high_watermark(self, state: PartitionRecord) -> str:
        """As the leader published it under its epoch."""
        leader = self.sim.metadata.image.brokers.get(state.leader)
        if leader is None:
            return "unknown"
        objects = self.sim.objects(leader.registration.root)
        reader = ProgressReader(objects, leader_progress_path(leader.broker_epoch))
        reader.poll()
        entry = reader.entries.get(state.topic_partition)
        if entry is None or entry.leader_epoch != state.leader_epoch or entry.high_watermark == UNKNOWN:
            return "unknown"
        return str(entry.high_watermark)


def milliseconds(text: str) -> int:
    assert text.endswith("ms"), f"a duration ends with ms: {text}"
    return int(text.removesuffix("ms"))


def numbers(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in text.split(","))


def partition_of(text: str) -> TopicPartition:
    topic, _, partition = text.rpartition("-")
    return TopicPartition(topic, int(partition))


def kafka_names(options: dict[str, str]) -> dict[str, str]:
    return {SHORT_CONFIGS.get(name, name): value for name, value in options.items()}
