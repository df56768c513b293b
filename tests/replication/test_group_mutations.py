"""Rules of groups switched off one by one, to see that the random lives of a group notice."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from replication.committed_offsets import CommittedOffsets
from replication.group import ClassicGroup
from replication.group_membership import ClassicGroups
from replication.group_rebalance import Rebalances
from tests.replication.test_group_histories import GroupLife

NOTHING = lambda *_args, **_named: None  # noqa: E731


def _generations_do_not_count(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ClassicGroup, "validate_generation", NOTHING)


def _those_who_do_not_come_stay(patch: pytest.MonkeyPatch) -> None:
    """Members that miss a rebalance stay in the next generation."""
    patch.setattr(Rebalances, "remove", NOTHING)


def _waiting_syncs_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Rebalances, "answer_waiting", staticmethod(NOTHING))


def _own_records_are_folded_like_foreign_ones(patch: pytest.MonkeyPatch) -> None:
    before = ClassicGroups.replay

    def forgetful(kind: ClassicGroups, record: object, timestamp_ms: int) -> None:
        for group in kind._table.groups.values():
            if isinstance(group, ClassicGroup):
                group.stated = None
        before(kind, record, timestamp_ms)  # type: ignore[arg-type]

    patch.setattr(ClassicGroups, "replay", forgetful)


def _transactional_commits_take_their_place_when_they_are_stored(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(CommittedOffsets, "expect", NOTHING)
    patch.setattr(CommittedOffsets, "_arrived", lambda offsets, _group_id, _key, value: offsets._next(value))


def _assignments_are_kept_to_oneself(patch: pytest.MonkeyPatch) -> None:
    """The record of a generation is written, but not its assignments."""
    before = ClassicGroup.state_record

    def without(group: ClassicGroup) -> object:
        kept = {member_id: member.assignment for member_id, member in group.members.items()}
        for member in group.members.values():
            member.assignment = b""
        record = before(group)
        for member_id, assignment in kept.items():
            group.members[member_id].assignment = assignment
        return record

    patch.setattr(ClassicGroup, "state_record", without)


MUTATIONS: list[Callable[[pytest.MonkeyPatch], None]] = [
    _generations_do_not_count,
    _those_who_do_not_come_stay,
    _waiting_syncs_are_forgotten,
    _own_records_are_folded_like_foreign_ones,
    _transactional_commits_take_their_place_when_they_are_stored,
    _assignments_are_kept_to_oneself,
]


@pytest.mark.slow
@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda each: each.__name__.strip("_"))
def test_a_rule_that_is_switched_off_is_missed(
    mutation: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutation(monkeypatch)
    few = settings(
        max_examples=300,
        stateful_step_count=50,
        deadline=None,
        derandomize=True,
        database=None,
        report_multiple_bugs=False,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    with pytest.raises((AssertionError, KeyError, ExceptionGroup)):
        run_state_machine_as_test(GroupLife, settings=few)
