"""The five leader selectors: who leads a partition next, and with which ISR (ROWS R14). Pure.

Each takes the partition as it is and answers an `Election`, or None when nobody may lead: then the partition
stays as it is or goes offline, and **its ISR stays**, since an empty one could never be elected from again.
Leaders are sought in the order of the assigned replicas, as Kafka does since 2.4 (the seed article says: first
of the ISR), so that the preferred replica wins when it can.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from replication.state import NO_LEADER, PartitionRecord


@dataclass(frozen=True, slots=True)
class Election:
    """A selector's answer. `isr` is never empty and holds `leader`; `unclean`: acknowledged records may be lost."""

    leader: int
    isr: tuple[int, ...]
    unclean: bool = False

    def changes(self, partition: PartitionRecord) -> bool:
        """False when the partition already is as elected."""
        return self.leader != partition.leader or self.isr != partition.isr


def elect_offline(partition: PartitionRecord, live: Collection[int], unclean: bool) -> Election | None:
    """The leader is gone: a live member of the ISR leads, the ISR is its live members.

    If none is live and `unclean` (`unclean.leader.election.enable`), any live replica leads, alone in the ISR.
    """
    survivors = tuple(r for r in partition.isr if r in live)
    leader = _first(partition.replicas, survivors)
    if leader is not None:
        return Election(leader, survivors)
    leader = _first(partition.replicas, live) if unclean else None
    return None if leader is None else Election(leader, (leader,), unclean=True)


def elect_reassigned(partition: PartitionRecord, live: Collection[int], target: Sequence[int]) -> Election | None:
    """A reassignment ends: the first replica of `target` (RAR) that is live and in sync leads; the ISR stays."""
    leader = _first(target, [r for r in partition.isr if r in live])
    return None if leader is None else Election(leader, partition.isr)


def elect_preferred(partition: PartitionRecord, live: Collection[int]) -> Election | None:
    """The first assigned replica leads if it is live and in sync; the ISR stays.

    When it leads already the answer is the state as it is: see `Election.changes`.
    """
    preferred = partition.replicas[0]
    if preferred not in live or preferred not in partition.isr:
        return None
    return Election(preferred, partition.isr)


def elect_controlled_shutdown(
    partition: PartitionRecord, live: Collection[int], shutting_down: Collection[int]
) -> Election | None:
    """Brokers leave on purpose: they leave the ISR, and a live member that stays leads.

    A leader that stays keeps the partition. None when no other member could lead.
    """
    staying = tuple(r for r in partition.isr if r in live and r not in shutting_down)
    if partition.leader in staying:
        return Election(partition.leader, staying)
    leader = _first(partition.replicas, staying)
    return None if leader is None else Election(leader, staying)


def elect_no_op(partition: PartitionRecord) -> Election | None:
    """The state as it is; None while there is no leader."""
    return None if partition.leader == NO_LEADER else Election(partition.leader, partition.isr)


def _first(replicas: Sequence[int], eligible: Collection[int]) -> int | None:
    return next((r for r in replicas if r in eligible), None)
