"""How fast followers that are out of sync copy: Kafka's replication quotas (KIP-73). Pure.

Two rates for each broker, in bytes/s, are settings in the metadata log, of all brokers or of one: what it may copy as a
follower, and what may be copied from it as a leader. Two topic configs list the replicas. Kafka's leaders throttle what
is fetched from them; here a follower copies by itself, so it keeps to both rates, the leader's for each leader that it
copies from. Replicas in the ISR are never throttled. Source: `ReplicationQuotaManager`, `ReplicaManager`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from stratalog.replication import cadence
from stratalog.replication.follower.plan import Allowance
from stratalog.replication.metadata.configs import FOLLOWER_RATE, LEADER_RATE
from stratalog.replication.metadata.image import ClusterImage, Result
from stratalog.replication.metadata.records import CLUSTER_WIDE, DYNAMIC_DEFAULT, ConfigRecord
from stratalog.storage.errors import InvalidConfigError
from stratalog.storage.records import TopicPartition

LEADER_REPLICAS = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS = "follower.replication.throttled.replicas"
ALL_REPLICAS = "*"


@dataclass(slots=True)
class TokenBucket:
    """`rate` bytes are added each second, up to one second's worth; consumption may leave a debt.

    At 1,000 bytes/s, full: 3,000 bytes are consumed at once, and for 2,001 ms nothing more.
    """

    rate: int
    allowance: float
    updated_ms: int

    def delay_ms(self, now_ms: int) -> int:
        """How long until something may be consumed; 0: now."""
        gained = (now_ms - self.updated_ms) * self.rate / 1_000
        self.allowance, self.updated_ms = min(float(self.rate), self.allowance + gained), now_ms
        return 0 if self.allowance > 0 else int(-self.allowance * 1_000 / self.rate) + 1

    def consume(self, size_bytes: int) -> None:
        self.allowance -= size_bytes


class _Limit(NamedTuple):
    """One rate that holds for a copy, of the follower itself (`source` -1) or of the leader `source`."""

    source: int
    rate: int


class ReplicationQuota:
    """What one fetch task of follower `broker_id` may copy; `tasks` of them share the broker's rates."""

    def __init__(self, broker_id: int, tasks: int) -> None:
        self._broker_id = broker_id
        self._tasks = tasks
        self._buckets: dict[int, TokenBucket] = {}

    def delay_ms(self, image: ClusterImage, topic_partition: TopicPartition, now_ms: int) -> int:
        """How long to wait before this partition is checked again, a second at most, as rates change; 0: copy now."""
        limits = self._limits(image, topic_partition)
        if not limits:
            return 0
        owed_ms = max(self._bucket(limit, now_ms).delay_ms(now_ms) for limit in limits)
        return min(owed_ms, cadence.THROTTLE_RECHECK.ms)

    def max_bytes(self, image: ClusterImage, topic_partition: TopicPartition, wanted_bytes: int) -> int:
        """The aim for one copy: no more than a second's worth."""
        limits = self._limits(image, topic_partition)
        return min([wanted_bytes, *(limit.rate for limit in limits)]) if limits else wanted_bytes

    def allowance(
        self, image: ClusterImage, topic_partition: TopicPartition, wanted_bytes: int, now_ms: int, *, is_start: bool
    ) -> Allowance:
        """What this partition may copy now. `is_start`: it is to be started, which copies nothing yet."""
        delay_ms = 0 if is_start else self.delay_ms(image, topic_partition, now_ms)
        return Allowance(0, delay_ms) if delay_ms else Allowance(self.max_bytes(image, topic_partition, wanted_bytes))

    def consume(self, image: ClusterImage, topic_partition: TopicPartition, size_bytes: int, now_ms: int) -> None:
        """So much was copied."""
        for limit in self._limits(image, topic_partition):
            self._bucket(limit, now_ms).consume(size_bytes)

    def _bucket(self, limit: _Limit, now_ms: int) -> TokenBucket:
        bucket = self._buckets.get(limit.source)
        if bucket is None or bucket.rate != limit.rate:
            bucket = self._buckets[limit.source] = TokenBucket(limit.rate, float(limit.rate), now_ms)
        return bucket

    def _limits(self, image: ClusterImage, topic_partition: TopicPartition) -> list[_Limit]:
        configs = image.topic_config(topic_partition.topic)
        limits: list[_Limit] = []
        if FOLLOWER_REPLICAS not in configs and LEADER_REPLICAS not in configs:
            return limits
        state = image.partitions.get(topic_partition)
        if state is None or self._broker_id in state.isr:
            return limits
        for source, broker_id, replicas, rate in (
            (-1, self._broker_id, FOLLOWER_REPLICAS, FOLLOWER_RATE),
            (state.leader, state.leader, LEADER_REPLICAS, LEADER_RATE),
        ):
            bytes_per_s = image.broker_config(broker_id, rate, "")
            if bytes_per_s and is_listed(configs.get(replicas, ""), topic_partition.partition, broker_id):
                limits.append(_Limit(source, max(1, int(bytes_per_s) // self._tasks)))
        return limits


def is_listed(replicas: str, partition: int, broker_id: int) -> bool:
    """Whether a list `partition:broker,…` names this replica; `*` names all.

    >>> is_listed("0:1,1:2", 1, 2), is_listed("0:1", 1, 1), is_listed("*", 7, 7)
    (True, False, True)
    """
    return replicas == ALL_REPLICAS or f"{partition}:{broker_id}" in replicas.replace(" ", "").split(",")


@dataclass(frozen=True, slots=True)
class Move:
    """Where a partition's replicas are (`sources`) and where new ones are made (`destinations`)."""

    sources: frozenset[int]
    destinations: frozenset[int]


def throttled_replicas(moves: Mapping[TopicPartition, Move], *, of_leaders: bool) -> dict[str, str]:
    """The topic config for these moves, by topic: every source may come to lead, every destination follows.

    Partition 0 from {1,2} to {3}: `0:1,0:2` of leaders, `0:3` of followers.
    Source: `ReassignPartitionsCommand.calculateLeaderThrottles`, `calculateFollowerThrottles`.
    """
    listed: dict[str, set[str]] = {}
    for named, move in moves.items():
        brokers = move.sources if of_leaders else move.destinations - move.sources
        listed.setdefault(named.topic, set()).update(f"{named.partition}:{broker}" for broker in brokers)
    return {topic: ",".join(sorted(replicas)) for topic, replicas in listed.items()}


def set_throttle(image: ClusterImage, moves: Mapping[TopicPartition, Move], bytes_per_s: int) -> Result[None]:
    """Throttle the copies of these moves to `bytes_per_s` of each broker, in one commit. Raises InvalidConfigError."""
    if bytes_per_s <= 0:
        raise InvalidConfigError(
            f"Invalid value {bytes_per_s} for configuration {FOLLOWER_RATE}: Value must be at least 1"
        )
    wanted: dict[tuple[str, str], str | None] = {
        (DYNAMIC_DEFAULT, name): str(bytes_per_s) for name in (LEADER_RATE, FOLLOWER_RATE)
    }
    for name, of_leaders in ((LEADER_REPLICAS, True), (FOLLOWER_REPLICAS, False)):
        listed = throttled_replicas(moves, of_leaders=of_leaders)
        wanted |= {(topic, name): replicas for topic, replicas in listed.items()}
    return _altered(image, wanted)


def clear_throttles(image: ClusterImage, topics: Collection[str]) -> Result[None]:
    """Throttle nothing any more: remove the rates, and these topics' lists."""
    places = (CLUSTER_WIDE, DYNAMIC_DEFAULT)  # the first one is of earlier builds
    wanted: dict[tuple[str, str], str | None] = {
        (place, name): None for place in places for name in (LEADER_RATE, FOLLOWER_RATE)
    }
    wanted |= {(topic, name): None for topic in topics for name in (LEADER_REPLICAS, FOLLOWER_REPLICAS)}
    return _altered(image, wanted)


def _altered(image: ClusterImage, wanted: Mapping[tuple[str, str], str | None]) -> Result[None]:
    changed = (
        ConfigRecord(topic, name, value)
        for (topic, name), value in sorted(wanted.items())
        if (topic in (CLUSTER_WIDE, DYNAMIC_DEFAULT) or topic in image.topic_ids)
        and image.topic_overrides(topic).get(name) != value
    )
    return Result(tuple(changed), None)
