"""How a decision gets into the metadata log: races, answers that got lost, controllers that are deposed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from stratalog.replication.controller.topics import create_topic
from stratalog.replication.metadata.image import ClusterImage, Result
from stratalog.replication.metadata.log import PROPOSE_TRIES, MetadataLog, SharedMetadata, open_metadata
from stratalog.replication.metadata.records import (
    ConfigRecord,
    ControllerRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from stratalog.replication.shared_fold import SharedFold
from stratalog.storage.errors import (
    IllegalStateError,
    LogDirNotFoundError,
    RequestTimedOutError,
    StaleControllerEpochError,
    StoreUnavailableError,
    TopicAlreadyExistsError,
)
from stratalog.storage.log.state import SEALED_EPOCH
from stratalog.storage.topic_config import LogConfig
from tests.replication.memory_stores import METADATA_ROOT, MemoryStores, register
from tests.simulation.mutations.log_mutations import metadata_folds_never_go_back


def config(value: str) -> ConfigRecord:
    return ConfigRecord("t", "retention.ms", value)


def set_to(value: str) -> Callable[[ClusterImage], Result[str]]:
    return lambda image: Result((config(value),), value)


def creating(topic_id: str, name: str = "t") -> Callable[[ClusterImage], Result[str]]:
    return lambda image: create_topic(image, name, topic_id, 1, 1, check_configs=LogConfig.validated)


SHARES = False


@pytest.fixture(autouse=True, params=[False, True], ids=["alone", "shared"])
def _shares(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether the `two_folds` of a test are parts of one process, and share what they fold."""
    monkeypatch.setattr(f"{__name__}.SHARES", request.param)


def two_folds() -> tuple[MetadataLog, MetadataLog, MemoryStores]:
    stores = MemoryStores()
    shared: SharedMetadata | None = SharedFold() if SHARES else None
    one, other = stores.metadata(shared), stores.metadata(shared)
    register(one, 1, 1)
    one.refresh()
    other.refresh()
    return one, other, stores


def _fresh_image(stores: MemoryStores) -> ClusterImage:
    metadata = stores.metadata()
    metadata.refresh()
    return metadata.image


def topics_written(stores: MemoryStores) -> int:
    records = stores.metadata()
    return sum(record.type == "Topic" for record in records.refresh())


def test_a_proposal_is_in_every_fold() -> None:
    one, other, _ = two_folds()
    assert one.propose(creating("id-1")) == "id-1"
    assert one.image.topic_ids == {"t": "id-1"}
    other.refresh()
    assert other.image == one.image


def test_refresh_tells_what_was_folded_since_the_last_call_the_own_commits_too() -> None:
    one, other, _ = two_folds()
    other.propose(set_to("1"))
    one.propose(set_to("2"))
    assert one.refresh() == [config("1"), config("2")]
    assert one.refresh() == []


def test_a_look_behind_clean_up_sees_all_that_was_committed_and_the_next_refresh_tells_of_all_records() -> None:
    """Clean-up passed the fold by: a refresh sees nothing of it for some seconds."""
    one, other, _ = two_folds()
    for value in "1234":
        one.propose(set_to(value))
    one.log.table.checkpoint()
    assert list(one.log.table.clean_log(one.log.version, 1 << 60))
    assert other.refresh() == []
    other.refresh_image()
    assert other.image == one.image
    records = other.refresh()
    assert [record for record in records if isinstance(record, ConfigRecord)] == [config(value) for value in "1234"]


def test_who_loses_the_race_decides_again_on_what_the_other_did() -> None:
    one, other, stores = two_folds()
    seen: list[dict[str, str]] = []

    def decide(image: ClusterImage) -> Result[str]:
        seen.append(dict(image.topic_ids))
        if len(seen) == 1:
            other.propose(creating("id-2"))
        return creating("id-1")(image)

    with pytest.raises(TopicAlreadyExistsError):
        one.propose(decide)
    assert seen == [{}, {"t": "id-2"}]
    assert topics_written(stores) == 1


def test_who_always_loses_gives_up() -> None:
    one, other, _ = two_folds()
    tries = []

    def decide(image: ClusterImage) -> Result[str]:
        tries.append(1)
        other.propose(set_to(str(len(tries))))
        return set_to("own")(image)

    with pytest.raises(RequestTimedOutError):
        one.propose(decide)
    assert len(tries) == PROPOSE_TRIES


def test_a_refused_decision_leaves_nothing_behind() -> None:
    one, other, _ = two_folds()
    one.propose(creating("id-1"))
    version = one.log.version
    with pytest.raises(TopicAlreadyExistsError):
        other.propose(creating("id-2"))
    one.refresh()
    assert one.log.version == version


