"""Racks, as far as a sticky assignor looks at them: who may read a partition from a replica near by (KIP-881). Pure.

Source: `AbstractStickyAssignor.RackInfo` of Kafka 4.3.1.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from stratalog.clients.consumer.assignors.assignors import PartitionRacks, racks_matter
from stratalog.storage.records import TopicPartition


class StickyRacks:
    """Racks of members and partitions. `matter` is False, and every member fits everywhere, unless both sides share a
    rack and some partition is not on all racks."""

    def __init__(
        self,
        member_racks: Mapping[str, str | None],
        partitions: Sequence[TopicPartition],
        partition_racks: PartitionRacks,
    ) -> None:
        known = {member_id: rack for member_id, rack in member_racks.items() if rack}
        self.matter = bool(known) and racks_matter(known.values(), partition_racks, partitions)
        self._member_racks = known if self.matter else {}
        self._partition_racks = partition_racks if self.matter else {}
        self._members_on = Counter(known.values())

    def mismatch(self, member_id: str, partition: TopicPartition) -> bool:
        """Whether the member has a rack and the partition no replica on it."""
        rack = self._member_racks.get(member_id)
        return rack is not None and rack not in self._partition_racks.get(partition, ())

    def scarcest_first(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """Sorted by how many members have a rack of the partition, so that choices are not used up by others."""
        if not self.matter:
            return partitions
        return sorted(
            partitions,
            key=lambda partition: sum(self._members_on[rack] for rack in self._partition_racks.get(partition, ())),
        )

    def next_near(self, partition: TopicPartition, members: Sequence[str], first: int) -> int:
        """Position of the first member on a rack of the partition, from `first` on and round; -1 if there is none."""
        racks = self._partition_racks.get(partition, ())
        for step in range(len(members) if racks else 0):
            at = (first + step) % len(members)
            if self._member_racks.get(members[at]) in racks:
                return at
        return -1
