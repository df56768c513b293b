"""What a broker does with a partition's new state: become leader or follower, or stop. Pure.

The result is only what changes on this broker; the caller opens and drops tables and writes an `Ignore`'s reason to the
state change log. Kafka: `becomeLeaderOrFollower` of `ReplicaManager`.
"""

from __future__ import annotations

from dataclasses import dataclass

from stratalog.replication.metadata.records import PartitionRecord

NO_CONTROLLER_EPOCH = -1


@dataclass(frozen=True, slots=True)
class LocalReplica:
    """What this broker last applied to its replica: the partition's state, and the id of its topic then.

    has_failed  it leads by that state, but its table cannot be served; what it judged holds for that state alone
    """

    state: PartitionRecord
    topic_id: str
    has_failed: bool = False


@dataclass(frozen=True, slots=True)
class BecomeLeader:
    """Stop fetching, start the leader epoch `state.leader_epoch` in the own table, accept writes. Perhaps once more, in
    the same epoch."""

    state: PartitionRecord


@dataclass(frozen=True, slots=True)
class BecomeFollower:
    """Refuse writes, follow `state.leader` under its epoch; wait if it is -1."""

    state: PartitionRecord


@dataclass(frozen=True, slots=True)
class UpdateIsr:
    """Same leader and leader epoch; the ISR or the replicas changed. Nothing is stopped or started."""

    state: PartitionRecord


@dataclass(frozen=True, slots=True)
class StopReplica:
    """The topic is gone or this broker is no longer assigned: stop the replica and remove its table."""


@dataclass(frozen=True, slots=True)
class Ignore:
    """Nothing to do. `reason` says why a state was refused; it is empty when nothing had to change."""

    reason: str = ""


Transition = BecomeLeader | BecomeFollower | UpdateIsr | StopReplica | Ignore


def decide_leader_and_isr(
    local: LocalReplica | None,
    state: PartitionRecord | None,
    topic_id: str,
    broker_id: int,
    last_controller_epoch: int = NO_CONTROLLER_EPOCH,
) -> Transition:
    """The transition of broker `broker_id` to `state`, the partition's state under topic id `topic_id`.

    `local` is None when this process has applied nothing yet, `state` is None when the partition does not exist.
    A state older than what is applied (controller epoch, leader epoch, partition epoch) is refused.
    `last_controller_epoch` is the newest controller epoch the broker has seen, where states arrive in any order, as
    requests do. In a fold of the log older partitions stand beside newer ones: NO_CONTROLLER_EPOCH.
    """
    if state is None:
        return Ignore() if local is None else StopReplica()
    if local is not None and local.topic_id != topic_id:
        # Another topic of the same name: its epochs began at 0 again and cannot be compared.
        return StopReplica() if broker_id not in state.replicas else _enter_epoch(state, broker_id)
    refusal = _staleness(local, state, last_controller_epoch)
    if refusal:
        return Ignore(refusal)
    if broker_id not in state.replicas:
        return Ignore() if local is None else StopReplica()
    if local is None or state.leader_epoch > local.state.leader_epoch:
        return _enter_epoch(state, broker_id)
    return _stay_in_epoch(local, state, broker_id)


def _enter_epoch(state: PartitionRecord, broker_id: int) -> Transition:
    return BecomeLeader(state) if state.leader == broker_id else BecomeFollower(state)


def _staleness(local: LocalReplica | None, state: PartitionRecord, last_controller_epoch: int) -> str:
    controller_epoch = max(last_controller_epoch, local.state.controller_epoch if local else NO_CONTROLLER_EPOCH)
    if state.controller_epoch < controller_epoch:
        return f"stale controller epoch {state.controller_epoch}, the latest is {controller_epoch}"
    if local and state.leader_epoch < local.state.leader_epoch:
        return f"stale leader epoch {state.leader_epoch}, the current one is {local.state.leader_epoch}"
    if local and state.partition_epoch < local.state.partition_epoch:
        return f"stale partition epoch {state.partition_epoch}, the current one is {local.state.partition_epoch}"
    return ""


def _stay_in_epoch(local: LocalReplica, state: PartitionRecord, broker_id: int) -> Transition:
    """A leader that could not begin, or go on, tries again: others that may have more than it, or that could have taken
    its place, may have left the ISR, which keeps the leader epoch (decision 0067)."""
    applied = local.state
    if state.partition_epoch == applied.partition_epoch:
        return Ignore()
    if state.leader != applied.leader:
        # One epoch has one leader (SingleLeaderPerEpoch): a state with another leader is refused.
        return Ignore(f"leader {state.leader} in leader epoch {state.leader_epoch}, which {applied.leader} leads")
    return BecomeLeader(state) if local.has_failed and state.leader == broker_id else UpdateIsr(state)
