"""Leader elections on request, and the balance of leaders over brokers (KIP-460, KIP-183). Pure.

A preferred election makes the first assigned replica the leader, if it is live and in sync. An unclean election is for
a partition without a leader: any live replica leads, and acknowledged records may be lost.

The balance: each broker is the preferred leader of some partitions. Its imbalance is the percentage of them that other
brokers lead; above `leader.imbalance.per.broker.percentage` the controller moves them to it (`rebalance_leaders`).
Broker 1 is preferred for ten partitions and leads eight: 20 %, so with 10 % allowed the other two move.
Source: `ReplicationControlManager.electLeaders`, `KafkaController.checkAndTriggerAutoLeaderRebalance`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import StrEnum

from stratalog.replication.controller.election.eligible_leaders import update_eligible_leaders
from stratalog.replication.controller.election.leader_election import elect_offline, elect_preferred
from stratalog.replication.metadata.image import ClusterImage, Result
from stratalog.replication.metadata.records import NO_LEADER, PartitionRecord
from stratalog.storage import errors
from stratalog.storage.errors import StratalogError
from stratalog.storage.records import TopicPartition

ELECTIONS_MAX = 1000
"""The leaders that one rebalance moves at most, as in Kafka's KRaft controller: a move interrupts producers."""


class ElectionType(StrEnum):
    """Kafka's types of elections on demand."""

    PREFERRED = "PREFERRED"
    UNCLEAN = "UNCLEAN"


Answers = dict[TopicPartition, StratalogError | None]
"""The error of each partition; None: a leader was elected."""


def elect_leaders(
    image: ClusterImage, election_type: ElectionType, topic_partitions: Iterable[TopicPartition] | None = None
) -> Result[Answers]:
    """Elect leaders of the named partitions, or of all (None): then the answer omits those that need no election.

    The errors are UnknownTopicOrPartitionError, ElectionNotNeededError (the preferred replica leads already; for an
    unclean election: any replica), PreferredLeaderNotAvailableError (not live, or not in the ISR),
    EligibleLeadersNotAvailableError (no replica is live).
    """
    asked = list(image.partitions) if topic_partitions is None else list(dict.fromkeys(topic_partitions))
    live = image.live_brokers().keys()
    decided: list[PartitionRecord] = []
    answers: Answers = {}
    for named in asked:
        try:
            decided.append(_elected(image, named, election_type, live))
            answers[named] = None
        except errors.ElectionNotNeededError as reason:
            if topic_partitions is not None:
                answers[named] = reason.as_value()
        except StratalogError as reason:
            answers[named] = reason.as_value()
    return Result(update_eligible_leaders(image, decided), answers)


def _elected(
    image: ClusterImage, named: TopicPartition, election_type: ElectionType, live: Collection[int]
) -> PartitionRecord:
    partition = image.partitions.get(named)
    if partition is None:
        what = f"partition as {named}" if named.topic in image.topic_ids else f"topic as {named.topic}"
        raise errors.UnknownTopicOrPartitionError(f"No such {what}")
    is_preferred = election_type is ElectionType.PREFERRED
    wanted = (partition.replicas[0],) if is_preferred else live
    if partition.leader in live and partition.leader in wanted:
        raise errors.ElectionNotNeededError(f"Leader election not needed for {named}: broker {partition.leader} leads")
    election = elect_preferred(partition, live) if is_preferred else elect_offline(partition, live, unclean=True)
    if election is None:
        state = f"replicas {list(partition.replicas)}, ISR {list(partition.isr)}, live brokers {sorted(live)}"
        if is_preferred:
            raise errors.PreferredLeaderNotAvailableError(f"Failed to elect leader for partition {named}: {state}")
        raise errors.EligibleLeadersNotAvailableError(f"Failed to elect leader for partition {named}: {state}")
    return election.applied_to(partition, image.controller_epoch)


@dataclass(frozen=True, slots=True)
class BrokerBalance:
    """The number of partitions whose preferred leader a broker is, and those of them that another broker leads."""

    preferred: int
    led_by_others: tuple[TopicPartition, ...]

    @property
    def imbalance_percentage(self) -> float:
        """0 to 100."""
        return 100 * len(self.led_by_others) / self.preferred


def leader_balance(image: ClusterImage) -> dict[int, BrokerBalance]:
    """The balance of every broker that is a preferred leader, by id.

    A partition without a leader counts as led by its preferred leader: there is none to move it from.
    """
    preferred: dict[int, int] = {}
    by_others: dict[int, list[TopicPartition]] = {}
    for named, partition in image.partitions.items():
        broker_id = partition.replicas[0]
        preferred[broker_id] = preferred.get(broker_id, 0) + 1
        if partition.leader not in (broker_id, NO_LEADER):
            by_others.setdefault(broker_id, []).append(named)
    return {b: BrokerBalance(count, tuple(sorted(by_others.get(b, ())))) for b, count in sorted(preferred.items())}


def rebalance_leaders(
    image: ClusterImage, percentage_max: int, elections_max: int = ELECTIONS_MAX
) -> Result[tuple[TopicPartition, ...]]:
    """Preferred elections for brokers whose imbalance is above `percentage_max`; the answer names the moved partitions.

    Without partitions under reassignment. A preferred replica that is down or not in the ISR waits for the next
    rebalance.
    """
    live = image.live_brokers().keys()
    moved: list[PartitionRecord] = []
    for balance in leader_balance(image).values():
        if balance.imbalance_percentage <= percentage_max:
            continue
        for named in balance.led_by_others:
            partition = image.partitions[named]
            election = elect_preferred(partition, live)
            is_reassigning = partition.adding or partition.removing or partition.target
            if election is not None and not is_reassigning and len(moved) < elections_max:
                moved.append(election.applied_to(partition, image.controller_epoch))
    return Result(update_eligible_leaders(image, moved), tuple(p.topic_partition for p in moved))
