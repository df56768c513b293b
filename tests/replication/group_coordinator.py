"""A group shard, driven as by its runtime, with the log as a list: decisions, commits, answers, failovers."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from stratalog.replication.config import BrokerConfig
from stratalog.replication.coordinator.groups.classic.group import ClassicGroup
from stratalog.replication.coordinator.groups.shard import GroupShard
from stratalog.replication.coordinator.shard.shard import Answered, CoordinatorRecord, Decision
from stratalog.replication.requests.groups import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    LeaveGroupRequest,
    MemberIdentity,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    TxnOffsetCommitRequest,
)
from stratalog.storage.errors import InvalidProducerEpochError, NotCoordinatorError
from tests.storage.logs import CountingIds

START_MS = 1_700_000_000_000
NO_DELAY = BrokerConfig(group_initial_rebalance_delay_ms=0)


class Marker(NamedTuple):
    """The end of a transaction, on its way into the log."""

    producer_id: int
    producer_epoch: int
    is_commit: bool


@dataclass
class Coordinator:
    """`commits_at_once` False: records wait for `commit`, and their answers with them; `crash` forgets them.

    log       (record or marker, timestamp, producer id, producer epoch) as they are committed
    answered  token -> response
    """

    config: BrokerConfig = NO_DELAY
    commits_at_once: bool = True
    now_ms: int = START_MS
    ids: CountingIds = field(default_factory=CountingIds)
    log: list[tuple[CoordinatorRecord | bool, int, int, int]] = field(default_factory=list)
    answered: dict[int, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.tokens = 0
        self.asked: dict[int, object] = {}
        self.uncommitted: list[Decision | Marker] = []
        self.shard = self.folded()
        self._accept(self.shard.loaded(self.now_ms))

    def folded(self) -> GroupShard:
        """A shard that has folded the committed records, and received nothing else."""
        shard = GroupShard(self.config, self.ids)
        for record, timestamp_ms, producer_id, producer_epoch in self.log:
            if isinstance(record, bool):
                shard.replay_end_transaction(producer_id, producer_epoch, record)
            else:
                shard.replay(record, timestamp_ms, producer_id, producer_epoch)
        return shard

    def ask(self, request: object) -> int:
        """Send a request; the token of its answer."""
        self.tokens += 1
        self.asked[self.tokens] = request
        self._accept(self.shard.decide(request, self.tokens, self.now_ms))
        return self.tokens

    def answer(self, request: object) -> Any:
        """The answer to a request that does not wait."""
        return self.answered[self.ask(request)]

    def advance(self, duration_ms: int) -> None:
        """Advance the clock; timers that become due are served at their times."""
        until_ms = self.now_ms + duration_ms
        while (due_ms := self.shard.next_due_ms) is not None and due_ms <= until_ms:
            self.now_ms = max(self.now_ms, due_ms)
            self._accept(self.shard.expire(self.now_ms))
        self.now_ms = until_ms

    def commit(self) -> None:
        """The high watermark passes everything: records of transactions are folded, answers are sent."""
        uncommitted, self.uncommitted = self.uncommitted, []
        for decision in uncommitted:
            if isinstance(decision, Marker):
                self.log.append((decision.is_commit, self.now_ms, *decision[:2]))
                self.shard.replay_end_transaction(*decision)
                continue
            place = (self.now_ms, decision.producer_id, decision.producer_epoch)
            self.log += [(record, *place) for record in decision.records]
            if decision.producer_id >= 0:
                self._replay(decision)
            for token, response in decision.answers:
                assert token not in self.answered, f"token {token} is answered twice"
                self.answered[token] = response

    def refuse_transactions(self) -> None:
        """The log refuses records of transactions, and accepts everything else."""
        for at, decision in enumerate(self.uncommitted):
            if isinstance(decision, Decision) and decision.producer_id >= 0:
                refused = tuple(Answered(token, InvalidProducerEpochError("old")) for token, _ in decision.answers)
                self.uncommitted[at] = Decision(answers=refused)
        self.commit()

    def end_transaction(self, producer_id: int, producer_epoch: int, is_commit: bool) -> None:
        """Append the transaction coordinator's marker."""
        self.uncommitted.append(Marker(producer_id, producer_epoch, is_commit))
        if self.commits_at_once:
            self.commit()

    def _replay(self, decision: Decision) -> None:
        for record in decision.records:
            self.shard.replay(record, self.now_ms, decision.producer_id, decision.producer_epoch)

    def crash(self) -> None:
        """Another broker becomes coordinator with the committed records; open requests are answered NOT_COORDINATOR."""
        error = NotCoordinatorError("moved")
        given_up = dict(self.shard.unload(error))
        self.uncommitted = []
        for token in self.asked.keys() - self.answered.keys():
            self.answered[token] = given_up.get(token, error)
        self.shard = self.folded()
        self._accept(self.shard.loaded(self.now_ms))

    def _accept(self, decision: Decision) -> None:
        if decision.producer_id < 0:
            self._replay(decision)
        self.uncommitted.append(decision)
        if self.commits_at_once:
            self.commit()

    def group(self, group_id: str = "g") -> ClassicGroup:
        found = self.shard.table.groups[group_id]
        assert isinstance(found, ClassicGroup)
        return found

    # Requests of members

    def join(self, name: str, **changes: Any) -> int:
        """JoinGroup of a member with client id `name`, with the member id of MEMBER_ID_REQUIRED."""
        first = self.answer(join_request(name, **changes))
        return self.ask(join_request(name, **{**changes, "member_id": first.member_id}))

    def stable(self, *names: str, **changes: Any) -> dict[str, JoinGroupResponse]:
        """A new group of these members, stable; each has its name as assignment."""
        tokens = {name: self.join(name, **changes) for name in names}
        self.advance(self.config.group_initial_rebalance_delay_ms)
        while any(token not in self.answered for token in tokens.values()):
            self.advance(self.config.group_initial_rebalance_delay_ms)
        joined = {name: self.answered[token] for name, token in tokens.items()}
        self.sync_all(joined)
        return joined

    def sync_all(self, joined: dict[str, JoinGroupResponse]) -> dict[str, Any]:
        """SyncGroup of all, that of the leader last; the answers by name."""
        names = {response.member_id: name for name, response in joined.items()}
        plan = {member_id: name.encode() for member_id, name in names.items()}
        leader = next(response.leader for response in joined.values())
        order = sorted(joined, key=lambda name: joined[name].member_id == leader)
        tokens = {
            name: self.ask(sync_request(joined[name], plan if joined[name].member_id == leader else {}))
            for name in order
        }
        return {name: self.answered.get(token) for name, token in tokens.items()}

    def heartbeat(self, joined: JoinGroupResponse, **changes: Any) -> str:
        """The name of a heartbeat's error, NONE without one."""
        asked = {"group_id": "g", "generation_id": joined.generation_id, "member_id": joined.member_id} | changes
        return error_name(self.answer(HeartbeatRequest(**asked)))

    def leave(self, *members: str | MemberIdentity) -> Any:
        identities = tuple(each if isinstance(each, MemberIdentity) else MemberIdentity(each) for each in members)
        return self.answer(LeaveGroupRequest("g", identities))

    # Offsets

    def commit_offset(self, offset: int, topic: str = "t", partition: int = 0, **changes: Any) -> str:
        """The name of the partition's error."""
        response = self.answer(commit_request({(topic, partition): offset}, **changes))
        return error_name(response.topics[0].partitions[0])

    def commit_in_transaction(self, offset: int, producer_id: int = 7, epoch: int = 0, **changes: Any) -> str:
        topics = (OffsetCommitRequestTopic("t", (OffsetCommitRequestPartition(0, offset),)),)
        response = self.answer(TxnOffsetCommitRequest("x", "g", producer_id, epoch, topics, **changes))
        return error_name(response.topics[0].partitions[0])

    def committed(self, topic: str = "t", partition: int = 0, group_id: str = "g", require_stable: bool = False) -> Any:
        """OffsetFetch of one partition."""
        group = OffsetFetchRequestGroup(group_id, (OffsetFetchRequestTopic(topic, (partition,)),))
        response = self.answer(OffsetFetchRequest((group,), require_stable))
        return response.groups[0].topics[0].partitions[0]

    def all_committed(self, group_id: str = "g") -> dict[str, int]:
        """Every offset of a group by `topic-partition`."""
        response = self.answer(OffsetFetchRequest((OffsetFetchRequestGroup(group_id),)))
        return {
            f"{topic.name}-{each.partition_index}": each.committed_offset
            for topic in response.groups[0].topics
            for each in topic.partitions
        }


