"""Many consumers of a process hear by one watcher of their own partitions, few of them watch by themselves."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import pytest

from stratalog.clients.consumer.consumer import Consumer
from stratalog.clients.consumer.shared_notifications import (
    ALONE_MAX,
    METADATA_REFRESH_MS,
    ConsumerNotifications,
    SharedNotifications,
)
from stratalog.replication.metadata.log import open_metadata
from stratalog.replication.stores import DeltaStores
from stratalog.server.view.cluster_view import ClusterView
from stratalog.storage.clock import RandomIds, SystemClock
from stratalog.storage.records import TopicPartition
from tests.clients.memory_cluster import MemoryCluster

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
PATIENCE_MS = 20_000


class Crowd:
    """Consumers of topic `t`, whose first wants partition 0 and whose others want partition 1."""

    def __init__(self) -> None:
        self.clock = SystemClock()
        self.cluster = MemoryCluster()
        self.cluster.create_topic("t", 2)
        self.views_made = 0
        self.shared = SharedNotifications(self.cluster.root, self.watchers_view)
        self.news: list[ConsumerNotifications] = []

    def view(self) -> ClusterView:
        return ClusterView(self.cluster, stores=self.cluster.stores)

    def watchers_view(self) -> ClusterView:
        self.views_made += 1
        return self.view()

    def join(self, count: int) -> None:
        for _ in range(count):
            joined = ConsumerNotifications(self.view(), self.shared)
            joined.watch([B if self.news else A])
            self.news.append(joined)

    def until(self, is_so: Callable[[], bool]) -> None:
        end_ms = self.clock.monotonic_ms() + PATIENCE_MS
        while not is_so():
            assert self.clock.monotonic_ms() < end_ms
            self.clock.sleep_ms(2)

    def move(self, partition: TopicPartition) -> None:
        """Its leader publishes something."""
        self.cluster.append(partition, b"x")
        self.cluster.publish(partition)

    def hear(self, news: ConsumerNotifications) -> None:
        """Wait until there is news, as a consumer's poll does."""
        end_ms = self.clock.monotonic_ms() + PATIENCE_MS
        while not news.poll():
            assert self.clock.monotonic_ms() < end_ms
            news.wait(1_000, 5)

    def settle(self) -> None:
        """Nothing is new to the watcher any more: its first look tells everybody, its second of what it found there."""
        self.until(lambda: self.shared.is_crowded)
        for news in self.news:
            news.poll()
        for _ in range(3):  # each is another look
            self.move(A)
            self.hear(self.news[0])
        for news in self.news:
            news.poll()


@pytest.fixture
def crowd() -> Iterator[Crowd]:
    made = Crowd()
    yield made
    for news in made.news:
        news.close()
    made.until(lambda: not made.shared.is_crowded)


def test_few_consumers_watch_by_themselves(crowd: Crowd) -> None:
    crowd.join(ALONE_MAX)
    (first, *_) = crowd.news
    assert [first.poll(), first.poll()] == [True, True], "it has to look each time"
    assert first.metadata_age_ms == METADATA_REFRESH_MS
    assert (crowd.shared.is_crowded, crowd.views_made) == (False, 0)


def test_in_a_crowd_each_hears_of_its_own_partitions_only(crowd: Crowd) -> None:
    crowd.join(ALONE_MAX + 2)
    crowd.settle()
    first, *others = crowd.news
    assert (crowd.views_made, first.metadata_age_ms) == (1, 0)
    assert not any(news.poll() for news in crowd.news)
    crowd.move(A)
    crowd.hear(first)
    assert not any(news.poll() for news in others)
    crowd.move(B)
    for news in others:
        crowd.hear(news)
    assert not first.poll()


def test_who_wants_other_partitions_hears_of_those_and_first_of_all_at_once(crowd: Crowd) -> None:
    crowd.join(ALONE_MAX + 1)
    crowd.settle()
    first, second, *_ = crowd.news
    second.watch([A])
    assert second.poll(), "what moved before it asked for it"
    crowd.move(A)
    crowd.hear(second)
    crowd.hear(first)
    second.poll()
    crowd.move(B)
    crowd.hear(crowd.news[2])
    assert not second.poll()


def test_everybody_hears_of_new_metadata_and_then_of_the_new_leader(crowd: Crowd) -> None:
    crowd.join(ALONE_MAX + 1)
    crowd.settle()
    crowd.cluster.follow(2, A)
    crowd.cluster.elect(A, 2)
    for news in crowd.news:
        crowd.hear(news)
    crowd.cluster.start_leader(A)
    crowd.move(A)
    crowd.hear(crowd.news[0])
    view = crowd.view()
    crowd.until(lambda: view.watermarks.of(A).high_watermark == crowd.cluster.log(2, A).log_end_offset)


def test_wake_ends_a_wait_without_news(crowd: Crowd) -> None:
    crowd.join(ALONE_MAX + 1)
    crowd.settle()
    (first, *_) = crowd.news
    ended = threading.Event()

    def sleep() -> None:
        first.wait(PATIENCE_MS, 5)
        ended.set()

    sleeper = threading.Thread(target=sleep)
    sleeper.start()
    first.wake()
    assert ended.wait(PATIENCE_MS / 2_000)
    sleeper.join()
    assert not first.poll()


def test_news_that_comes_between_take_and_wait_is_not_slept_over(crowd: Crowd) -> None:
    crowd.join(ALONE_MAX + 1)
    crowd.settle()
    (first, *_) = crowd.news
    assert not first.poll()
    first.notify()
    began_ms = crowd.clock.monotonic_ms()
    first.wait(PATIENCE_MS, 5)
    assert crowd.clock.monotonic_ms() - began_ms < PATIENCE_MS / 2
    assert first.poll()


def test_who_is_left_of_a_crowd_is_told_to_watch_alone(crowd: Crowd) -> None:
    crowd.join(ALONE_MAX + 1)
    crowd.settle()
    (first, *_) = crowd.news
    crowd.news.pop().close()
    crowd.hear(first)
    crowd.until(lambda: not crowd.shared.is_crowded)
    assert [first.poll(), first.poll()] == [True, True]
    crowd.join(1)
    crowd.settle()
    assert crowd.views_made == 2, "a new watcher for the next crowd"


def test_the_consumers_of_a_cluster_share_a_watcher_until_the_last_one_left() -> None:
    crowd = Crowd()
    made = [ConsumerNotifications.of_process(crowd.view(), crowd.watchers_view) for _ in range(ALONE_MAX)]
    assert crowd.views_made == 0
    made.append(ConsumerNotifications.of_process(crowd.view(), crowd.watchers_view))
    crowd.until(lambda: crowd.views_made == 1)
    for news in made:
        news.close()
    alone = ConsumerNotifications.of_process(crowd.view(), crowd.watchers_view)
    assert [alone.poll(), alone.poll()] == [True, True]
    alone.close()
    assert crowd.views_made == 1


def test_a_consumer_may_be_dropped_while_another_one_is_made(tmp_path: Path) -> None:
    """The collection that finds it may come within the lock of all consumers of the process."""

    class Collecting:
        @property
        def root(self) -> str:
            gc.collect()
            return str(tmp_path)

    open_metadata(DeltaStores(RandomIds()), str(tmp_path), SystemClock(), RandomIds()).create()
    dropped = [Consumer(str(tmp_path))]
    dropped.append(dropped)  # type: ignore[arg-type]
    del dropped
    view = cast(ClusterView, Collecting())
    making = threading.Thread(target=ConsumerNotifications.of_process, args=(view, lambda: view), daemon=True)
    making.start()
    making.join(60)
    assert not making.is_alive()
