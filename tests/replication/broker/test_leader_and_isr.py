"""A broker applies only newer states: it leads, follows or stops."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stratalog.replication.broker.leadership.leader_and_isr import (
    BecomeFollower,
    BecomeLeader,
    Ignore,
    LocalReplica,
    StopReplica,
    Transition,
    UpdateIsr,
    decide_leader_and_isr,
)
from stratalog.replication.metadata.records import PartitionRecord
from tests.replication.images import partition

ME = 1
NOW = partition((1, 2, 3), 2, (1, 2), leader_epoch=5, partition_epoch=9, controller_epoch=3)
LOCAL = LocalReplica(NOW, "id")
LEAD = replace(NOW, leader=1, leader_epoch=6, partition_epoch=10)
SMALLER_ISR = replace(LEAD, isr=(1,), partition_epoch=11)
FOLLOW = replace(NOW, leader=3, leader_epoch=6, partition_epoch=10)
OFFLINE = replace(NOW, leader=-1, leader_epoch=6, partition_epoch=10)
WIDER_ISR = replace(NOW, isr=(1, 2, 3), partition_epoch=10)
UNASSIGNED = replace(NOW, replicas=(2, 3), isr=(2,), leader_epoch=6, partition_epoch=10)


@pytest.mark.parametrize(
    ("local", "state", "topic_id", "expected"),
    [
        (None, NOW, "id", BecomeFollower(NOW)),
        (None, LEAD, "id", BecomeLeader(LEAD)),
        (LOCAL, LEAD, "id", BecomeLeader(LEAD)),
        (LocalReplica(LEAD, "id"), replace(LEAD, leader_epoch=7, partition_epoch=11),
         "id", BecomeLeader(replace(LEAD, leader_epoch=7, partition_epoch=11))),  # led before, a new epoch
        (LOCAL, FOLLOW, "id", BecomeFollower(FOLLOW)),
        (LOCAL, OFFLINE, "id", BecomeFollower(OFFLINE)),
        (LOCAL, WIDER_ISR, "id", UpdateIsr(WIDER_ISR)),
        (LOCAL, NOW, "id", Ignore()),
        # a leader that could not begin under that ISR, or go on, judges again; one that leads goes on
        (LocalReplica(LEAD, "id", has_failed=True), SMALLER_ISR, "id", BecomeLeader(SMALLER_ISR)),
        (LocalReplica(LEAD, "id", has_failed=True), LEAD, "id", Ignore()),
        (LocalReplica(LEAD, "id"), SMALLER_ISR, "id", UpdateIsr(SMALLER_ISR)),
        (None, None, "", Ignore()),
        (LOCAL, None, "", StopReplica()),
        (None, UNASSIGNED, "id", Ignore()),
        (LOCAL, UNASSIGNED, "id", StopReplica()),
        # the topic was deleted and made again: epochs start at 0 again
        (LOCAL, replace(NOW, leader=1, leader_epoch=0, partition_epoch=0), "id2",
         BecomeLeader(replace(NOW, leader=1, leader_epoch=0, partition_epoch=0))),
        (LOCAL, replace(UNASSIGNED, leader_epoch=0, partition_epoch=0), "id2", StopReplica()),
    ],
)  # fmt: skip
def test_transition(
    local: LocalReplica | None, state: PartitionRecord | None, topic_id: str, expected: Transition
) -> None:
    assert decide_leader_and_isr(local, state, topic_id, ME) == expected


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (replace(LEAD, controller_epoch=2), "stale controller epoch 2, the latest is 3"),
        (replace(LEAD, leader_epoch=4), "stale leader epoch 4, the current one is 5"),
        (replace(UNASSIGNED, leader_epoch=4), "stale leader epoch 4"),  # an old state deletes nothing
        (replace(WIDER_ISR, partition_epoch=8), "stale partition epoch 8, the current one is 9"),
        (replace(UNASSIGNED, leader_epoch=5, partition_epoch=8), "stale partition epoch 8"),
        (replace(NOW, leader=3, partition_epoch=10), "leader 3 in leader epoch 5, which 2 leads"),
    ],
)
def test_refused_with_a_reason(state: PartitionRecord, words: str) -> None:
    decision = decide_leader_and_isr(LOCAL, state, "id", ME)
    assert isinstance(decision, Ignore)
    assert words in decision.reason


def test_a_deposed_controllers_request_is_refused_even_for_a_new_replica() -> None:
    assert decide_leader_and_isr(None, LEAD, "id", ME, last_controller_epoch=3) == BecomeLeader(LEAD)
    decision = decide_leader_and_isr(None, LEAD, "id", ME, last_controller_epoch=4)
    assert decision == Ignore("stale controller epoch 3, the latest is 4")
