"""Rules of groups switched off one by one, to see that the random lives of a group notice.

The lives are drawn from seeds of our own: what Hypothesis draws depends on which modules are loaded beside the test.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest

from stratalog.replication.coordinator.groups import migration
from stratalog.replication.coordinator.groups.classic.group import ClassicGroup
from stratalog.replication.coordinator.groups.classic.membership import ClassicGroups
from stratalog.replication.coordinator.groups.classic.rebalance import Rebalances
from stratalog.replication.coordinator.groups.committed_offsets import CommittedOffsets
from stratalog.replication.coordinator.groups.modern import sessions
from stratalog.replication.coordinator.groups.modern.classic_members import ClassicMembers
from stratalog.replication.coordinator.groups.modern.group import ModernGroup
from stratalog.replication.coordinator.groups.modern.sessions import ModernSessions
from stratalog.replication.metadata.image import ClusterImage
from stratalog.replication.requests.groups import JoinGroupRequest
from stratalog.wire.consumer_protocol import Subscription
from tests.replication.coordinator.groups import test_migration
from tests.replication.coordinator.groups.test_classic_histories import NAMES, PRODUCERS, GroupLife
from tests.replication.coordinator.groups.test_migration_histories import MixedGroupHistories

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


def _upgraded_members_have_nothing(patch: pytest.MonkeyPatch) -> None:
    before = migration._upgraded
    patch.setattr(migration, "_upgraded", lambda *given: replace(before(*given), assigned={}))


def _only_assignments_count_as_owned(patch: pytest.MonkeyPatch) -> None:
    before = migration._shares

    def assigned(group: ClassicGroup, subscriptions: dict[str, Subscription], image: ClusterImage) -> object:
        nothing = {name: replace(each, owned_partitions=()) for name, each in subscriptions.items()}
        return before(group, nothing, image)

    patch.setattr(migration, "_shares", assigned)


def _who_was_removed_in_the_same_decision_stays(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(sessions, "_removed_members", lambda *_: set())


def _a_downgraded_group_counts_as_assigned(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ClassicGroup, "unassigned_record", ClassicGroup.state_record)


def _earlier_records_of_a_downgraded_group_count(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(sessions, "_is_of", lambda *_: False)


def _nobody_computes_a_target(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ClassicMembers, "_waits_for_a_target", lambda *_: False)


def _members_are_not_told_that_partitions_are_free(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ModernGroup, "waits_for_others", lambda *_: True)


def _timers_of_a_group_that_changed_go_on(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ModernSessions, "stop", NOTHING)


def _a_removed_member_is_taken_for_a_new_one(patch: pytest.MonkeyPatch) -> None:
    before = ClassicMembers._as_heartbeat

    def without_owned(members: ClassicMembers, request: JoinGroupRequest, member_id: str) -> object:
        known = getattr(members._table.groups.get(request.group_id), "members", {})
        said = before(members, request, member_id)
        return said if member_id in known else replace(said, topic_partitions=())

    patch.setattr(ClassicMembers, "_as_heartbeat", without_owned)


def lives() -> None:
    """Lives of mixed groups find these rules; the others break in rare turns, which scenarios tell."""
    live_mixed_all(range(300))


MIGRATION_MUTATIONS: list[tuple[Callable[[pytest.MonkeyPatch], None], Callable[[], None]]] = [
    (_upgraded_members_have_nothing, lives),
    (_nobody_computes_a_target, lives),
    (_members_are_not_told_that_partitions_are_free, lives),
    (_timers_of_a_group_that_changed_go_on, lives),
    (_a_removed_member_is_taken_for_a_new_one, lives),
    (
        _only_assignments_count_as_owned,
        test_migration.test_a_cooperative_member_that_has_not_sent_sync_group_still_owns_what_it_had,
    ),
    (
        _who_was_removed_in_the_same_decision_stays,
        test_migration.test_a_session_that_ends_with_the_last_modern_one_is_over,
    ),
    (
        _earlier_records_of_a_downgraded_group_count,
        test_migration.test_several_sessions_end_at_once_and_the_others_are_a_classic_group,
    ),
    (
        _a_downgraded_group_counts_as_assigned,
        test_migration.test_a_coordinator_that_takes_over_before_the_group_has_rebalanced_lets_it,
    ),
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


def live_mixed(seed: int) -> None:
    """One random life of a group whose members speak either protocol."""
    random = Random(seed)
    life = MixedGroupHistories()
    counts, policy = (random.randint(1, 4), random.randint(1, 4)), random.choice(["bidirectional", "upgrade"])
    life.start(counts, policy, random.random() < 0.5)
    acts: list[Callable[[], None]] = [
        lambda: life.somebody_starts(
            random.choice([("a",), ("b",), ("a", "b")]),
            random.random() < 0.3,
            random.random() < 0.4,
        ),
        lambda: life.turns(random, random.randint(1, 8)),
        lambda: life.subscribe_anew(random, random.choice([("a",), ("a", "b")])),
        lambda: life.leave(random, random.random() < 0.5),
        lambda: life.die(random),
        lambda: life.time_passes(random.choice([500, 5_000, 20_000, 46_000]), random.random() < 0.5),
        lambda: life.coordinator_fails(random.random() < 0.5),
    ]
    weights = [usual * random.choice((1, 2, 4)) for usual in (4, 20, 1, 2, 1, 3, 2)]
    for act in random.choices(acts, weights, k=STEPS):
        if life.members or act is acts[0]:
            act()
        life.what_a_member_uses_in_its_epoch_is_its_own_at_the_coordinator()
        life.a_partition_belongs_to_one_member()
    life.the_log_tells_the_same_group()
    life.teardown()


def live_mixed_all(seeds: range) -> None:
    for seed in seeds:
        live_mixed(seed)


def test_lives_of_a_sound_mixed_group() -> None:
    live_mixed_all(range(100))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mutation", "finds"), MIGRATION_MUTATIONS, ids=[each.__name__.strip("_") for each, _ in MIGRATION_MUTATIONS]
)
def test_a_rule_of_migration_that_is_switched_off_is_missed(
    mutation: Callable[[pytest.MonkeyPatch], None], finds: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutation(monkeypatch)
    with pytest.raises((AssertionError, KeyError)):
        finds()
