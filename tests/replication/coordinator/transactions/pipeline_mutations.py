"""Deliberate bugs in what keeps a transactional client's batches in order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from stratalog.replication.coordinator.transactions.held_batches import HeldBatch, HeldBatches, _Line
from stratalog.storage.errors import UnverifiedTransactionError

Next = tuple[HeldBatch, UnverifiedTransactionError | None] | None


def _sent(line: _Line, batch: HeldBatch, verified: UnverifiedTransactionError | None) -> Next:
    batch.number, batch.is_sent, batch.verified = line.sent_count, True, None
    line.sent_count += 1
    return batch, verified


def batches_pass_one_that_is_asked_about() -> AbstractContextManager[object]:
    """A question holds up its own batch alone."""

    def first_that_waits(self: _Line) -> Next:
        found = next((each for each in self.batches if not each.is_sent and not each.is_asked), None)
        return None if found is None else _sent(self, found, found.verified)

    return patch.object(_Line, "next", first_that_waits)


@contextmanager
def every_batch_is_asked_about() -> Iterator[None]:
    """Several of a line are verified at once, each at its own log end; they are sent in order."""

    def refused(self: HeldBatches, batch: HeldBatch) -> bool:
        with self._lock:
            batch.is_sent, batch.is_asked = False, True
        return True

    def in_order(self: _Line) -> Next:
        for each in self.batches:
            if each.is_asked:
                return None
            if not each.is_sent:
                return _sent(self, each, each.verified)
        return None

    with patch.object(HeldBatches, "refused", refused), patch.object(_Line, "next", in_order):
        yield


@dataclass(frozen=True, slots=True)
class Mutation:
    """A bug, and the settings of runs of which `seed` finds it."""

    bug: Callable[[], AbstractContextManager[object]]
    seed: int
    settings: dict[str, Any]

    @property
    def name(self) -> str:
        return self.bug.__name__.replace("_", " ")


MUTATIONS = (
    Mutation(batches_pass_one_that_is_asked_about, 0, {"version": 2, "has_faults": False}),
    Mutation(every_batch_is_asked_about, 1, {"version": 2, "has_faults": False}),
)
