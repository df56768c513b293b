"""Copies of throttled replicas keep to bytes per second (KIP-73)."""

from __future__ import annotations

import pytest

from stratalog.replication import cadence
from stratalog.replication.follower.quota import (
    Move,
    ReplicationQuota,
    TokenBucket,
    clear_throttles,
    set_throttle,
    throttled_replicas,
)
from stratalog.replication.metadata.image import ClusterImage
from stratalog.replication.metadata.records import CLUSTER_WIDE, DYNAMIC_DEFAULT, ConfigRecord
from stratalog.storage.errors import InvalidConfigError
from stratalog.storage.records import TopicPartition
from tests.replication.images import TOPIC, commit, image_of, partition

TP = TopicPartition(TOPIC, 0)
MOVE = {TP: Move(frozenset({1, 2}), frozenset({3}))}


def moving(isr: tuple[int, ...] = (1, 2)) -> ClusterImage:
    """Broker 3 is to follow broker 1."""
    return image_of([1, 2, 3], partition((1, 2, 3), 1, isr))


def test_what_a_bucket_gave_beyond_its_rate_is_a_debt_that_time_pays() -> None:
    bucket = TokenBucket(1_000, 1_000, 0)
    assert bucket.delay_ms(0) == 0
    bucket.consume(3_000)
    assert bucket.delay_ms(0) == 2_001
    assert bucket.delay_ms(1_500) == 501
    assert bucket.delay_ms(2_001) == 0
    assert bucket.delay_ms(60_000) == 0
    bucket.consume(1_001)
    assert bucket.delay_ms(60_000) == 2, "no more than a second's worth was saved"


def test_a_second_of_a_long_copy_takes_a_seconds_bytes() -> None:
    image = moving()
    commit(image, set_throttle(image, MOVE, 10_000))
    quota = ReplicationQuota(3, tasks=1)
    now_ms = copied = 0
    while now_ms < 20_000:
        delay_ms = quota.delay_ms(image, TP, now_ms)
        if delay_ms:
            now_ms += delay_ms
            continue
        size = quota.max_bytes(image, TP, 1 << 20) - 1_000
        quota.consume(image, TP, size, now_ms)
        copied += size
    assert 200_000 <= copied <= 220_000, "a second's worth at the begin, then 10,000 bytes a second"


@pytest.mark.parametrize(
    ("broker", "isr", "configs", "held_back"),
    [
        (3, (1, 2), {"follower": "0:3", "leader": ""}, True),
        (3, (1, 2), {"follower": "*", "leader": ""}, True),
        (3, (1, 2), {"follower": "", "leader": "0:1"}, True),  # what is fetched from broker 1
        (3, (1, 2), {"follower": "0:2", "leader": "0:2"}, False),
        (3, (1, 2), {"follower": "1:3", "leader": ""}, False),
        (3, (1, 2, 3), {"follower": "*", "leader": "*"}, False),  # in sync: an acknowledgement waits for it
        (3, (1, 2), {}, False),
    ],
)
def test_which_copies_are_throttled(
    broker: int, isr: tuple[int, ...], configs: dict[str, str], held_back: bool
) -> None:
    image = moving(isr)
    for side in ("leader", "follower"):
        image = image.fold(ConfigRecord(CLUSTER_WIDE, f"{side}.replication.throttled.rate", "1000"))
    for side, replicas in configs.items():
        image = image.fold(ConfigRecord(TOPIC, f"{side}.replication.throttled.replicas", replicas))
    quota = ReplicationQuota(broker, tasks=1)
    quota.consume(image, TP, 5_000, 0)
    assert (quota.delay_ms(image, TP, 0) > 0) == held_back
    assert (quota.max_bytes(image, TP, 1 << 20) == 1_000) == held_back


def test_without_a_rate_no_copy_is_throttled_and_fetchers_share_one() -> None:
    image = moving()
    image = image.fold(ConfigRecord(TOPIC, "follower.replication.throttled.replicas", "*"))
    quota = ReplicationQuota(3, tasks=4)
    quota.consume(image, TP, 1 << 40, 0)
    assert quota.delay_ms(image, TP, 0) == 0
    image = image.fold(ConfigRecord(CLUSTER_WIDE, "follower.replication.throttled.rate", "1000"))
    quota.consume(image, TP, 350, 0)
    assert quota.delay_ms(image, TP, 0) == 401, "250 bytes/s for this task; it owes 100"


def test_a_changed_rate_is_applied() -> None:
    image = moving()
    commit(image, set_throttle(image, MOVE, 1_000))
    quota = ReplicationQuota(3, tasks=1)
    quota.consume(image, TP, 1_000_000, 0)
    assert quota.delay_ms(image, TP, 0) == cadence.THROTTLE_RECHECK.ms
    commit(image, set_throttle(image, MOVE, 1 << 30))
    assert quota.delay_ms(image, TP, 0) == 0


def test_a_throttle_names_sources_for_leaders_and_destinations_for_followers() -> None:
    moves = {**MOVE, TopicPartition(TOPIC, 1): Move(frozenset({2, 10}), frozenset({2, 3}))}
    assert throttled_replicas(moves, of_leaders=True) == {TOPIC: "0:1,0:2,1:10,1:2"}
    assert throttled_replicas(moves, of_leaders=False) == {TOPIC: "0:3,1:3"}


def test_a_throttle_is_set_and_cleared_in_one_commit_each() -> None:
    image = moving()
    unknown = {TopicPartition("none", 0): Move(frozenset({1}), frozenset({2}))}
    commit(image, set_throttle(image, {**MOVE, **unknown}, 5_000))
    assert image.topic_config(TOPIC)["leader.replication.throttled.replicas"] == "0:1,0:2"
    assert image.cluster_config("follower.replication.throttled.rate", "") == "5000"
    assert "none" not in image.configs
    assert set_throttle(image, MOVE, 5_000).records == ()
    commit(image, clear_throttles(image, [TOPIC, "none"]))
    assert (image.topic_config(TOPIC), image.configs.get(DYNAMIC_DEFAULT, {})) == ({}, {})
    with pytest.raises(InvalidConfigError, match="Invalid value 0 for configuration follower"):
        set_throttle(image, MOVE, 0)
