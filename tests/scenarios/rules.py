"""Deliberate bugs that a scenario finds: it holds a moment that is too short for the random histories."""

from __future__ import annotations

from tests.simulation.mutations.availability_mutations import judged_once_an_epoch
from tests.simulation.mutations.late_mutations import appends_by_name, deletions_by_name
from tests.simulation.mutations.log_mutations import records_alone_count
from tests.simulation.mutations.mutation import Patches

RULES: list[tuple[str, Patches]] = [
    ("damaged_leader_is_alone_later", judged_once_an_epoch),
    ("leader_that_wrote_nothing_has_the_longest_log", records_alone_count),
    ("requests_outlive_their_topic", appends_by_name),
    ("requests_outlive_their_topic", deletions_by_name),
]
"""Scenarios that end otherwise with one rule switched off, and how it is."""