def error_name(response: Any) -> str:
    return "NONE" if response.error is None else str(response.error.name)


def protocols(*names: str, subscription: bytes = b"") -> tuple[JoinGroupRequestProtocol, ...]:
    return tuple(JoinGroupRequestProtocol(name, subscription) for name in names)


def join_request(name: str, **changes: Any) -> JoinGroupRequest:
    """Session 10 s, rebalance 60 s, protocol `range`; `name` is the client id."""
    fields: dict[str, Any] = {
        "group_id": "g",
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 60_000,
        "protocols": protocols("range"),
        "client_id": name,
        "client_host": "/127.0.0.1",
    }
    return JoinGroupRequest(**(fields | changes))


def sync_request(joined: JoinGroupResponse, plan: dict[str, bytes] | None = None, **changes: Any) -> SyncGroupRequest:
    """The SyncGroup of a member after its JoinGroup; `plan` (member id -> assignment) if it is the leader."""
    assignments = tuple(SyncGroupRequestAssignment(*each) for each in (plan or {}).items())
    fields: dict[str, Any] = {
        "group_id": "g",
        "generation_id": joined.generation_id,
        "member_id": joined.member_id,
        "protocol_type": joined.protocol_type,
        "protocol_name": joined.protocol_name,
        "assignments": assignments,
    }
    return SyncGroupRequest(**(fields | changes))


def commit_request(offsets: dict[tuple[str, int], int], metadata: str = "", **changes: Any) -> OffsetCommitRequest:
    topics = tuple(
        OffsetCommitRequestTopic(topic, (OffsetCommitRequestPartition(partition, offset, 5, metadata),))
        for (topic, partition), offset in offsets.items()
    )
    return OffsetCommitRequest(**({"group_id": "g", "topics": topics} | changes))


def is_member_id(text: str, prefix: str) -> bool:
    """Client or instance id, and a UUID."""
    return re.fullmatch(rf"{prefix}-[0-9a-f]{{8}}(-[0-9a-f]{{4}}){{3}}-[0-9a-f]{{12}}", text) is not None