def test_no_epoch_reaches_that_of_a_sealed_table() -> None:
    metadata = MemoryStores().metadata()
    last = PartitionRecord("t", 0, (1,), 1, SEALED_EPOCH - 1, (1,), 0, 1)
    metadata.propose(lambda _: Result((TopicRecord("t", "id"), last), None))
    version = metadata.log.version
    with pytest.raises(IllegalStateError, match=f"leader epoch {SEALED_EPOCH} of t-0 is not below {SEALED_EPOCH}"):
        metadata.propose(lambda _: Result((last.changed(bump_leader_epoch=True),), None))
    metadata.propose(lambda _: Result((ControllerRecord(1, SEALED_EPOCH - 1),), None))
    with pytest.raises(IllegalStateError, match=f"controller epoch {SEALED_EPOCH} is not below"):
        metadata.elect_controller(2, SEALED_EPOCH - 1)
    assert (metadata.log.version, metadata.log.leader_epoch) == (version + 1, -1)


def test_nothing_to_do_is_no_commit() -> None:
    one, _, _ = two_folds()
    version = one.log.version
    assert one.propose(lambda image: Result((), "as it is")) == "as it is"
    assert one.log.version == version


@pytest.mark.parametrize("lost", ["create", "create:done"], ids=["the request", "the answer"])
def test_one_lost_message_is_made_good_without_a_second_commit(lost: str) -> None:
    one, _, stores = two_folds()
    faults = iter([True])
    stores.disk(METADATA_ROOT).fault = lambda operation, *_: operation == lost and next(faults, False)
    assert one.propose(creating("id-1")) == "id-1"
    assert topics_written(stores) == 1


@pytest.mark.parametrize("lost", ["create", "create:done"], ids=["before the commit", "after the commit"])
def test_asking_again_after_the_store_was_away_finds_the_own_effect(lost: str) -> None:
    one, _, stores = two_folds()
    disk = stores.disk(METADATA_ROOT)
    is_away: list[bool] = []

    def fault(operation: str, _table: str, _detail: str) -> bool:
        is_away.extend([True] * (operation == lost))
        return bool(is_away)

    disk.fault = fault
    with pytest.raises(StoreUnavailableError):
        one.propose(creating("id-1"))
    disk.fault = None
    assert one.propose(creating("id-1")) == "id-1"
    assert topics_written(stores) == 1


def test_after_an_unknown_outcome_others_go_on_and_one_of_both_holds() -> None:
    """The commit that got no answer stands; who comes later meets it."""
    one, other, stores = two_folds()
    disk = stores.disk(METADATA_ROOT)
    is_away: list[bool] = []

    def fault(operation: str, _table: str, _detail: str) -> bool:
        is_away.extend([True] * (operation == "create:done"))
        return bool(is_away)

    disk.fault = fault
    with pytest.raises(StoreUnavailableError):
        one.propose(creating("id-1"))
    disk.fault = None
    with pytest.raises(TopicAlreadyExistsError):
        other.propose(creating("id-2"))
    assert one.propose(creating("id-1")) == "id-1"


def test_without_a_metadata_log_there_is_no_cluster() -> None:
    stores = MemoryStores()
    with pytest.raises(LogDirNotFoundError, match="no cluster metadata"):
        open_metadata(stores, METADATA_ROOT, stores.clock, stores.ids).refresh()


def test_every_commit_is_durable_before_it_counts() -> None:
    """Promise 4."""
    one, _, stores = two_folds()
    one.propose(set_to("1"))
    stores.disk(METADATA_ROOT).lose_unsynced()
    assert stores.metadata().refresh()[-1] == config("1")


@pytest.mark.parametrize("for_sure", [False, True])
def test_what_is_acted_on_survives_a_power_cut(for_sure: bool) -> None:
    """A commit is seen before its writer has synced it, and the writer dies there with the disk's power."""
    writer, _, stores = two_folds()
    actor = open_metadata(stores, METADATA_ROOT, stores.clock, stores.ids, acts=True)
    actor.refresh()
    seen: list[ConfigRecord] = []

    def fault(operation: str, _table: str, _detail: str) -> bool:
        if operation == "create:done" and not seen:
            stores.disk(METADATA_ROOT).fault = None
            if for_sure:
                actor.refresh_image()
            seen.extend(record for record in actor.refresh() if isinstance(record, ConfigRecord))
            stores.disk(METADATA_ROOT).lose_unsynced()
        return False

    stores.disk(METADATA_ROOT).fault = fault
    writer.propose(set_to("1"))
    assert seen == [config("1")]
    assert stores.metadata().refresh()[-1] == config("1")


def test_an_answer_without_a_commit_is_durable_too() -> None:
    writer, other, stores = two_folds()
    answers: list[str] = []

    def fault(operation: str, _table: str, _detail: str) -> bool:
        if operation == "create:done" and not answers:
            stores.disk(METADATA_ROOT).fault = None
            answers.append(other.propose(lambda image: Result((), image.topic_config("t")["retention.ms"])))
            stores.disk(METADATA_ROOT).lose_unsynced()
        return False

    stores.disk(METADATA_ROOT).fault = fault
    writer.propose(set_to("1"))
    assert answers == [stores.metadata().refresh()[-1].value] == ["1"]  # type: ignore[union-attr]


