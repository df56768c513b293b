"""A classic consumer for tests of a coordinator: it sends one request at a time and reacts as Kafka's client does."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from stratalog.replication.requests.groups import (
    HeartbeatRequest,
    JoinGroupResponse,
    OffsetCommitRequest,
    SyncGroupResponse,
)
from tests.replication.group_coordinator import Coordinator, commit_request, error_name, join_request, sync_request

JOINING, SYNCING, BEATING, COMMITTING = "join", "sync", "heartbeat", "commit"
RETRIED = {"NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE", "REBALANCE_IN_PROGRESS"}
RESET = {"UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION"}


@dataclass
class Ownership:
    """The owners of one group's partitions. `owners`: (generation, partition) -> client."""

    partitions: int
    owners: dict[tuple[int, int], str] = field(default_factory=dict)

    def assign(self, generation_id: int, partitions: tuple[int, ...], owner: str) -> None:
        """Record an assignment. AssertionError when a partition has another owner in the generation."""
        for partition in partitions:
            before = self.owners.setdefault((generation_id, partition), owner)
            assert before == owner, f"partition {partition} of generation {generation_id}: {before} and {owner}"


@dataclass
class Client:
    """A member. `owned` None: not in a generation. A static member has `instance_id`; clients of the same instance have
    the same owner's name."""

    name: str
    coordinator: Coordinator = field(repr=False)
    ownership: Ownership = field(repr=False)
    instance_id: str | None = None
    member_id: str = ""
    generation_id: int = -1
    owned: tuple[int, ...] | None = None
    joined: JoinGroupResponse | None = None
    waits: str = ""
    token: int = -1
    is_fenced: bool = False
    commits: int | None = None
    commit_sent: OffsetCommitRequest | None = None

    @property
    def owner(self) -> str:
        """The owner of its partitions: the instance, or this member id."""
        return self.instance_id or f"{self.name} {self.member_id}"

    @property
    def is_stable(self) -> bool:
        return self.owned is not None and not self.waits

    def step(self) -> bool:
        """Process the answer that came, or send the next request; False if it can only wait."""
        if self.is_fenced:
            return False
        if self.waits:
            if self.token not in self.coordinator.answered:
                return False
            waits, self.waits = self.waits, ""
            self._process(waits, self.coordinator.answered[self.token])
        elif self.owned is None:
            self._join()
        else:
            self.heartbeat()
        return True

    def heartbeat(self) -> None:
        self._ask(BEATING, HeartbeatRequest("g", self.generation_id, self.member_id, self.instance_id))

    def commit(self, offset: int, partition: int) -> None:
        self.commits = offset
        offsets = {("t", partition): offset}
        own = {"member_id": self.member_id, "group_instance_id": self.instance_id}
        self.commit_sent = commit_request(offsets, generation_id_or_member_epoch=self.generation_id, **own)
        self._ask(COMMITTING, self.commit_sent)

    def _join(self) -> None:
        self._ask(JOINING, join_request(self.name, member_id=self.member_id, group_instance_id=self.instance_id))

    def _ask(self, what: str, request: object) -> None:
        self.waits, self.token = what, self.coordinator.ask(request)

    def _process(self, waits: str, answer: Any) -> None:
        if waits == COMMITTING and not isinstance(answer, Exception):
            answer = answer.topics[0].partitions[0]
        name = answer.name if isinstance(answer, Exception) else error_name(answer)
        if name == "NONE":
            if waits == JOINING:
                self._sync(answer)
            elif waits == SYNCING:
                self._own(answer)
        elif name == "FENCED_INSTANCE_ID":
            self.is_fenced, self.owned = True, None
        elif name == "MEMBER_ID_REQUIRED":
            self.member_id = answer.member_id
        elif name in RESET:
            self.member_id, self.owned = "", None
        elif name in RETRIED:
            # A heartbeat or commit that found no coordinator is sent again; a rebalance is joined.
            if waits in (JOINING, SYNCING) or name == "REBALANCE_IN_PROGRESS":
                self.owned = None
        else:
            raise AssertionError(f"{self.name} got {name} for {waits}")

    def _sync(self, joined: JoinGroupResponse) -> None:
        self.joined, self.member_id, self.generation_id = joined, joined.member_id, joined.generation_id
        plan: dict[str, bytes] = {}
        if joined.leader == joined.member_id and not joined.skip_assignment:
            members = [member.member_id for member in joined.members]
            for number, member_id in enumerate(members):
                plan[member_id] = bytes(range(number, self.ownership.partitions, len(members)))
        self._ask(SYNCING, sync_request(joined, plan, group_instance_id=self.instance_id))

    def _own(self, answer: SyncGroupResponse) -> None:
        self.owned = tuple(answer.assignment)
        self.ownership.assign(self.generation_id, self.owned, self.owner)


def settle(coordinator: Coordinator, clients: list[Client]) -> None:
    """Run steps until all members that were not fenced own their partitions under one generation; time passes when no
    member has a step to do."""
    for _ in range(400):
        clients = [client for client in clients if not client.is_fenced]
        moved = [client.step() for client in clients if not client.is_stable]
        coordinator.commit()
        if not any(moved):
            if all(client.is_stable and client.heartbeat() is None for client in clients):
                coordinator.commit()
                for client in clients:
                    client.step()
                if all(client.is_stable for client in clients):
                    return
            coordinator.advance(500)
            coordinator.commit()
    raise AssertionError(f"not settled: {clients}")
