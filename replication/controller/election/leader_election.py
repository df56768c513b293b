"""The five leader selectors: a partition's next leader and ISR (Kafka: `Election`). Pure.

Each returns an `Election` for a partition, or None when no replica may lead: then the partition stays as it is or goes
offline, and **its ISR stays**, since no leader could ever be elected from an empty one. Candidates are tried in the
order of the assigned replicas, as in Kafka since 2.4 (before: the order of the ISR), so that the preferred replica wins
when it can. If no member of the ISR may lead, an eligible leader replica leads, alone in the ISR (KIP-966): it has
every committed record, though others may have more uncommitted ones. A replica that has lost its log (`lost`) is no
candidate of a clean election, and of an unclean one only if no other replica is live.

In a storage domain all replicas have the same table, so that each live one is in sync: the ISR of an election is the
live replicas, and every election of one is clean. Those that reported that they cannot reach it (`offline`) are left
out of both.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from stratalog.replication.metadata.records import PartitionRecord

UncleanOf = Callable[[str], bool]
"""A topic's `unclean.leader.election.enable`."""


def always_clean(_topic: str) -> bool:
    """The `UncleanOf` of a cluster where no topic allows unclean elections."""
    return False


@dataclass(frozen=True, slots=True)
class Election:
    """A selector's result. `isr` contains `leader`; `unclean`: acknowledged records may be lost."""

    leader: int
    isr: tuple[int, ...]
    unclean: bool = False

    def changes(self, partition: PartitionRecord) -> bool:
        """False when the partition has this leader and ISR already."""
        return self.leader != partition.leader or self.isr != partition.isr

    def applied_to(self, partition: PartitionRecord, controller_epoch: int) -> PartitionRecord:
        """The partition as elected. A leader epoch begins with another leader, or after an unclean election.

        A leader that stays keeps its epoch with a smaller ISR, as in Kafka since KAFKA-15021: see decision 0142.
        """
        return partition.changed(
            controller_epoch=controller_epoch,
            leader=self.leader,
            isr=self.isr,
            bump_leader_epoch=self.unclean or self.leader != partition.leader,
            unclean=self.unclean,
        )


def elect_offline(partition: PartitionRecord, live: Collection[int], unclean: bool) -> Election | None:
    """The leader is gone: a live member of the ISR leads, with the live members as ISR; else a live eligible replica.

    If none is live and `unclean` (`unclean.leader.election.enable`), any live replica leads, alone in the ISR; first
    one that was eligible before its last restart, since it probably lacks the fewest records.
    """
    clean = _elect_clean(partition, _whole(partition, live), [r for r in partition.elr if r in live])
    if clean is not None or not unclean:
        return clean
    choices = (partition.last_known_elr, [r for r in partition.replicas if r not in partition.lost], partition.lost)
    for preferred in choices:
        leader = _first(partition.replicas, [r for r in preferred if r in live and r not in partition.offline])
        if leader is not None:
            break
    return None if leader is None else Election(leader, (leader,), unclean=True)


def _whole(partition: PartitionRecord, live: Collection[int]) -> list[int]:
    """The live members of the ISR that have their log, and the live replicas with the same table as one; without those
    that cannot reach it."""
    if partition.has_one_table:
        in_sync = partition.replicas
    else:
        sharing = (r for r in partition.replicas if r not in partition.isr and partition.is_held_in_sync(r))
        in_sync = (*partition.isr, *sharing)
    return [r for r in in_sync if r in live and r not in (*partition.lost, *partition.offline)]


def _elect_clean(partition: PartitionRecord, isr: Sequence[int], eligible: Collection[int]) -> Election | None:
    leader = _first(partition.replicas, isr)
    if leader is not None:
        return Election(leader, tuple(isr))
    leader = _first(partition.replicas, eligible)
    return None if leader is None else Election(leader, (leader,))


def elect_reassigned(partition: PartitionRecord, live: Collection[int], target: Sequence[int]) -> Election | None:
    """A reassignment ends: the first replica of `target` (RAR) that is live and in sync leads; the ISR stays."""
    leader = _first(target, _whole(partition, live))
    return None if leader is None else Election(leader, partition.isr)


def elect_preferred(partition: PartitionRecord, live: Collection[int]) -> Election | None:
    """The first assigned replica leads if it is live and in sync; the ISR stays.

    When it leads already, the election changes nothing: see `Election.changes`.
    """
    preferred, whole = partition.replicas[0], _whole(partition, live)
    if preferred not in whole:
        return None
    return Election(preferred, partition.isr if preferred in partition.isr else tuple(whole))


def elect_controlled_shutdown(
    partition: PartitionRecord, live: Collection[int], shutting_down: Collection[int]
) -> Election | None:
    """Brokers shut down: they leave the ISR, and a live remaining member leads, else an eligible replica.

    A remaining leader keeps the partition. None when no other member can lead.
    """
    staying = tuple(r for r in _whole(partition, live) if r not in shutting_down)
    if partition.leader in staying:
        return Election(partition.leader, tuple(r for r in partition.isr if r in staying))
    return _elect_clean(partition, staying, [r for r in partition.elr if r in live and r not in shutting_down])


def _first(replicas: Sequence[int], eligible: Collection[int]) -> int | None:
    return next((r for r in replicas if r in eligible), None)
