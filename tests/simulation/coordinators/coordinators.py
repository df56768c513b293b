"""Clients of coordinators in a simulated cluster, and the invariants of their answers.

The coordinators keep lists (`tests.replication.list_shard`). A record's key says at which position and under which
leader epoch its shard decided, so that the log itself shows a decision that was stored elsewhere.

AnsweredOnce     no request has two answers
OneAnswer        one position of a list is acknowledged with one value for ever, and every list that is read has it
ReadsAreCurrent  a list read from a coordinator has all that was acknowledged before the read, up to its epoch
OneHistory       any two lists that are read are equal, up to the end of the shorter one
DecidedAsStored  each record is where its shard had decided, under the epoch of the decision
AckedNotLost     at the end every acknowledged value is at its position
Liveness         after all faults coordinators answer
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count

from stratalog.replication.broker.broker import Broker
from stratalog.replication.coordinator.runtime.find_coordinator import coordinator_partition
from stratalog.replication.coordinator.runtime.kinds import CoordinatorKind
from stratalog.replication.requests.coordinators import CoordinatorType, FindCoordinatorRequest, FindCoordinatorResponse
from stratalog.storage.records import TopicPartition
from tests.replication.list_shard import Add, Added, Gone, Listed, ListShard, ReadByEpoch
from tests.simulation.clients import Client
from tests.simulation.cluster import SimCluster
from tests.simulation.invariants import Violation
from tests.simulation.scheduler import SimEvent

GROUP = CoordinatorType.GROUP
LISTS = {GROUP: CoordinatorKind(ListShard, Gone)}
"""The value for `Setting.coordinators`."""
GROUPS = ("a", "b")
"""Their hash codes are 97 and 98: one group a partition."""
ANSWER_TRIES = 20


@dataclass(slots=True)
class ListHistory:
    """The answers to clients of one list.

    acked    value and leader epoch by position
    longest  the longest list that was read
    """

    acked: dict[int, tuple[str, int]] = field(default_factory=dict)
    longest: tuple[str, ...] = ()

    def added(self, answer: Added) -> None:
        known, _ = self.acked.setdefault(answer.position, (answer.value, answer.leader_epoch))
        if known != answer.value:
            raise Violation("OneAnswer", f"position {answer.position} is {known}, and {answer.value}")
        self._check_position(answer.position, answer.value)

    def read(self, answer: Listed, asked_after: int) -> None:
        """`asked_after`: the number acknowledged under epochs up to the answer's before the read."""
        values = answer.values
        if len(values) < asked_after:
            reason = f"a list of {len(values)} under epoch {answer.leader_epoch}, {asked_after} had been acknowledged"
            raise Violation("ReadsAreCurrent", reason)
        shorter, longer = sorted((values, self.longest), key=len)
        if longer[: len(shorter)] != shorter:
            raise Violation("OneHistory", f"{values} and {self.longest}")
        self.longest = longer
        for position, (value, _) in self.acked.items():
            self._check_position(position, value)

    def acknowledged(self) -> dict[int, int]:
        """Leader epoch by position."""
        return {position: epoch for position, (_, epoch) in self.acked.items()}

    def _check_position(self, position: int, value: str) -> None:
        if position < len(self.longest) and self.longest[position] != value:
            raise Violation(
                "OneAnswer", f"position {position} was acknowledged as {value}, read as {self.longest[position]}"
            )


