"""Deliberate bugs that a scenario finds: it holds a moment that is too short for the random histories."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from stratalog.replication.broker.leader_and_isr import LocalReplica, Transition, decide_leader_and_isr
from stratalog.replication.leader.append_queue import AppendQueue
from stratalog.replication.leader.delete_records import decode_delete_records
from stratalog.storage.records import IdentifiedPartition
from tests.simulation.mutations.log_mutations import records_alone_count
from tests.simulation.mutations.mutation import Patches


def judged_once_an_epoch() -> AbstractContextManager[object]:
    """A leader that refused to begin its epoch while others were in the ISR does not look again when they have left."""
    original = decide_leader_and_isr

    def decide(local: LocalReplica | None, *arguments: Any) -> Transition:
        return original(replace(local, has_failed=False) if local else None, *arguments)

    return patch("stratalog.replication.broker.hosted_replicas.decide_leader_and_isr", decide)


def appends_by_name() -> AbstractContextManager[object]:
    """A waiting batch goes to whichever topic has the name when the leader's loop gets to it."""
    distribute = AppendQueue._distribute

    def by_name(self: AppendQueue, now_ms: int) -> None:
        for waiting in self._inbound:
            if (led := self._leaders.get(waiting.request.topic_partition)) is not None:
                named = IdentifiedPartition(led.topic_id, waiting.request.topic_partition)
                waiting.request = replace(waiting.request, partition=named)
        distribute(self, now_ms)

    return patch.object(AppendQueue, "_distribute", by_name)


def deletions_by_name() -> AbstractContextManager[object]:
    """A request to delete records goes to whichever topic has the name when the leader reads it."""

    def decode(data: bytes) -> tuple[dict[IdentifiedPartition, int], int, int]:
        offsets, broker_epoch, timeout_ms = decode_delete_records(data)
        return {each._replace(topic_id=""): offset for each, offset in offsets.items()}, broker_epoch, timeout_ms

    return patch("stratalog.replication.leader.delete_records.decode_delete_records", decode)


RULES: list[tuple[str, Patches]] = [
    ("damaged_leader_is_alone_later", judged_once_an_epoch),
    ("leader_that_wrote_nothing_has_the_longest_log", records_alone_count),
    ("requests_outlive_their_topic", appends_by_name),
    ("requests_outlive_their_topic", deletions_by_name),
]
"""Scenarios that end otherwise with one rule switched off, and how it is."""
