"""Upkeep of many replicas by the one part that commits to them, a little at a time.

I/O: through each replica's `Upkeep`. Rounds take turns over the replicas until nobody has work or the time is
used up, so that neither a busy neighbour nor a damaged table keeps the others from being looked after.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from itertools import cycle, islice

from storage.clock import Clock
from storage.errors import CorruptMessageError, KafkaStorageError, StoreError
from storage.records import TopicPartition
from storage.upkeep import Upkeep, UpkeepDone

_LOG = logging.getLogger("stratalog.upkeep")

BUDGET_MS = 100

Step = Callable[[TopicPartition, Upkeep], UpkeepDone | None]


class UpkeepRounds:
    """The upkeeps of one broker's or one session's replicas."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._upkeep: dict[TopicPartition, Upkeep] = {}
        self._next = 0

    def take(self, topic_partition: TopicPartition, upkeep: Upkeep) -> None:
        """Look after this replica from now on."""
        self._upkeep[topic_partition] = upkeep

    def drop(self, topic_partition: TopicPartition) -> None:
        """Not any more."""
        self._upkeep.pop(topic_partition, None)

    def run(self, step: Step, on_broken: Callable[[TopicPartition, KafkaStorageError], None]) -> None:
        """Work for about `BUDGET_MS`; goes on where it stopped the last time.

        `step` does one piece of work. A store that is away is tried again next time; a table that cannot be served
        is told to `on_broken`; one with a corrupt file is served as it is but looked after no more (Kafka's
        "uncleanable").
        """
        order = list(self._upkeep)
        idle_in_a_row, end_ms = 0, self._clock.monotonic_ms() + BUDGET_MS
        for topic_partition in islice(cycle(order), self._next % max(len(order), 1), None):
            if idle_in_a_row >= len(order) or self._clock.monotonic_ms() > end_ms:
                return
            self._next += 1
            has_worked = self._step(step, topic_partition, on_broken)
            idle_in_a_row = 0 if has_worked else idle_in_a_row + 1

    def _step(
        self,
        step: Step,
        topic_partition: TopicPartition,
        on_broken: Callable[[TopicPartition, KafkaStorageError], None],
    ) -> bool:
        upkeep = self._upkeep.get(topic_partition)
        if upkeep is None:
            return False
        try:
            return step(topic_partition, upkeep) is not None
        except StoreError as reason:
            _LOG.warning("upkeep of %s, trying again: %s", topic_partition, reason)
        except KafkaStorageError as reason:
            on_broken(topic_partition, reason)
        except CorruptMessageError as reason:
            _LOG.error("no more upkeep of %s: %s", topic_partition, reason)
            self.drop(topic_partition)
        return False
