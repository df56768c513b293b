"""Moves of a partition's replicas to other storage domains, or to their brokers' roots, while it stays available. Pure.

The target stands in the partition's own record: replicas with their places. Each step is one commit, so a dying
controller leaves nothing half done. A step is taken when the leader's ISR changes (`brokers.alter_partition`) and after
brokers came or went (`finish_moves`). What the target lacks is copied by followers, and counts once it is in the ISR:
from then on the high watermark waits for it, so that nothing acknowledged is behind when the others change their place.

1. Replicas of further brokers are added at their places.
2. As soon as a member of the ISR has its table in a domain, all that are to be in that domain have the same one: they
   change at once, the leader too. A leader epoch begins, in the new table.
3. Where each needs a copy of its own, one after the other leaves the ISR and is copied again, as long as
   `min.insync.replicas` stay; the leader last, once another one leads.
4. Where that would leave too few, a broker that is no replica is copied to first, and leaves at the end.

Roots {1,2,3} to the domain `lake`, min.insync.replicas 2, leader 1: 3 leaves the ISR and copies the leader's log to the
domain; it joins; 1, 2 and 3 have its table, and 1 begins a leader epoch there. Their tables in the roots are deleted.

While every replica shares one domain, what the table holds is committed (`PartitionRecord.has_one_table`). Otherwise
the high watermark is the least log end of the ISR's tables.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace

from stratalog.replication.controller.domains.placements import brokers_of, home_of
from stratalog.replication.controller.election.eligible_leaders import (
    effective_min_isr,
    topic_min_isr,
    update_eligible_leaders,
)
from stratalog.replication.metadata.image import ClusterImage, Result, check_broker_epoch
from stratalog.replication.metadata.records import PartitionRecord, Placed
from stratalog.storage.records import IdentifiedPartition, TopicPartition


def arriving(state: PartitionRecord) -> tuple[int, ...]:
    """The brokers of a move under way whose replica is not at its place in the ISR yet."""
    return tuple(sorted(r for r, domain in state.target if not _has_arrived(state, r, domain)))


def finish_moves(image: ClusterImage) -> Result[tuple[TopicPartition, ...]]:
    """The next steps of the moves under way that can be taken; the answer names their partitions."""
    moving = (state for state in image.partitions.values() if state.target)
    stepped = tuple(filter(None, (next_step(image, state) for state in moving)))
    return Result(update_eligible_leaders(image, stepped), tuple(each.topic_partition for each in stepped))


def next_step(image: ClusterImage, state: PartitionRecord) -> PartitionRecord | None:
    """The partition after the next step of its move; None while there is none to take."""
    live = image.live_brokers()
    min_isr = effective_min_isr([r for r, _ in state.target], topic_min_isr(image, state.topic))
    spare = [r for r in brokers_of(image, home_of(state)) if r in live and r not in state.replicas]
    after = step(state, live, min_isr, spare)
    return None if after is None else moved(state, after, image.controller_epoch)


def left_deleted(
    image: ClusterImage, broker_id: int, broker_epoch: int, named: IdentifiedPartition, domain: str
) -> Result[bool]:
    """The leader has deleted the table that the partition left in a domain; the answer is False where that is known.

    StaleBrokerEpochError when `broker_epoch` is not the broker's live registration.
    """
    check_broker_epoch(image, broker_id, broker_epoch)
    state = image.state_of(named)
    if state is None or domain not in state.left:
        return Result((), False)
    changed = state.changed(controller_epoch=image.controller_epoch, bump_leader_epoch=False)
    return Result((replace(changed, left=tuple(each for each in state.left if each != domain)),), True)


def step(
    state: PartitionRecord, live: Collection[int], min_isr: int, spare: Sequence[int] = ()
) -> PartitionRecord | None:
    """The next state towards `state.target`, apart from epochs; None while others are waited for.

    min_isr  members that the ISR keeps
    spare    live brokers that are no replicas: one may be a step between
    """
    if not state.target:
        return None
    after = _finished(state, live) or _with_added(state) or _in_shared_table(state)
    if after is not None or _is_copying(state, live):
        return after
    return _with_copied(state, min_isr) or _with_leader_moved(state, live, min_isr) or _with_spare(state, spare)


def moved(before: PartitionRecord, after: PartitionRecord, controller_epoch: int) -> PartitionRecord:
    """`after` as the successor of `before`; a leader epoch begins when the leader, a replica or a table is another."""
    is_other = set(placements(after)) != set(placements(before)) or after.leader != before.leader
    changed = before.changed(
        controller_epoch=controller_epoch, leader=after.leader, isr=after.isr, bump_leader_epoch=is_other
    )
    gone = {domain for _, domain in placements(before)} - {domain for _, domain in placements(after)} - {""}
    return replace(
        changed,
        replicas=after.replicas,
        domain=after.domain,
        elsewhere=after.elsewhere,
        target=after.target,
        left=tuple(sorted({*before.left, *gone})),
        offline=tuple(r for r in before.offline if r in after.replicas and after.domain_of(r) == before.domain_of(r)),
    )


def placements(state: PartitionRecord) -> Iterator[Placed]:
    """Each replica with the domain of its table now."""
    return ((replica, state.domain_of(replica)) for replica in state.replicas)


def _finished(state: PartitionRecord, live: Collection[int]) -> PartitionRecord | None:
    """The partition at its target; None while a replica is not there, or none that is there may lead."""
    if arriving(state):
        return None
    home, replicas = state.target[0][1], tuple(replica for replica, _ in state.target)
    ready = [r for r in replicas if r in live and r not in state.offline and _is_in_sync(state, r)]
    at_home = [r for r in ready if state.domain_of(r) == home]
    leader = state.leader
    if leader not in replicas or (at_home and state.domain_of(leader) != home):
        if not ready:
            return None
        leader = (at_home or ready)[0]
    return replace(
        state,
        replicas=replicas,
        domain=home,
        elsewhere=tuple((r, domain) for r, domain in state.target if domain != home),
        target=(),
        leader=leader,
        isr=tuple(r for r in replicas if r in state.isr or r == leader),
    )


def _is_in_sync(state: PartitionRecord, replica: int) -> bool:
    """Whether a member of the ISR has the table of this replica, and has not lost it."""
    return any(r in state.isr and r not in state.lost for r in state.sharing(replica))


def _has_arrived(state: PartitionRecord, replica: int, domain: str) -> bool:
    return replica in state.replicas and state.domain_of(replica) == domain and _is_in_sync(state, replica)


def _with_added(state: PartitionRecord) -> PartitionRecord | None:
    added = tuple((r, domain) for r, domain in state.target if r not in state.replicas)
    if not added:
        return None
    return replace(state, replicas=(*state.replicas, *(r for r, _ in added)), elsewhere=(*state.elsewhere, *added))


def _in_shared_table(state: PartitionRecord) -> PartitionRecord | None:
    """All that are to share a table of which a member of the ISR has one already."""
    in_sync = {state.domain_of(r) for r in state.isr if r not in state.lost} - {""}
    changed = {r: domain for r, domain in _to_move(state) if domain in in_sync}
    return _placed(state, changed) if changed else None


def _is_copying(state: PartitionRecord, live: Collection[int]) -> bool:
    """Whether a replica that is needed is at its place and has not joined the ISR."""
    wanted, places = dict(state.target), {domain for _, domain in state.target}
    waiting = (r for r in state.replicas if r in live and not _is_in_sync(state, r))
    return any(state.domain_of(r) == wanted[r] if r in wanted else state.domain_of(r) in places for r in waiting)


def _with_copied(state: PartitionRecord, min_isr: int) -> PartitionRecord | None:
    """One follower that is copied again at its place; first one outside the ISR."""
    followers = [(r, domain) for r, domain in _to_move(state) if r != state.leader]
    for replica, domain in sorted(followers, key=lambda each: each[0] in state.isr):
        isr = tuple(r for r in state.isr if r != replica)
        if replica not in state.isr or len(isr) >= max(min_isr, 1):
            return replace(_placed(state, {replica: domain}), isr=isr)
    return None


def _with_leader_moved(state: PartitionRecord, live: Collection[int], min_isr: int) -> PartitionRecord | None:
    """The leader is the last one: another one leads from now on."""
    left = _to_move(state)
    if [replica for replica, _ in left] != [state.leader]:
        return None
    isr = tuple(r for r in state.isr if r != state.leader)
    order = [*(r for r, _ in state.target), *state.replicas]
    ready = [r for r in order if r in isr and r in live and r not in state.offline]
    if not ready or len(isr) < max(min_isr, 1):
        return None
    return replace(_placed(state, dict(left)), leader=ready[0], isr=isr)


def _with_spare(state: PartitionRecord, spare: Sequence[int]) -> PartitionRecord | None:
    """A broker that is no replica is copied to first: in the ISR it stands in for one that is copied again."""
    left = _to_move(state)
    if not left or not spare:
        return None
    replica, domain = spare[0], left[-1][1]
    return replace(state, replicas=(*state.replicas, replica), elsewhere=(*state.elsewhere, (replica, domain)))


def _to_move(state: PartitionRecord) -> list[Placed]:
    """The replicas of the target that are elsewhere, in the order of the assignment, the leader last."""
    wanted = dict(state.target)
    left = [(r, wanted[r]) for r in state.replicas if r in wanted and state.domain_of(r) != wanted[r]]
    return sorted(left, key=lambda each: each[0] == state.leader)


def _placed(state: PartitionRecord, changed: dict[int, str]) -> PartitionRecord:
    """The partition with these replicas at these places."""
    kept: Iterable[Placed] = ((r, domain) for r, domain in state.elsewhere if r not in changed)
    return replace(state, elsewhere=(*kept, *changed.items()))
