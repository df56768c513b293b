"""Deliberate bugs that leave a partition offline, or a reader behind, though nothing is lost."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import replace
from random import Random
from typing import Any
from unittest.mock import patch

from stratalog.replication.broker.leader_and_isr import LocalReplica, Transition, decide_leader_and_isr
from tests.simulation.cluster import Setting
from tests.simulation.faults import Faults, Focus
from tests.simulation.mutations.mutation import Mutation, mix


def judged_once_an_epoch() -> AbstractContextManager[object]:
    """A leader that refused to begin its epoch while others were in the ISR does not look again when they have left."""
    original = decide_leader_and_isr

    def decide(local: LocalReplica | None, *arguments: Any) -> Transition:
        return original(replace(local, has_failed=False) if local else None, *arguments)

    return patch("stratalog.replication.broker.hosted_replicas.decide_leader_and_isr", decide)


def _late_reports(rng: Random) -> Faults:
    """Two members of an ISR end one after the other, and what the third one reports meanwhile is late."""
    mixed = mix(Focus("create", 0.8, "b", "metadata"), 1_500, damage=3, two_crash=4, restart_all=3)
    return replace(mixed(rng), trouble_ms=600)


AVAILABILITY_MUTATIONS: dict[str, Mutation] = {
    "judged once an epoch": Mutation(
        judged_once_an_epoch,
        ("NotOffline",),
        _late_reports,
        Setting(partitions=2, pause_ms_max=300),
        9_000,
    ),
}