def test_a_fold_that_had_commits_which_a_power_cut_took_has_those_in_their_place_afterwards() -> None:
    folded, fresh = _folded_beyond_a_power_cut()
    assert folded == fresh


def test_a_fold_that_stands_where_it_stood_lacks_what_is_in_the_place_of_lost_commits() -> None:
    with metadata_folds_never_go_back():
        folded, fresh = _folded_beyond_a_power_cut()
    assert folded.topic_ids != fresh.topic_ids


def _folded_beyond_a_power_cut() -> tuple[ClusterImage, ClusterImage]:
    """The image of a client, and that of a new fold. The client folds a commit before its writer has synced it; it
    looks again before the next commit at that offset."""
    writer, client, stores = two_folds()
    writer.propose(creating("1" * 32, "kept"))
    lost = open_metadata(stores, METADATA_ROOT, stores.clock, stores.ids)

    def fault(operation: str, _table: str, _detail: str) -> bool:
        if operation == "create:done":
            stores.disk(METADATA_ROOT).fault = None
            client.refresh()
            assert client.image.configs["t"] == {"retention.ms": "lost"}
            stores.disk(METADATA_ROOT).lose_unsynced()
            client.refresh_image()
        return False

    stores.disk(METADATA_ROOT).fault = fault
    lost.propose(set_to("lost"))
    stores.metadata().propose(creating("2" * 32, "later"))
    client.refresh_image()
    return client.image, _fresh_image(stores)


# -- controllers (promise 12) --------------------------------------------------------------------------------


def test_one_candidate_wins_an_epoch() -> None:
    one, other, _ = two_folds()
    assert one.elect_controller(1, 0) == 1
    assert other.elect_controller(2, 0) is None
    assert (other.image.controller_id, other.image.controller_epoch) == (1, 1)


def test_candidates_that_stand_at_the_same_moment() -> None:
    one, other, stores = two_folds()
    won: list[int | None] = []

    def fault(operation: str, _table: str, _detail: str) -> bool:
        if operation == "create" and not won:
            won.append(-1)  # `other` is quicker, just before `one` creates its version
            won[0] = other.elect_controller(2, 0)
        return False

    stores.disk(METADATA_ROOT).fault = fault
    assert one.elect_controller(1, 0) is None
    assert won == [1]
    one.refresh()
    assert one.image.controller_id == 2


def test_a_deposed_controllers_commit_is_refused() -> None:
    one, other, _ = two_folds()
    assert one.elect_controller(1, 0) == 1
    other.refresh()
    assert other.elect_controller(2, 1) == 2
    with pytest.raises(StaleControllerEpochError, match="controller epoch 1, newest is 2"):
        one.propose(set_to("1"), controller_epoch=1)
    assert one.image.configs == {}


def test_a_controller_deposed_between_deciding_and_committing_is_refused_too() -> None:
    one, other, _ = two_folds()
    assert one.elect_controller(1, 0) == 1

    def decide(image: ClusterImage) -> Result[str]:
        other.refresh()
        other.elect_controller(2, 1)
        return set_to("1")(image)

    with pytest.raises(StaleControllerEpochError):
        one.propose(decide, controller_epoch=1)
    other.refresh()
    assert other.image.configs == {}


def test_brokers_and_clients_are_not_fenced_by_a_new_controller() -> None:
    """Only controller records are, as in Kafka."""
    one, other, _ = two_folds()
    assert one.elect_controller(1, 0) == 1
    assert other.propose(set_to("1")) == "1"


def test_a_winner_that_died_before_it_said_so_is_followed_by_the_next_epoch() -> None:
    one, other, _ = two_folds()
    assert one.elect_controller(1, 0) == 1
    one.log.start_epoch(2, as_leader=True)
    with pytest.raises(StaleControllerEpochError):
        one.propose(set_to("1"), controller_epoch=1)
    other.refresh()
    assert other.elect_controller(2, 1) == 3
    assert other.refresh()[-1] == ControllerRecord(2, 3)


def test_two_brokers_that_register_at_once_get_two_epochs() -> None:
    one, other, _ = two_folds()
    tried: list[int] = []

    def registering(broker_id: int) -> Callable[[ClusterImage], Result[int]]:
        def decide(image: ClusterImage) -> Result[int]:
            epoch = image.last_broker_epoch + 1
            tried.append(broker_id)
            if tried == [2]:
                other.propose(registering(3))
            return Result((RegisterBrokerRecord(broker_id, epoch, f"run-{epoch}", f"root-{broker_id}"),), epoch)

        return decide

    assert one.propose(registering(2)) == 3
    assert one.image.brokers[3].broker_epoch == 2
