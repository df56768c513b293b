"""Members of classic groups in a simulated cluster with its real coordinators: they join, sync, commit, leave and die.

A member commits growing offsets for each partition that it owns: larger in each generation, and with each commit.

OneOwner              no partition has two owners in one generation
GenerationsGrow       a member's generation never goes back, nor do those in the log of `__consumer_offsets`
CommittedOffset       a fetched offset is no older than those acknowledged before the fetch
FencedMember          an offset of a generation is not committed once a later one was assigned
"""

from __future__ import annotations

from dataclasses import dataclass, field

from stratalog.replication.coordinator.groups.records import (
    GROUP_METADATA_KEY,
    decode_group_metadata,
    decode_key,
)
from stratalog.replication.internal_topics import GROUP_METADATA_TOPIC
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
    OffsetFetchResponse,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from stratalog.storage.errors import StratalogError
from stratalog.wire.kafka_types import version_of
from tests.simulation.cluster import TOPIC, SimCluster
from tests.simulation.coordinators.coordinator_clients import GROUP, CoordinatorClient
from tests.simulation.invariants import Violation

PARTITIONS = 3
SESSION_MS, REBALANCE_MS = 700, 500
FENCED_LATE_MS_MAX = 2_500
COMMITS_MAX = 100_000
"""More than any run makes."""


@dataclass(slots=True)
class GroupHistory:
    """The answers to members of one group.

    owners  by generation and partition; `acked`: the highest acknowledged offset by partition
    newest  the latest generation with an assignment in an answer
    """

    owners: dict[tuple[int, int], str] = field(default_factory=dict)
    acked: dict[int, int] = field(default_factory=dict)
    newest: int = -1
    asked: int = 0
    commits: int = 0


class Groups:
    """All groups of a run."""

    def __init__(self, sim: SimCluster) -> None:
        self.sim = sim
        self.histories: dict[str, GroupHistory] = {}

    def of(self, group_id: str) -> GroupHistory:
        return self.histories.setdefault(group_id, GroupHistory())

    def fail(self, invariant: str, message: str) -> None:
        """No promise holds once the last holder of a log lost it with its disk."""
        if not any(history.lossy for history in self.sim.invariants.histories.values()):
            raise Violation(invariant, message)

    @property
    def committed_count(self) -> int:
        return sum(each.commits for each in self.histories.values())

    def assigned(self, group_id: str, generation: int, member_id: str, partitions: list[int]) -> None:
        """A member received its assignment."""
        history = self.of(group_id)
        owners, history.newest = history.owners, max(generation, history.newest)
        for partition in partitions:
            owner = owners.setdefault((generation, partition), member_id)
            if owner != member_id:
                self.fail("OneOwner", f"{group_id}-{partition} in generation {generation}: {owner}, {member_id}")

    def committed(self, group_id: str, partition: int, offset: int) -> None:
        history = self.of(group_id)
        history.commits += 1
        history.acked[partition] = max(offset, history.acked.get(partition, -1))

    def fetched(self, group_id: str, partition: int, offset: int, acked_before: int) -> None:
        if offset < acked_before:
            self.fail("CommittedOffset", f"{group_id}-{partition}: {offset} after {acked_before}")

    def check_end(self) -> None:
        """Generations in the log, in its order; a tombstone begins again."""
        for history in self.sim.invariants.histories.values():
            if history.topic_partition.topic != GROUP_METADATA_TOPIC or history.lossy:
                continue
            newest: dict[bytes, int] = {}
            for _, record in sorted(history.committed.items()):
                key = record.key or b""
                if not key or version_of(key) != GROUP_METADATA_KEY:
                    continue
                if record.value is None:
                    newest.pop(key, None)
                    continue
                generation = decode_group_metadata(record.value).generation
                if generation < newest.get(key, -1):
                    self.fail("GenerationsGrow", f"{decode_key(key)}: {newest[key]} then {generation}")
                newest[key] = generation


class GroupClient(CoordinatorClient):
    """A client that commits and fetches offsets of one group."""

    def __init__(self, sim: SimCluster, groups: Groups, name: str, group_id: str) -> None:
        super().__init__(sim, name)
        self._groups = groups
        self._group_id = group_id

    def commit(self, partition: int, epoch: int, member_id: str) -> tuple[object, StratalogError | None]:
        """The next offset, as the member of this generation or member epoch; result as of `ask`."""
        history = self._groups.of(self._group_id)
        history.asked += 1
        offset = epoch * COMMITS_MAX + history.asked
        topics = (OffsetCommitRequestTopic(TOPIC, (OffsetCommitRequestPartition(partition, offset),)),)
        request = OffsetCommitRequest(self._group_id, topics, epoch, member_id)
        answer, error = self.ask(GROUP, self._group_id, request, is_repeated=False)
        if answer is not None and error is None:
            self._groups.committed(self._group_id, partition, offset)
        return answer, error

    def fetch(self, partition: int) -> int | None:
        """The committed offset; None if unknown."""
        topics = (OffsetFetchRequestTopic(TOPIC, (partition,)),)
        request = OffsetFetchRequest((OffsetFetchRequestGroup(self._group_id, topics),))
        acked = self._groups.of(self._group_id).acked.get(partition, -1)
        answer, error = self.ask(GROUP, self._group_id, request)
        if error is not None or not isinstance(answer, OffsetFetchResponse):
            return None
        offset = answer.groups[0].topics[0].partitions[0].committed_offset
        self._groups.fetched(self._group_id, partition, offset, acked)
        return offset