class Histories:
    """All lists of a run, by partition."""

    def __init__(self, sim: SimCluster) -> None:
        self.sim = sim
        self.lists: dict[TopicPartition, ListHistory] = {}

    def of(self, topic_partition: TopicPartition) -> ListHistory:
        return self.lists.setdefault(topic_partition, ListHistory())

    @property
    def acked_count(self) -> int:
        return sum(len(each.acked) for each in self.lists.values())

    def is_promised(self, topic_partition: TopicPartition) -> bool:
        """False when the last holder of the log lost it with its disk."""
        history = self.sim.invariants.history(topic_partition)
        return history is not None and not history.lossy

    def check_end(self) -> None:
        """Read once more, and check the logs themselves, after all faults."""
        for topic_partition, lists in list(self.lists.items()):
            self._await_answer(topic_partition)
            history = self.sim.invariants.history(topic_partition)
            if history is None or history.lossy:
                continue
            stored = [record for _, record in sorted(history.committed.items())]
            for place, record in enumerate(stored):
                position, epoch = map(int, (record.key or b"").split(b"/"))
                if (position, epoch) != (place, record.epoch):
                    where = f"{topic_partition}: record {place} of epoch {record.epoch}"
                    raise Violation("DecidedAsStored", f"{where} was decided as {position} under epoch {epoch}")
            for position, (value, _) in lists.acked.items():
                if position >= len(stored) or stored[position].value != value.encode():
                    raise Violation("AckedNotLost", f"{topic_partition}: {value} at {position} of {len(stored)}")

    def _await_answer(self, topic_partition: TopicPartition) -> None:
        scheduler = self.sim.scheduler
        answers: list[object] = []
        for _ in range(ANSWER_TRIES):
            host = self.sim.hosts[self.sim.invariants.partitions[topic_partition].leader]
            processes = [each for each in (host.broker, *host.zombies) if each is not None and each.stopped_by is None]
            for each in processes:
                each.calls.coordinator(GROUP, topic_partition.partition, ReadByEpoch(), answers.append)
            scheduler.run_until(scheduler.now_ms + 200)
            if answers and isinstance(answers[-1], Listed):
                return
        raise Violation("Liveness", f"{topic_partition}: {answers}")


class Asker(Client):
    """Appends to lists and reads them, from the coordinator or an earlier one."""

    def __init__(self, sim: SimCluster, histories: Histories, name: str) -> None:
        super().__init__(sim)
        self._histories = histories
        self._name = name
        self._numbers = count()

    def run(self) -> None:
        while self.sim.scheduler.faults.is_on:
            self._find()
            group = self.random.choice(GROUPS)
            self.partitions()
            topic_partition = coordinator_partition(self.metadata.image, GROUP, group)
            if topic_partition is not None:
                self._ask(group, topic_partition)
            self.sim.clock.sleep_ms(self.random.randrange(1, 60))

    def _find(self) -> None:
        """The first call creates the topic."""
        found: list[FindCoordinatorResponse] = []
        broker = self._any_broker()
        if broker is not None and (not self.metadata.image.partitions_of(GROUP.topic) or self.random.random() < 0.05):
            broker.calls.find_coordinator(FindCoordinatorRequest(GROUP, GROUPS), found.append)

    def _any_broker(self) -> Broker | None:
        brokers = [host.broker for host in self.sim.hosts.values() if host.broker is not None]
        return self.random.choice(brokers) if brokers else None

    def _ask(self, group: str, topic_partition: TopicPartition) -> None:
        state = self.metadata.image.partitions[topic_partition]
        host = self.sim.hosts.get(state.leader)
        brokers = [each for each in (host.broker, *host.zombies) if each is not None] if host is not None else []
        if self.random.random() < 0.1 and (anybody := self._any_broker()) is not None:
            brokers = [anybody]
        if not brokers:
            return
        for _ in range(self.random.choice((1, 1, 3))):  # some in one turn of the broker
            waits = self._send(self.random.choice(brokers), group, topic_partition)
        waits.wait(self.random.randrange(50, 2_000) / 1_000)

    def _send(self, broker: Broker, group: str, topic_partition: TopicPartition) -> SimEvent:
        history, event = self._histories.of(topic_partition), SimEvent(self.sim.scheduler)
        value = f"{self._name}.{next(self._numbers)}"
        before = history.acknowledged()
        answers: list[object] = []

        def answer(response: object) -> None:
            answers.append(response)
            event.set()
            if len(answers) > 1:
                raise Violation("AnsweredOnce", f"{value}: {answers}")
            if not self._histories.is_promised(topic_partition):
                return
            if isinstance(response, Added):
                self.sim.log_event(f"{topic_partition}: {response}")
                history.added(response)
            elif isinstance(response, Listed):
                known = [epoch for epoch in before.values() if epoch <= response.leader_epoch]
                history.read(response, len(known))

        request = Add(value) if self.random.random() < 0.7 else ReadByEpoch()
        broker.calls.coordinator(GROUP, group, request, answer)
        return event


def start_askers(sim: SimCluster) -> Histories:
    """Three clients of the coordinators, until faults stop."""
    histories = Histories(sim)
    for number in range(3):
        sim.scheduler.spawn(f"g{number}", f"client-g{number}", Asker(sim, histories, f"g{number}").run)
    return histories
