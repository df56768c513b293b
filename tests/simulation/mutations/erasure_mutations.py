"""Deliberate bugs of erasures."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from stratalog.server.admin.erasure import ReplicaErasure
from stratalog.storage.delta.table import ERASE_POSITION
from stratalog.storage.log.state import LogState
from stratalog.storage.upkeep.chore import UpkeepView, Work
from stratalog.storage.upkeep.erase import Erase, ErasePass
from stratalog.storage.upkeep.erasure import Erasure
from tests.simulation.cluster import Setting
from tests.simulation.faults import Focus
from tests.simulation.mutations.mutation import Mutation, mix

ERASED = Setting(erases=True, pause_ms_max=30)


def erased_before_the_records_are_there() -> AbstractContextManager[object]:
    """A replica erases what it has when it learns of the request, and is done."""
    begin = Erasure.begin

    def at_once(self: Erasure, view: UpkeepView) -> Work[Any] | None:
        ends = [each.end_offset for each in self._erases()]
        erases, own_end = self._erases, view.log.log_end_offset
        self._erases = lambda: [replace(each, end_offset=min(each.end_offset, own_end)) for each in erases()]
        try:
            return begin(self, replace(view, high_watermark=max([view.high_watermark, *ends])))
        finally:
            self._erases = erases

    return patch.object(Erasure, "begin", at_once)


def lost_records_are_waited_for() -> AbstractContextManager[object]:
    """A replica erases once its log has reached the end of the request, also if what was below it is lost."""
    return patch.object(Erase, "within", lambda self, _epochs: self)


def a_pass_goes_on_from_the_last_one() -> AbstractContextManager[object]:
    """A pass for new requests begins at the position that the table states, that of the pass for earlier ones."""
    due = ErasePass.due

    def from_there(state: LogState, erases: Sequence[Erase], readable_end: int) -> ErasePass | None:
        erase_pass = due(state, erases, readable_end)
        return None if erase_pass is None else replace(erase_pass, position=state.txn_number(ERASE_POSITION))

    return patch.object(ErasePass, "due", from_there)


def files_beside_the_log_do_not_count() -> AbstractContextManager[object]:
    """The proof of an erasure looks at the log alone, and not at the files that left it and are on storage."""
    return patch.object(ReplicaErasure, "is_gone", property(lambda self: self.is_erased))


ERASURE_MUTATIONS: dict[str, Mutation] = {
    "erased before the records": Mutation(
        erased_before_the_records_are_there,
        ("ErasedStaysErased",),
        mix(Focus("create", 0.3, "f", "/t-0/"), 1_500, pause_session=3, cut_session=2, removed_table=2),
        ERASED,
    ),
    "erasures of lost records": Mutation(
        lost_records_are_waited_for, ("Liveness",), mix(power_cut_of_all=4, restart_all=1), ERASED
    ),
    "erasure from the last position": Mutation(
        a_pass_goes_on_from_the_last_one, ("ErasedStaysErased",), mix(crash=1), ERASED
    ),
    "erased beside the log": Mutation(files_beside_the_log_do_not_count, ("ErasedIsGone",), mix(crash=1), ERASED),
}
