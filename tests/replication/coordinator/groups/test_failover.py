"""A group's coordinator is killed at any moment of join, sync and commit; another one folds what is committed.

Whoever had an answer can go on with it; everybody else is answered NOT_COORDINATOR, comes again, and nothing that was
told is contradicted.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from stratalog.replication.coordinator.groups.classic.group import GroupState
from stratalog.replication.coordinator.groups.records import decode_group_metadata
from stratalog.replication.requests.groups import LeaveGroupRequest, MemberIdentity
from tests.replication.group_client import Client, Ownership, settle
from tests.replication.group_coordinator import Coordinator, error_name, join_request, sync_request

PARTITIONS = 6


class History:
    """Three clients, of which `s` is static, and what was told so far."""

    def __init__(self) -> None:
        self.coordinator = Coordinator(commits_at_once=False)
        self.ownership = Ownership(PARTITIONS)
        instances = {"a": None, "b": None, "s": "s"}
        self.clients = {
            name: Client(name, self.coordinator, self.ownership, instance) for name, instance in instances.items()
        }
        self.told_offset = -1

    def step(self, name: str) -> None:
        self.clients[name].step()

    def commit_offset(self, name: str, offset: int) -> None:
        self.clients[name].commit(offset, 0)

    def note(self) -> None:
        """What the clients were told about offsets."""
        for client in self.clients.values():
            answer = self.coordinator.answered.get(client.token)
            if client.waits != "commit" or answer is None or client.commits is None:
                continue
            if error_name(answer.topics[0].partitions[0]) == "NONE":
                self.told_offset = client.commits


def _high_watermark(history: History) -> None:
    history.coordinator.commit()


def _delay(history: History) -> None:
    history.coordinator.advance(0)


def _step(name: str) -> Callable[[History], None]:
    return lambda history: history.step(name)


def _everybody(history: History) -> None:
    for client in history.clients.values():
        client.step()


def _commit_offset(history: History) -> None:
    history.commit_offset("a", 41)


HISTORY: list[tuple[str, Callable[[History], None]]] = [
    ("a asks for an id", _step("a")),
    ("the group is stored", _high_watermark),
    ("a has an id", _step("a")),
    ("a joins", _step("a")),
    ("b asks for an id", _step("b")),
    ("b's id is told", _high_watermark),
    ("b has an id", _step("b")),
    ("b joins", _step("b")),
    ("s joins", _step("s")),
    ("the initial delay is over", _delay),
    ("the generation is told", _high_watermark),
    ("b syncs", _step("b")),
    ("s syncs", _step("s")),
    ("a, the leader, syncs", _step("a")),
    ("the assignments are stored", _high_watermark),
    ("they own", _everybody),
    ("an offset is committed", _commit_offset),
    ("the offset is stored", _high_watermark),
    ("the commit is told", _everybody),
    ("they heartbeat", _everybody),
    ("the heartbeats are answered", _high_watermark),
    ("they are content", _everybody),
]


def run(history: History, steps: int) -> None:
    for _, step in HISTORY[:steps]:
        step(history)
        history.note()


def test_the_history_is_the_one_that_is_meant() -> None:
    history = History()
    run(history, len(HISTORY))
    assert [client.owned for client in history.clients.values()] == [(0, 3), (1, 4), (2, 5)]
    assert history.told_offset == 41


@pytest.mark.parametrize("steps", range(len(HISTORY) + 1))
def test_a_coordinator_killed_after_each_step(steps: int) -> None:
    history = History()
    run(history, steps)
    coordinator, clients = history.coordinator, list(history.clients.values())
    owned = {client.name: (client.generation_id, client.owned) for client in clients if client.owned is not None}
    coordinator.crash()
    for name, (generation_id, partitions) in owned.items():
        client = history.clients[name]
        beat = coordinator.ask(sync_of(client))
        coordinator.commit()
        answer = coordinator.answered[beat]
        assert (error_name(answer), tuple(answer.assignment)) == ("NONE", partitions)
        assert coordinator.shard.table.groups["g"].generation_id == generation_id  # type: ignore[attr-defined]
    settle(coordinator, clients)
    assert sorted(each for client in clients for each in client.owned or ()) == list(range(PARTITIONS))
    coordinator.commits_at_once = True
    assert coordinator.committed().committed_offset == history.told_offset
    if owned.keys() == history.clients.keys():
        assert {client.generation_id for client in clients} == {1}


def sync_of(client: Client) -> object:
    assert client.joined is not None
    return sync_request(client.joined, group_instance_id=client.instance_id)


LATER_STEPS = 36


def later(history: History, steps: int) -> set[GroupState]:
    """After that history a newcomer joins, `b` leaves and the others rebalance, a step of one of them at a time and the
    high watermark behind. The states that the group was in."""
    coordinator = history.coordinator
    history.clients["c"] = Client("c", coordinator, history.ownership)
    names, states = "cas", set()
    for number in range(steps):
        if number == 9:
            coordinator.ask(LeaveGroupRequest("g", (MemberIdentity(history.clients.pop("b").member_id),)))
        history.step(names[number % len(names)])
        if number % 2:
            coordinator.commit()
        states.add(coordinator.group().state)
    return states


def test_the_later_history_goes_through_every_state() -> None:
    history = History()
    run(history, len(HISTORY))
    assert later(history, LATER_STEPS) == {
        GroupState.STABLE,
        GroupState.PREPARING_REBALANCE,
        GroupState.COMPLETING_REBALANCE,
    }
    assert {client.generation_id for client in history.clients.values()} == {2}
    assert [client.owned for client in history.clients.values()] == [(0, 3), (1, 4), (2, 5)]


@pytest.mark.parametrize("is_stored", [False, True])
@pytest.mark.parametrize("steps", range(LATER_STEPS))
def test_a_coordinator_killed_in_a_later_rebalance(steps: int, is_stored: bool) -> None:
    """Of a rebalance that no assignment came of, nothing is left: the generation before holds, with its members."""
    history = History()
    run(history, len(HISTORY))
    later(history, steps)
    coordinator, clients = history.coordinator, list(history.clients.values())
    if is_stored:
        coordinator.commit()
    committed = decode_group_metadata(last_group_value(coordinator))
    coordinator.crash()
    assert coordinator.group().metadata_value() == committed
    settle(coordinator, clients)
    shares = sorted(each for client in clients for each in client.owned or ())
    assert shares == list(range(PARTITIONS))


def last_group_value(coordinator: Coordinator) -> bytes:
    values = [
        record.value for record, *_ in coordinator.log if not isinstance(record, bool) and record.key[:2] == b"\0\2"
    ]
    assert values[-1] is not None
    return values[-1]


def test_who_left_is_a_member_again_after_a_failover_until_its_session_ends() -> None:
    """Leaving is told before it is stored, in Kafka too: only the next stable generation is."""
    coordinator = Coordinator()
    joined = coordinator.stable("a", "b")
    coordinator.leave(joined["b"].member_id)
    coordinator.crash()
    assert coordinator.heartbeat(joined["b"]) == "NONE"
    for _ in range(2):
        coordinator.advance(5_001)
        coordinator.heartbeat(joined["a"])
    assert joined["b"].member_id not in coordinator.group().members


def test_after_a_failover_every_member_has_a_whole_session_to_come_back() -> None:
    coordinator = Coordinator()
    joined = coordinator.stable("a", "b")
    coordinator.advance(9_000)
    coordinator.crash()
    coordinator.advance(9_999)
    assert {coordinator.heartbeat(each) for each in joined.values()} == {"NONE"}


def test_a_generation_that_was_told_but_not_stored_cannot_be_synced_into() -> None:
    coordinator = Coordinator()
    joined = coordinator.stable("a", "b")
    tokens = {name: coordinator.ask(join_request(name, member_id=joined[name].member_id)) for name in "ab"}
    second = {name: coordinator.answered[token] for name, token in tokens.items()}
    assert second["a"].generation_id == 2
    coordinator.crash()
    plan = {second["a"].member_id: b"x", second["b"].member_id: b"y"}
    assert error_name(coordinator.answer(sync_request(second["a"], plan))) == "ILLEGAL_GENERATION"
    assert coordinator.heartbeat(second["b"]) == "ILLEGAL_GENERATION"
    assert coordinator.answer(sync_request(joined["b"])).assignment == b"b"


def test_a_follower_hears_nothing_of_assignments_that_are_not_stored() -> None:
    coordinator = Coordinator(commits_at_once=False)
    clients = [Client(name, coordinator, Ownership(2)) for name in "ab"]
    for _ in range(3):
        for client in clients:
            client.step()
        coordinator.commit()
    coordinator.advance(0)
    coordinator.commit()
    a, b = clients
    a.step()
    assert coordinator.group().state is GroupState.STABLE
    b.step()
    assert b.token not in coordinator.answered
    coordinator.crash()
    assert error_name_of(coordinator, b.token) == "NOT_COORDINATOR"
    assert coordinator.group().state is GroupState.EMPTY


def error_name_of(coordinator: Coordinator, token: int) -> str:
    answer = coordinator.answered[token]
    return str(answer.name) if isinstance(answer, Exception) else error_name(answer)
