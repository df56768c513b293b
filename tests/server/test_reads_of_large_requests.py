"""A request reads metadata and progress a few times, not once for each element: each read waits for a disk or a bucket,
and takes the interpreter from the broker's loop."""

from __future__ import annotations

from collections import Counter

import pytest

from stratalog.replication.metadata.image import Result
from stratalog.replication.metadata.records import TopicRecord
from stratalog.server.view.cluster_view import ClusterView
from stratalog.server.view.shared_read import SharedRead, one_reading
from stratalog.storage.errors import StoreUnavailableError
from stratalog.wire.api_keys import ApiKey
from stratalog.wire.messages.schema import request_type
from tests.clients.kafka_client import ANSWER_S, KafkaClient
from tests.clients.memory_cluster import MemoryCluster
from tests.lab.real.fuzz.bad_frames import TOPICS
from tests.lab.real.fuzz.expensive_frames import ExpensiveFrames, arrays_of

ELEMENTS, READS_MAX = 500, 50
"""Of the array that is grown, and of one place by one request."""
BY_THE_MEMORY_BROKER = {ApiKey.WRITE_TXN_MARKERS}
"""It reads metadata for each append of these tests."""


@pytest.fixture
def cluster() -> MemoryCluster:
    made = MemoryCluster()
    for topic in TOPICS:
        made.create_topic(topic, 20)
    return made


@pytest.mark.parametrize("is_same", [True, False])
def test_no_request_reads_once_for_each_of_its_elements(cluster: MemoryCluster, is_same: bool) -> None:
    accesses: list[tuple[str, str, str]] = []
    for disk in cluster.stores.disks.values():
        disk.access = lambda *access: accesses.append(access)
    with KafkaClient(cluster, stores=cluster.stores) as client:
        frames = ExpensiveFrames(1, {api.key: [api.versions[-1]] for api in client.handlers[1].apis})
        found = {}
        for key, (version,) in frames.served:
            for field in arrays_of(request_type(key, version)):
                frame = frames.grown(key, version, field, ELEMENTS, is_same=is_same)
                accesses.clear()
                assert client.sent(frame, key, version).is_there.wait(ANSWER_S)
                ((place, count),) = Counter(accesses).most_common(1) or ((None, 0),)
                if count > READS_MAX and key not in BY_THE_MEMORY_BROKER:
                    found[key, field.name] = place, count
    assert found == {}


def test_a_block_reads_once_and_again_after_a_change() -> None:
    cluster = MemoryCluster()
    view = ClusterView(cluster, stores=cluster.stores)
    with one_reading():
        view.refresh()
        cluster.commit(TopicRecord("later", "1" * 32))
        view.refresh()
        assert "later" not in view.image.topic_ids
        view.propose(lambda image: Result((), None))
        cluster.commit(TopicRecord("last", "2" * 32))
        view.refresh()
        assert {"later", "last"} <= set(view.image.topic_ids)
    cluster.commit(TopicRecord("behind", "3" * 32))
    view.refresh()
    assert "behind" in view.image.topic_ids


def test_a_block_within_another_reads_for_itself() -> None:
    made: list[int] = []
    read = SharedRead(lambda: made.append(1))
    with one_reading():
        read.run()
        with one_reading():
            read.run()
            read.run()
        read.run()
    assert len(made) == 2


def test_a_read_that_failed_is_made_again_within_a_block() -> None:
    outcomes = iter([StoreUnavailableError("away"), None])

    def fails_once() -> None:
        if (error := next(outcomes)) is not None:
            raise error

    read = SharedRead(fails_once)
    with one_reading():
        with pytest.raises(StoreUnavailableError):
            read.run()
        read.run()
        assert next(outcomes, "none left") == "none left"