class Member(GroupClient):
    """A consumer of one group; when it dies, it begins again without an id. `fenced`: the probability that a thread
    hangs and commits up to 2.5 s later, as if it were still a member."""

    def __init__(self, sim: SimCluster, groups: Groups, name: str, group_id: str, fenced: float = 0.0) -> None:
        super().__init__(sim, groups, name, group_id)
        self._fenced = fenced
        self._member_id = ""
        self._generation = -1
        self._owned: list[int] = []
        self._joined = JoinGroupResponse()

    def run(self) -> None:
        while self.goes_on:
            if self._join() and self._sync():
                left_behind = FencedMember(self, self._groups, self._member_id, self._generation, self._owned)
                self._read()
                if self._fenced and self.random.random() < self._fenced:
                    left_behind.spawn()
            self.rest(1, 150)

    def _forget(self) -> None:
        self._member_id, self._generation, self._owned = "", -1, []

    def _join(self) -> bool:
        request = JoinGroupRequest(
            self._group_id,
            SESSION_MS,
            REBALANCE_MS,
            self._member_id,
            protocol_type="simulated",
            protocols=(JoinGroupRequestProtocol("spread"),),
        )
        answer, error = self.ask(GROUP, self._group_id, request)
        if not isinstance(answer, JoinGroupResponse):
            return False
        if error is not None:
            known = answer.member_id if error.name == "MEMBER_ID_REQUIRED" else ""
            self._forget()
            self._member_id = known
            return False
        self._member_id = answer.member_id
        self._joined = answer
        return True

    def _sync(self) -> bool:
        joined = self._joined
        assignments: tuple[SyncGroupRequestAssignment, ...] = ()
        if joined.leader == joined.member_id:
            members = [each.member_id for each in joined.members]
            assignments = tuple(
                SyncGroupRequestAssignment(member, ",".join(map(str, range(at, PARTITIONS, len(members)))).encode())
                for at, member in enumerate(members)
            )
        request = SyncGroupRequest(
            self._group_id, joined.generation_id, joined.member_id, None, "simulated", "spread", assignments
        )
        answer, error = self.ask(GROUP, self._group_id, request)
        if error is not None or not isinstance(answer, SyncGroupResponse):
            self._failed(error)
            return False
        if joined.generation_id < self._generation:
            self._groups.fail("GenerationsGrow", f"{self._member_id}: {self._generation}, {joined.generation_id}")
        self._generation = joined.generation_id
        self._owned = [int(each) for each in answer.assignment.decode().split(",") if each]
        self._groups.assigned(self._group_id, self._generation, self._member_id, self._owned)
        return True

    def _failed(self, error: object) -> None:
        if getattr(error, "name", "") in ("UNKNOWN_MEMBER_ID", "FENCED_INSTANCE_ID"):
            self._forget()

    def _read(self) -> None:
        """Heartbeats and commits, until the group calls, or it leaves, or dies."""
        for _ in range(self.random.randrange(1, 12)):
            request = HeartbeatRequest(self._group_id, self._generation, self._member_id)
            _, error = self.ask(GROUP, self._group_id, request)
            if error is not None or not self.goes_on:
                self._failed(error)
                return
            if self._owned and not self._commit_and_fetch(self.random.choice(self._owned)):
                return
            self.rest(20, 200)
        draw = self.random.random()
        if draw < 0.3:
            self.ask(GROUP, self._group_id, LeaveGroupRequest(self._group_id, (MemberIdentity(self._member_id),)))
        if draw < 0.5:
            self._forget()

    def _commit_and_fetch(self, partition: int) -> bool:
        answer, error = self.commit(partition, self._generation, self._member_id)
        if answer is None:
            self._forget()  # it may still arrive
            return False
        if error is not None:
            self._failed(error)
            return False
        self.fetch(self.random.randrange(PARTITIONS))
        return True


class FencedMember(CoordinatorClient):
    """A member of one generation, which commits after that."""

    def __init__(self, member: Member, groups: Groups, member_id: str, generation: int, owned: list[int]) -> None:
        super().__init__(member.sim, f"{member.name} fenced")
        self._asked = member._asked
        self._groups = groups
        self._group_id = member._group_id
        self._identity = generation, member_id
        self._owned = owned

    def spawn(self) -> None:
        """Wait, and commit."""
        delay_ms = self.random.randrange(20, FENCED_LATE_MS_MAX)
        self.sim.scheduler.spawn(self.name, f"client-{self.name}", self._commit, delay_ms)

    def _commit(self) -> None:
        history, (generation, _) = self._groups.of(self._group_id), self._identity
        if not self._owned or history.newest <= generation:
            return
        history.asked += 1
        partition, offset = self._owned[0], generation * COMMITS_MAX + history.asked
        topics = (OffsetCommitRequestTopic(TOPIC, (OffsetCommitRequestPartition(partition, offset),)),)
        request = OffsetCommitRequest(self._group_id, topics, *self._identity)
        answer, error = self.ask(GROUP, self._group_id, request, is_repeated=False)
        if answer is not None and error is None:
            newest = f"while {history.newest} is assigned"
            self._groups.fail("FencedMember", f"{self._group_id}-{partition}: {offset} of {self._identity} {newest}")
