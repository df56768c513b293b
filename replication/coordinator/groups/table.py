"""What the kinds of groups in one shard share: the table of groups, timers, and a decision while it is made. Pure.

A partition of `__consumer_offsets` holds classic groups (`replication.coordinator.groups.classic_group`) and consumer
groups of KIP-848, and a group id belongs to one kind at a time: a group without members may be replaced by one of the
other kind. `replication.coordinator.groups.shard` gives each request, record and timer to the kind that it is of.

Source: Kafka's `Group` interface and the maps of `GroupMetadataManager`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from stratalog.replication.config import BrokerConfig
from stratalog.replication.coordinator.shard.metrics import CoordinatorCounts
from stratalog.replication.coordinator.shard.shard import Answered, CoordinatorRecord, Decision
from stratalog.replication.coordinator.shard.timers import ShardTimers
from stratalog.replication.requests.groups import DescribedGroup, ListedGroup
from stratalog.storage.clock import Ids
from stratalog.storage.errors import GroupIdNotFoundError
from stratalog.storage.records import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

CLASSIC, CONSUMER = "classic", "consumer"
"""Types of groups, as ListGroups names them."""


class Draft:
    """A decision while it is made: what happens at `now_ms` (ms since 1970), and what comes of it so far.

    A `producer_id` makes the records a batch of that producer's transaction; `verified_offset` and `is_read` are
    `Decision`'s.
    """

    def __init__(self, now_ms: int) -> None:
        self.now_ms = now_ms
        self.producer_id = NO_PRODUCER_ID
        self.producer_epoch = NO_PRODUCER_EPOCH
        self.verified_offset = -1
        self.is_read = False
        self.records: list[CoordinatorRecord] = []
        self.answers: list[Answered] = []

    def answer(self, token: int, response: object) -> None:
        """Tell `response` to whoever waits with `token`, once the records are committed."""
        self.answers.append(Answered(token, response))

    def decision(self) -> Decision:
        producer = self.producer_id, self.producer_epoch
        return Decision(
            tuple(self.records),
            tuple(self.answers),
            *producer,
            is_read=self.is_read,
            verified_offset=self.verified_offset,
        )


class TimerKey(NamedTuple):
    """`kind` tells whose timer it is: each kind of group has its own words."""

    kind: str
    group_id: str
    member_id: str = ""


class Group(Protocol):
    """What a shard asks of a group whatever its kind."""

    group_id: str

    @property
    def group_type(self) -> str:
        """CLASSIC or CONSUMER."""
        ...

    @property
    def state_name(self) -> str:
        """Kafka's word for its state, e.g. `Stable`."""
        ...

    @property
    def is_empty(self) -> bool:
        """Whether it has no members: it may be deleted then, or replaced by a group of another kind."""
        ...

    def validate_offset_commit(
        self, member_id: str, group_instance_id: str | None, generation_id_or_member_epoch: int, is_transactional: bool
    ) -> None:
        """Raises what an OffsetCommit or TxnOffsetCommit of that member is refused with."""
        ...

    def validate_offset_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Raises what an OffsetFetch of that member is refused with; without a member it is always allowed."""
        ...

    def validate_offset_delete(self) -> None:
        """Raises NON_EMPTY_GROUP where offsets cannot be deleted, as it is not known what the members read."""
        ...

    def validate_delete(self) -> None:
        """Raises NON_EMPTY_GROUP unless the group is empty."""
        ...

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether members read `topic`; then its offsets neither expire nor may be deleted."""
        ...

    def retained_from_ms(self, commit_timestamp_ms: int) -> int | None:
        """Since when the retention of an offset counts that was committed then; None: it does not expire now."""
        ...

    def tombstones(self) -> tuple[CoordinatorRecord, ...]:
        """The records that remove the group."""
        ...

    def listed(self) -> ListedGroup: ...

    def described(self) -> DescribedGroup:
        """DescribeGroups' answer; GROUP_ID_NOT_FOUND for a group of KIP-848, which has a request of its own."""
        ...


class GroupKind(Protocol):
    """One kind of group in the dispatch of a shard.

    requests      by class: handlers of (request, token, draft). A request that names a group with members goes to the
                  kind that the group is of, if that has a handler; else to the first kind that has one
    key_versions  of the records that this kind replays
    timer_kinds   first words of its timers' keys
    """

    @property
    def requests(self) -> Mapping[type, Callable[[Any, int, Draft], None]]: ...

    @property
    def group_type(self) -> str: ...

    @property
    def key_versions(self) -> frozenset[int]: ...

    @property
    def timer_kinds(self) -> frozenset[str]: ...

    def replay(self, record: CoordinatorRecord, timestamp_ms: int) -> None:
        """Fold a record in: one of the log, or an own one right after its decision, which the group's state already
        shows or is going to show by this."""
        ...

    def loaded(self, draft: Draft) -> None:
        """The log was folded: start the sessions of this kind's members."""
        ...

    def expire(self, key: TimerKey, draft: Draft) -> None:
        """A timer of this kind is due; the group may be gone, or of another kind, by now."""
        ...

    def unload(self, now_ms: int) -> list[tuple[int, object]]:
        """The shard is given up. (token, response without its error) of each request that waits."""
        ...


@dataclass(slots=True)
class GroupTable:
    """The groups of one shard by id, its timers and settings, the broker's counters, shared by the kinds."""

    config: BrokerConfig
    ids: Ids
    groups: dict[str, Group] = field(default_factory=dict)
    timers: ShardTimers[TimerKey] = field(default_factory=ShardTimers)
    counts: CoordinatorCounts = field(default_factory=CoordinatorCounts)

    def group(self, group_id: str) -> Group:
        """The group of that id; raises GROUP_ID_NOT_FOUND."""
        found = self.groups.get(group_id)
        if found is None:
            raise GroupIdNotFoundError(f"Group {group_id} not found.")
        return found

    def remove_if_empty_of_other_kind(self, group_id: str, group_type: str, draft: Draft) -> None:
        """Make room for a group of `group_type`: an empty one of another kind goes, with tombstones."""
        found = self.groups.get(group_id)
        if found is not None and found.group_type != group_type and found.is_empty:
            draft.records.extend(found.tombstones())
            del self.groups[group_id]
