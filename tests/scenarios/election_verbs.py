"""The commands of a scenario for elections and topic deletion.

leaders t                           a line for each partition: leader, replicas, ISR
elect preferred [t-0 t-1]           as by the tool; without partitions, of all
imbalance                           of each broker, the part of its partitions that others lead
deletions                           removed topics, and the brokers with replicas of them
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from stratalog.jobs.topics.leader_election import TYPES, answer_lines
from stratalog.replication.config import BrokerConfig
from stratalog.replication.controller.election.preferred_leaders import elect_leaders, leader_balance
from stratalog.replication.controller.topic_deletion import topic_deletions
from stratalog.replication.metadata.image import ClusterImage
from stratalog.replication.metadata.records import PartitionRecord
from stratalog.storage.records import TopicPartition
from tests.scenarios.scenario_cluster import ScenarioCluster
from tests.simulation import cluster as simulated


@contextmanager
def settings(changed: dict[str, str]) -> Iterator[None]:
    """Brokers that are started meanwhile have these settings, by Kafka name."""
    before = simulated.CONFIG
    simulated.CONFIG = BrokerConfig.from_properties({**before.properties(), **changed})
    try:
        yield
    finally:
        simulated.CONFIG = before


def partition_assignment(text: str) -> dict[int, tuple[int, ...]]:
    """`1:3:4,2:4:5`: the replicas of partitions 0 and 1."""
    return {p: tuple(map(int, replicas.split(":"))) for p, replicas in enumerate(text.split(","))}


def eligible_lines(state: PartitionRecord) -> list[str]:
    """The eligible replicas outside the ISR, and those in it that lost their log, where it matters."""
    lines = [f"eligible {list(state.elr)}, before {list(state.last_known_elr)}"]
    return (lines if state.elr or state.last_known_elr else []) + ([f"lost {list(state.lost)}"] if state.lost else [])


class ElectionVerbs:
    """A part of the stage."""

    sim: ScenarioCluster

    def do_leaders(self, topic: str, options: dict[str, str]) -> list[str]:
        image = self._image()
        states = [image.partitions[named] for named in image.partitions_of(topic)]
        return [
            f"{s.topic_partition} leader {s.leader}, replicas {_listed(s.replicas)}, ISR {_listed(sorted(s.isr))}"
            for s in states
        ]

    def do_elect(self, kind: str, *partitions: str, options: dict[str, str]) -> list[str]:
        election_type = TYPES[kind]
        named = [TopicPartition(p.rpartition("-")[0], int(p.rpartition("-")[2])) for p in partitions]
        answers = self.sim.metadata.propose(lambda image: elect_leaders(image, election_type, named or None))
        self.sim.wait(300)
        return answer_lines(election_type, answers) or ["no election needed"]

    def do_imbalance(self, options: dict[str, str]) -> list[str]:
        balances = leader_balance(self._image())
        return [", ".join(f"broker {b}: {balance.imbalance_percentage:.0f} %" for b, balance in balances.items())]

    def do_deletions(self, options: dict[str, str]) -> list[str]:
        return [
            f"{deletion.topic}: " + ", ".join(f"{b} {state}" for b, state in deletion.replica_states.items())
            for deletion in topic_deletions(self._image())
        ] or ["none"]

    def _image(self) -> ClusterImage:
        self.sim.metadata.refresh()
        return self.sim.metadata.image


def _listed(numbers: tuple[int, ...] | list[int]) -> str:
    return ",".join(map(str, numbers))
