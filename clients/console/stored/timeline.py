"""The states of a partition as events: leaders, leader epochs and ISRs in time. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from stratalog.replication.metadata.records import NO_LEADER

CREATED, LEADER_CHANGED, FAILOVER, LEADER_LOST = "created", "leader changed", "failover", "leader lost"
SAME_LEADER, ISR_SHRUNK, ISR_EXPANDED = "same leader, new epoch", "ISR shrunk", "ISR expanded"
REPLICAS_CHANGED, UNCHANGED = "replicas changed", "other change"


class StateInTime(NamedTuple):
    """A state of a partition, from `timestamp_ms` on until the next one.

    metadata_offset  of its record in the metadata log, by which states are ordered
    start_offset     where the leader epoch begins in the log; None: not known, or it has no record
    """

    metadata_offset: int
    timestamp_ms: int
    topic_id: str
    partition: int
    leader: int
    leader_epoch: int
    start_offset: int | None
    isr: tuple[int, ...]
    replicas: tuple[int, ...]
    partition_epoch: int


@dataclass(frozen=True, slots=True)
class LeadershipEvent:
    """A change of a partition's state.

    what          the changes, such as ("failover", "ISR shrunk")
    leader        -1: nobody leads
    until_ms      when the next change came; null: it is the present state
    start_offset  where the leader epoch begins in the log; null: not known, or it has no record
    left, joined  brokers that left and joined the ISR
    """

    partition: int
    at_ms: int
    until_ms: int | None
    what: tuple[str, ...]
    leader: int
    leader_epoch: int
    start_offset: int | None
    isr: tuple[int, ...]
    left: tuple[int, ...]
    joined: tuple[int, ...]
    replicas: tuple[int, ...]
    partition_epoch: int
    metadata_offset: int


def events_of(states: Iterable[StateInTime], starts: Mapping[tuple[int, int], int]) -> list[LeadershipEvent]:
    """The events of the partitions of one topic id, by partition and time.

    starts  start offsets by (partition, leader epoch), which overrule those of the states
    """
    by_partition: dict[int, list[StateInTime]] = {}
    for state in sorted(set(states)):
        by_partition.setdefault(state.partition, []).append(state)
    events = []
    for _, own in sorted(by_partition.items()):
        for number, state in enumerate(own):
            before = own[number - 1] if number else None
            after = own[number + 1] if number + 1 < len(own) else None
            events.append(_event(own[:number], before, state, after, starts))
    return events


def _event(
    earlier: Sequence[StateInTime],
    before: StateInTime | None,
    state: StateInTime,
    after: StateInTime | None,
    starts: Mapping[tuple[int, int], int],
) -> LeadershipEvent:
    isr_before = state.isr if before is None else before.isr
    return LeadershipEvent(
        state.partition,
        state.timestamp_ms,
        None if after is None else after.timestamp_ms,
        changes_of(before, state, _last_leader(earlier)),
        state.leader,
        state.leader_epoch,
        starts.get((state.partition, state.leader_epoch), state.start_offset),
        state.isr,
        tuple(each for each in isr_before if each not in state.isr),
        tuple(each for each in state.isr if each not in isr_before),
        state.replicas,
        state.partition_epoch,
        state.metadata_offset,
    )


def _last_leader(earlier: Sequence[StateInTime]) -> int:
    return next((each.leader for each in reversed(earlier) if each.leader != NO_LEADER), NO_LEADER)


def changes_of(before: StateInTime | None, state: StateInTime, last_leader: int) -> tuple[str, ...]:
    """What changed from one state to the next, in words.

    last_leader  the last broker that led before; -1: none did

    A failover is another leader while the last one is out of the ISR, or after nobody led.
    """
    if before is None:
        return (CREATED,)
    found: list[str] = []
    if state.leader == NO_LEADER and before.leader != NO_LEADER:
        found.append(LEADER_LOST)
    elif state.leader not in (before.leader, NO_LEADER):
        is_failover = before.leader == NO_LEADER or last_leader not in state.isr
        found.append(FAILOVER if is_failover else LEADER_CHANGED)
    elif state.leader_epoch != before.leader_epoch:
        found.append(SAME_LEADER)
    if set(before.isr) - set(state.isr):
        found.append(ISR_SHRUNK)
    if set(state.isr) - set(before.isr):
        found.append(ISR_EXPANDED)
    if set(state.replicas) != set(before.replicas):
        found.append(REPLICAS_CHANGED)
    return tuple(found) or (UNCHANGED,)
