"""Deliberate bugs that a scenario finds: it holds a moment that is too short for the random histories."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from stratalog.replication.broker.leader_and_isr import LocalReplica, Transition, decide_leader_and_isr
from tests.simulation.mutations.late_mutations import appends_by_name, deletions_by_name
from tests.simulation.mutations.log_mutations import records_alone_count
from tests.simulation.mutations.mutation import Patches


def judged_once_an_epoch() -> AbstractContextManager[object]:
    """A leader that refused to begin its epoch while others were in the ISR does not look again when they have left."""
    original = decide_leader_and_isr

    def decide(local: LocalReplica | None, *arguments: Any) -> Transition:
        return original(replace(local, has_failed=False) if local else None, *arguments)

    return patch("stratalog.replication.broker.hosted_replicas.decide_leader_and_isr", decide)


RULES: list[tuple[str, Patches]] = [
    ("damaged_leader_is_alone_later", judged_once_an_epoch),
    ("leader_that_wrote_nothing_has_the_longest_log", records_alone_count),
    ("requests_outlive_their_topic", appends_by_name),
    ("requests_outlive_their_topic", deletions_by_name),
]
"""Scenarios that end otherwise with one rule switched off, and how it is."""
