"""What is read of a coordinator is told once it is certain that no other one led before it was asked for."""

from __future__ import annotations

from dataclasses import replace

from stratalog.replication.coordinator.groups.shard import GroupShard
from stratalog.replication.requests.groups import OffsetFetchRequest, OffsetFetchRequestGroup
from stratalog.storage.clock import RandomIds
from stratalog.storage.errors import StoreUnavailableError
from tests.replication.coordinated import CONFIG, P0, Coordinated, added, coordinated
from tests.replication.list_shard import Add, Read
from tests.replication.memory_stores import commit

CERTAIN = Read(is_certain=True)


def elected_elsewhere(running: Coordinated) -> None:
    """Broker 2 leads in the metadata log, which broker 1 has not read."""
    running.metadata.refresh()
    state = running.metadata.image.partition(P0)
    commit(running.metadata, replace(state, leader=2, leader_epoch=1, partition_epoch=state.partition_epoch + 1))


def test_who_leads_answers_in_the_same_turn() -> None:
    running = coordinated()
    running.ask(CERTAIN)
    running.broker.coordinators.step()
    assert running.taken() == [()]
    assert running.broker.coordinators.next_due_ms is None


def test_who_was_deposed_and_does_not_know_it_tells_nothing_old() -> None:
    running = coordinated()
    elected_elsewhere(running)
    running.ask(Read())
    running.ask(CERTAIN)
    running.broker.coordinators.step()
    assert running.taken() == [()], "the first one is told from memory"
    running.settle()
    assert running.taken() == ["NOT_COORDINATOR"]


def test_it_is_told_after_the_writes_before_it() -> None:
    running = coordinated()
    running.ask(Add("a"))
    running.settle()
    running.ask(CERTAIN)
    running.settle()
    assert running.taken() == []
    running.follow(1)
    assert running.taken() == [added(0, "a"), ("a",)]


def test_while_the_metadata_log_is_away_it_waits_and_is_refused_in_the_end() -> None:
    running = coordinated()
    running.ask(CERTAIN)
    refresh, running.broker.metadata.refresh_image = running.broker.metadata.refresh_image, _away  # type: ignore[method-assign]
    running.settle()
    running.settle()
    assert running.taken() == []
    assert running.broker.coordinators.next_due_ms is not None
    running.clock.now_ms += CONFIG.offsets_commit_timeout_ms
    running.settle()
    assert running.taken() == ["COORDINATOR_NOT_AVAILABLE"]
    running.broker.metadata.refresh_image = refresh  # type: ignore[method-assign]
    running.ask(CERTAIN)
    running.settle()
    assert running.taken() == [()]


def _away() -> None:
    raise StoreUnavailableError("the metadata log is away")


def test_committed_offsets_are_such_a_read() -> None:
    shard = GroupShard(CONFIG, RandomIds())
    shard.loaded(0)
    decision = shard.decide(OffsetFetchRequest((OffsetFetchRequestGroup("g"),)), 1, 0)
    assert (decision.is_read, decision.records) == (True, ())
