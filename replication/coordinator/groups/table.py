"""What classic and modern groups of one shard share: the table of groups, timers, the builder of a decision. Pure.

A partition of `__consumer_offsets` holds classic groups (`replication.coordinator.groups.classic.group`) and modern
ones (`replication.coordinator.groups.modern.group`). A group id belongs to one protocol at a time: a group without
members may be replaced by one of the other protocol. `replication.coordinator.groups.shard` dispatches requests,
records and timers to the protocol that they belong to.

Source: Kafka's `Group` interface and the maps of `GroupMetadataManager`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from stratalog.replication.config import BrokerConfig
from stratalog.replication.coordinator.shard.metrics import CoordinatorCounts
from stratalog.replication.coordinator.shard.shard import Answered, CoordinatorRecord, Decision, size_bytes
from stratalog.replication.coordinator.shard.timers import ShardTimers
from stratalog.replication.requests.groups import DescribedGroup, ListedGroup, OffsetCommitRequestTopic
from stratalog.storage.clock import Ids
from stratalog.storage.errors import GroupIdNotFoundError, UnknownServerError
from stratalog.storage.records import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from stratalog.storage.topic_config import LogConfig
from stratalog.storage.transactions import NOT_VERIFIED

CLASSIC, CONSUMER = "classic", "consumer"
"""Types of groups, as ListGroups names them."""


class DecisionBuilder:
    """Collects the records and answers of a decision at `now_ms` (ms since 1970).

    A `producer_id` makes the records a batch of that producer's transaction; `verified`, `is_read` and `is_divisible`
    are `Decision`'s. `work`: the names that were compared for it.
    """

    def __init__(self, now_ms: int) -> None:
        self.now_ms = now_ms
        self.producer_id = NO_PRODUCER_ID
        self.producer_epoch = NO_PRODUCER_EPOCH
        self.verified = NOT_VERIFIED
        self.is_read = False
        self.is_divisible = False
        self.work = 0
        self.records: list[CoordinatorRecord] = []
        self.answers: list[Answered] = []

    def answer(self, token: int, response: object) -> None:
        """Answer the request of `token` with `response`, once the records are committed."""
        self.answers.append(Answered(token, response))

    def build(self) -> Decision:
        return Decision(
            tuple(self.records),
            tuple(self.answers),
            self.producer_id,
            self.producer_epoch,
            is_read=self.is_read,
            verified=self.verified,
            is_divisible=self.is_divisible,
        )


class TimerKey(NamedTuple):
    """`kind` is a word of the protocol that the timer belongs to."""

    kind: str
    group_id: str
    member_id: str = ""


class Group(Protocol):
    """A group of either protocol, as a shard needs it."""

    group_id: str

    @property
    def group_type(self) -> str:
        """CLASSIC or CONSUMER."""

    @property
    def state_name(self) -> str:
        """Kafka's word for its state, e.g. `Stable`."""

    @property
    def member_count(self) -> int: ...

    @property
    def is_empty(self) -> bool:
        """Whether it has no members: it may be deleted then, or replaced by a group of the other protocol."""

    def validate_offset_commit(
        self,
        member_id: str,
        group_instance_id: str | None,
        generation_id_or_member_epoch: int,
        is_transactional: bool,
        topics: Sequence[OffsetCommitRequestTopic] = (),
    ) -> None:
        """Raises the error that refuses an OffsetCommit or TxnOffsetCommit of that member for these topics."""

    def validate_offset_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Raises the error that refuses an OffsetFetch of that member; without a member it is always allowed."""

    def validate_offset_delete(self) -> None:
        """Raises NON_EMPTY_GROUP if the topics that members read are not known."""

    def validate_delete(self) -> None:
        """Raises NON_EMPTY_GROUP unless the group is empty."""

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether members read `topic`; then its offsets neither expire nor may be deleted."""

    def reads(self, topic: str) -> bool:
        """Whether members are known to read `topic`. Any thread may call it."""
        ...

    def retained_from_ms(self, commit_timestamp_ms: int) -> int | None:
        """The time from which the retention of an offset committed then counts; None: it does not expire now."""

    def tombstones(self) -> tuple[CoordinatorRecord, ...]:
        """The records that remove the group."""

    def listed(self) -> ListedGroup: ...

    def described(self) -> DescribedGroup:
        """DescribeGroups' answer; GROUP_ID_NOT_FOUND for a modern group, which has a request of its own."""


class GroupKind(Protocol):
    """The groups of one protocol in the dispatch of a shard.

    requests      handlers of (request, token, decision) by the request's class. A request that names a group with
                  members goes to the group's protocol, if that has a handler; else to the first one that has
    key_versions  of the records that it replays
    timer_kinds   kinds of its timers' keys
    """

    @property
    def requests(self) -> Mapping[type, Callable[[Any, int, DecisionBuilder], None]]: ...

    @property
    def group_type(self) -> str: ...

    @property
    def key_versions(self) -> frozenset[int]: ...

    @property
    def timer_kinds(self) -> frozenset[str]: ...

    def replay(self, record: CoordinatorRecord, timestamp_ms: int) -> None:
        """Fold a record of the log, or of a decision just made, which the group's state may show already."""

    def loaded(self, decision: DecisionBuilder) -> None:
        """The log was folded: start the sessions of the members."""

    def expire(self, key: TimerKey, decision: DecisionBuilder) -> None:
        """A timer is due; the group may be gone, or of the other protocol, by now."""

    def unload(self, now_ms: int) -> list[tuple[int, object]]:
        """The shard ends. (token, response without its error) of each request that waits."""


@dataclass(slots=True)
class GroupTable:
    """The groups of one shard by id, its timers and settings, the broker's counters, shared by both protocols."""

    config: BrokerConfig
    ids: Ids
    groups: dict[str, Group] = field(default_factory=dict)
    timers: ShardTimers[TimerKey] = field(default_factory=ShardTimers)
    counts: CoordinatorCounts = field(default_factory=CoordinatorCounts)
    record_bytes_max: Callable[[], int] = lambda: LogConfig().max_message_bytes
    """Size of the largest record that the log takes."""
    topic_ids: Callable[[], Mapping[str, str]] = dict
    """The ids of the cluster's topics, by name."""

    def group(self, group_id: str) -> Group:
        """The group of that id; raises GROUP_ID_NOT_FOUND."""
        found = self.groups.get(group_id)
        if found is None:
            raise GroupIdNotFoundError(f"Group {group_id} not found.")
        return found

    def fits(self, records: Iterable[CoordinatorRecord]) -> bool:
        """Whether the log takes these records as one batch."""
        return size_bytes(records) <= self.record_bytes_max()

    def check_fits(self, group_id: str, records: Sequence[CoordinatorRecord]) -> None:
        """Raises UNKNOWN_SERVER_ERROR for records that the log would refuse: to be asked before anything is changed, or
        the shard would be lost for all of its groups. Kafka's append fails with the same error."""
        if not self.fits(records):
            raise UnknownServerError(
                f"group {group_id}: {len(records)} records of about {size_bytes(records)} bytes > max.message.bytes "
                f"{self.record_bytes_max()} of the topic of committed offsets"
            )

    def remove_if_empty_of_other_type(self, group_id: str, group_type: str, decision: DecisionBuilder) -> None:
        """Make room for a group of `group_type`: an empty one of the other protocol goes, with tombstones."""
        found = self.groups.get(group_id)
        if found is not None and found.group_type != group_type and found.is_empty:
            decision.records.extend(found.tombstones())
            del self.groups[group_id]
