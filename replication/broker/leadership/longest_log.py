"""Which replica leads when all members of an ISR lost power at once: the one with the longest log (KIP-966). Pure.

Each of them leaves the ISR when it registers, while another one is left. So the one that registers last is alone in
the ISR, whatever its disk kept. Before it begins its epoch it compares its log's end with those of the others, which it
asks for as soon as they are registered again, recovered; for those that are not it waits for a bounded time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from stratalog.replication.controller.brokers import LongerLog
from stratalog.replication.metadata.image import ClusterImage
from stratalog.replication.metadata.records import PartitionRecord
from stratalog.storage.log.leader_epochs import LogEnd
from stratalog.storage.records import IdentifiedPartition, TopicPartition


class Life(NamedTuple):
    """One registration of a broker. Its replicas' logs lose nothing while it lasts."""

    broker_id: int
    broker_epoch: int


class Others(NamedTuple):
    """The other replicas of a partition.

    live     their logs can be read: they have recovered, and may lead
    awaited  whether one is fenced that did not shut down: perhaps it recovers
    """

    live: tuple[Life, ...]
    awaited: bool


class Comparison(NamedTuple):
    """`is_over` False: others are waited for. Then `longer` is None where the own log is the longest."""

    is_over: bool
    longer: LongerLog | None = None


OWN_LEADS = Comparison(True)
WAITS = Comparison(False)


def unsure_of(image: ClusterImage, broker_id: int) -> dict[TopicPartition, int]:
    """The partitions whose only member of the ISR is this broker, which recovers after an unclean stop, and of which
    there are other logs; by the leader epoch, which nobody leads: processes of this broker led under older ones."""
    own = (p for p in image.partitions.values() if not p.domain_of(broker_id))
    alone = (p for p in own if p.isr == (broker_id,) and len(p.replicas) > 1)
    return {p.topic_partition: p.leader_epoch for p in alone}


def others_of(image: ClusterImage, state: PartitionRecord, broker_id: int) -> Others:
    """The other replicas as the metadata shows them. A broker that never registered, or that shut down, is not waited
    for."""
    known = [(r, image.brokers[r]) for r in state.replicas if r != broker_id and r in image.brokers]
    live = tuple(Life(r, broker.broker_epoch) for r, broker in known if not broker.fenced)
    return Others(live, any(broker.fenced and not broker.clean_shutdown for _, broker in known))


@dataclass(slots=True)
class LongestLog:
    """The comparison for one leader epoch of a topic's partition; from `deadline_ms` on those that answered are enough.

    ends  what was read, by the registration under which it was asked for
    """

    topic_id: str
    state: PartitionRecord
    deadline_ms: int
    ends: dict[Life, LogEnd] = field(default_factory=dict)

    def unasked(self, others: Others) -> list[Life]:
        """Those whose log's end is not known yet."""
        return [life for life in others.live if life not in self.ends]

    def compare(self, own: LogEnd, others: Others, now_ms: int) -> Comparison:
        """Decide on what is known by now."""
        if now_ms < self.deadline_ms and (others.awaited or self.unasked(others)):
            return WAITS
        longest = longest_of(own, {life: self.ends[life] for life in others.live if life in self.ends})
        if longest is None:
            return OWN_LEADS
        named = IdentifiedPartition(self.topic_id, self.state.topic_partition)
        return Comparison(True, LongerLog(named, self.state.leader_epoch, *longest))


def longest_of(own: LogEnd, ends: Mapping[Life, LogEnd]) -> Life | None:
    """The replica with the longest log, of equal ones the first; None where it is the own one.

    The order of ends is total: of two brokers that compare the same logs, one at most finds the other's longer.
    """
    longest: Iterable[Life] = (life for life in ends if ends[life] == max(ends.values()))
    first = next(iter(longest), None)
    return first if first is not None and ends[first] > own else None
