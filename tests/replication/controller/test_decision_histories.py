"""Whatever brokers do, in any order: no partition's history breaks promises 9 to 11.

`images.check_partition` holds after every commit; here random histories of all decisions run through it.
"""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from stratalog.replication.controller.brokers import (
    IsrChange,
    alter_partition,
    fence_brokers,
    online_partitions,
    register_broker,
    shut_down_broker,
)
from stratalog.replication.metadata.image import ClusterImage
from stratalog.replication.metadata.records import NO_LEADER
from tests.replication.images import broker_epochs_of, commit, image_of, partition, state

BROKERS = (1, 2, 3)
EVENTS = st.tuples(
    st.sampled_from(["kill", "restart", "rejoin", "stop", "change isr", "online"]),
    st.sets(st.sampled_from(BROKERS), min_size=1),
)


def happen(image: ClusterImage, event: str, brokers: set[int], unclean: bool, number: int) -> None:
    one = min(brokers)
    epoch = image.brokers[one].broker_epoch
    if event == "kill":
        epochs = {i: image.brokers[i].broker_epoch for i in brokers}
        commit(image, fence_brokers(image, epochs, lambda topic: unclean))
    elif event == "restart":
        commit(image, register_broker(image, one, f"again-{number}", f"/data/{one}"))
    elif event == "rejoin":
        same = image.brokers[one].registration.incarnation_id
        commit(image, register_broker(image, one, same, f"/data/{one}"))
    elif event == "stop" and image.is_current(one, epoch):
        commit(image, shut_down_broker(image, one, epoch))
    elif event == "change isr":
        change_isr(image, brokers)
    elif event == "online":
        commit(image, online_partitions(image, lambda topic: unclean))


def change_isr(image: ClusterImage, brokers: set[int]) -> None:
    now = state(image)
    if now.leader == NO_LEADER:
        return
    isr, epochs = tuple(brokers | {now.leader}), broker_epochs_of(image)
    change = IsrChange(image.identified(now.topic_partition), now.leader_epoch, now.partition_epoch, isr, epochs)
    commit(image, alter_partition(image, now.leader, epochs[now.leader], [change]))


@given(events=st.lists(EVENTS, max_size=25), unclean=st.booleans())
def test_every_history_keeps_the_invariants(events: list[tuple[str, set[int]]], unclean: bool) -> None:
    image = image_of(BROKERS, partition(BROKERS, 1, BROKERS))
    for number, (event, brokers) in enumerate(events):
        happen(image, event, brokers, unclean, number)
        now = state(image)
        assert now.leader == NO_LEADER or now.leader in image.live_brokers(), "a leader is live"
        if now.leader != NO_LEADER:
            assert set(now.isr) <= set(image.live_brokers()), "under a leader the ISR is live"
        assert unclean or now.unclean == 0


@given(events=st.lists(EVENTS, max_size=15))
def test_a_cluster_that_comes_back_whole_has_a_clean_leader_again(events: list[tuple[str, set[int]]]) -> None:
    image = image_of(BROKERS, partition(BROKERS, 1, BROKERS))
    for number, (event, brokers) in enumerate(events):
        happen(image, event, brokers, False, number)
    for i in BROKERS:
        commit(image, register_broker(image, i, f"final-{i}", f"/data/{i}"))
    commit(image, online_partitions(image))
    assert state(image).leader in BROKERS
    assert state(image) == replace(state(image), unclean=0)
