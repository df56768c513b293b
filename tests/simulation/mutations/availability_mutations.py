"""Deliberate bugs that leave a partition offline, or a reader behind, though nothing is lost."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import replace
from random import Random
from typing import Any
from unittest.mock import patch

from stratalog.replication.broker.leadership.leader_and_isr import LocalReplica, Transition, decide_leader_and_isr
from stratalog.replication.leader.replica import LeaderReplica
from tests.simulation.cluster import Setting
from tests.simulation.faults import Faults
from tests.simulation.mutations.mutation import Mutation, mix


def judged_once_an_epoch() -> AbstractContextManager[object]:
    """A leader that refused to begin its epoch while others were in the ISR does not look again when they have left."""
    original = decide_leader_and_isr

    def decide(local: LocalReplica | None, *arguments: Any) -> Transition:
        return original(replace(local, has_failed=False) if local else None, *arguments)

    return patch("stratalog.replication.broker.hosted_replicas.decide_leader_and_isr", decide)


def damaged_leaders_never_lead() -> AbstractContextManager[object]:
    """A leader whose table has a damage waits for another one, also where it is the whole ISR."""
    return patch.object(LeaderReplica, "may_be_replaced", property(lambda _self: True))


def _alone(rng: Random) -> Faults:
    """Members of an ISR end one after the other, and the one that is left has a damage noted."""
    return replace(mix(damage=4, two_crash=2, restart_all=3)(rng), trouble_ms=700)


AVAILABILITY_MUTATIONS: dict[str, Mutation] = {
    "damaged leaders": Mutation(
        damaged_leaders_never_lead, ("NotOffline",), _alone, Setting(partitions=2, pause_ms_max=300), 8_000
    ),
}
