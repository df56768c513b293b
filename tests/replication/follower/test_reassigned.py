"""A fetch session while replicas come and go: it keeps to the throttle, and makes no table that is not its own."""

from __future__ import annotations

from dataclasses import replace

from stratalog.replication.follower.quota import FOLLOWER_RATE, FOLLOWER_REPLICAS
from stratalog.replication.metadata.records import CLUSTER_WIDE, ConfigRecord, PartitionRecord
from stratalog.storage.records import TopicPartition
from tests.replication.following import Following
from tests.replication.memory_stores import commit, led_by
from tests.storage.logs import values, write

WORDS = [f"w{number}" for number in range(40)]


def throttle(following: Following, bytes_per_s: int, replicas: str) -> None:
    commit(
        following.metadata,
        ConfigRecord(CLUSTER_WIDE, FOLLOWER_RATE, str(bytes_per_s)),
        ConfigRecord("t", FOLLOWER_REPLICAS, replicas),
    )


def out_of_sync(partition: int = 0) -> PartitionRecord:
    """Broker 1 leads alone; broker 2 is being added."""
    return replace(led_by(1, partition=partition, epoch=0), isr=(1,), adding=(2,), partition_epoch=1)


def copied(following: Following, partition: int = 0) -> int:
    return len(values(following.log(2, partition)).split())


def test_a_follower_that_is_being_added_copies_so_many_bytes_a_second() -> None:
    following = Following(partitions=2)
    for partition in (0, 1):
        commit(following.metadata, out_of_sync(partition))
        write(following.log(1, partition), *WORDS)
    size = following.log(1).files[0].file.size_bytes
    throttle(following, 4 * size, "0:2")
    session = following.session("s")
    following.turn(session, ms=2_000)
    assert 8 <= copied(following) <= 14, "4 files a second, after those of the first second"
    assert copied(following, partition=1) == len(WORDS), "not in the list"
    following.turn(session, ms=10_000)
    assert copied(following) == len(WORDS)


def test_a_follower_in_sync_is_not_throttled() -> None:
    following = Following()
    throttle(following, 1, "*")
    write(following.log(1), *WORDS)
    following.turn(following.session("s"), ms=2_000)
    assert copied(following) == len(WORDS)


def test_a_copy_continues_once_its_throttle_is_removed() -> None:
    following = Following()
    commit(following.metadata, out_of_sync())
    write(following.log(1), *WORDS)
    throttle(following, 1, "*")
    session = following.session("s")
    following.turn(session, ms=2_000)
    assert copied(following) < 5
    commit(following.metadata, ConfigRecord("t", FOLLOWER_REPLICAS, None))
    following.turn(session, ms=2_000)
    assert copied(following) == len(WORDS), "what is owed does not count any more"


def test_a_replica_that_is_not_assigned_any_more_is_followed_no_more_and_not_made_again() -> None:
    following = Following()
    write(following.log(1), "a")
    session = following.session("s")
    following.turn(session)
    left = replace(led_by(1, epoch=1), replicas=(1,), isr=(1,))
    commit(following.metadata, left)
    following.leads(left)
    following.stores.table("broker-2", TopicPartition("t", 0)).drop()
    following.turn(session)
    assert session.followed.replicas == {}
    assert TopicPartition("t", 0) not in following.stores.replicas("broker-2")
