"""Rules of groups switched off one by one, to see that the random lives of a group notice.

The lives are drawn from seeds of our own: what Hypothesis draws depends on which modules are loaded beside the test.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from stratalog.replication.coordinator.groups.classic_group import ClassicGroup
from stratalog.replication.coordinator.groups.classic_membership import ClassicGroups
from stratalog.replication.coordinator.groups.classic_rebalance import Rebalances
from stratalog.replication.coordinator.groups.committed_offsets import CommittedOffsets
from tests.replication.coordinator.groups.test_classic_histories import NAMES, PRODUCERS, GroupLife

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
                group.last_value = None
        before(kind, record, timestamp_ms)  # type: ignore[arg-type]

    patch.setattr(ClassicGroups, "replay", forgetful)


def _transactional_commits_take_their_place_when_they_are_stored(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(CommittedOffsets, "expect", NOTHING)
    patch.setattr(CommittedOffsets, "_stored", lambda offsets, _group_id, _key, value: offsets._next(value))


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


LIVES_MOST = 1_000
STEPS = 60


def live(seed: int) -> None:
    """One random life of a group: STEPS acts, some more frequent than others, and after each what must hold."""
    random = Random(seed)
    life = GroupLife()
    acts: list[Callable[[], None]] = [
        lambda: life.appear(random.choice(NAMES)),
        lambda: life.step(random.choice(NAMES), random.randint(1, 4)),
        life.step_old_selves,
        lambda: life.die(random.choice(NAMES)),
        lambda: life.leave(random.choice(NAMES)),
        lambda: life.commit_offset(random.choice(NAMES), random.randint(0, 1)),
        lambda: life.late_commit(random.choice(NAMES)),
        lambda: life.commit_in_transaction(random.choice(PRODUCERS)),
        lambda: life.end_transaction(random.choice(PRODUCERS), random.random() < 0.5),
        life.delete_the_offset,
        life.the_log_refuses_producers,
        life.high_watermark,
        lambda: life.time_passes(random.choice([1, 50, 100, 3_000, 9_999, 10_000])),
        life.coordinator_dies,
        life.everything_calms_down,
    ]
    # Some rules break only where a group is seldom calm, others only where it often is.
    weights = [usual * random.choice((1, 2, 4)) for usual in (2, 20, 2, 1, 1, 6, 4, 1, 1, 1, 1, 6, 2, 1, 4)]
    life.begin()
    for act in random.choices(acts, weights, k=STEPS):
        act()
        life.told_offsets_stay()
        life.owners_that_are_members_of_the_generation_share_nothing()
        life.a_fold_of_the_log_is_what_is_stored()
        life.tokens_wait_in_one_place()


def live_all(seeds: range) -> None:
    for seed in seeds:
        live(seed)


def test_lives_of_a_sound_group() -> None:
    live_all(range(300))


@pytest.mark.slow
@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda each: each.__name__.strip("_"))
def test_a_rule_that_is_switched_off_is_missed(
    mutation: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutation(monkeypatch)
    with pytest.raises((AssertionError, KeyError)):
        live_all(range(LIVES_MOST))
