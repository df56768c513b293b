"""What the metadata says of a broker: its own partitions, and on the controller all."""

from __future__ import annotations

import pytest

from stratalog.replication.metadata.image import ClusterImage
from stratalog.replication.metadata.records import CLUSTER_WIDE, NO_LEADER, ConfigRecord
from stratalog.replication.metrics import Histogram
from stratalog.server.metrics.of_image import image_metrics
from stratalog.server.metrics.of_partitions import ReadableOffsets, partition_metrics
from stratalog.storage.records import TopicPartition
from tests.replication.images import TOPIC, image_of, partition

MIN_ISR_2 = ConfigRecord(TOPIC, "min.insync.replicas", "2")


def gauges(image: ClusterImage, broker_id: int) -> dict[str, float | Histogram]:
    """The image's metrics that are not 0, by the last part of their names."""
    return {
        metric.name.rsplit("_", 1)[1]: value
        for metric in image_metrics(image, broker_id)
        for value in metric.values.values()
        if value
    }


@pytest.mark.parametrize("min_isr", [MIN_ISR_2, ConfigRecord(CLUSTER_WIDE, "min.insync.replicas", "2")])
def test_a_broker_tells_of_what_it_leads_and_the_controller_of_all(min_isr: ConfigRecord) -> None:
    image = image_of(
        (1, 2, 3),
        partition((1, 2, 3), 1, (1, 2, 3)),
        partition((1, 2, 3), 1, (1, 2), number=1),
        partition((1, 2, 3), 1, (1,), number=2),
        partition((2, 3), NO_LEADER, (3,), number=3),
        partition((2, 3), 2, (2,), number=4),
        fenced={3: False},
    )
    image = image.fold(min_isr)
    assert gauges(image, 1) == {
        "leadercount": 3,
        "partitioncount": 3,
        "underreplicatedpartitions": 2,
        "underminisrpartitioncount": 1,
        "atminisrpartitioncount": 1,
        "activecontrollercount": 1,
        "offlinepartitionscount": 1,
        "preferredreplicaimbalancecount": 1,
        "globaltopiccount": 1,
        "globalpartitioncount": 5,
        "activebrokercount": 2,
        "fencedbrokercount": 1,
    }
    assert gauges(image, 2) == {
        "leadercount": 1,
        "partitioncount": 5,
        "underreplicatedpartitions": 1,
        "underminisrpartitioncount": 1,
    }


def test_a_topic_with_fewer_replicas_than_min_insync_replicas_is_not_under_it() -> None:
    image = image_of((1, 2), partition((1,), 1, (1,)), partition((1, 2), 1, (1,), number=1))
    image = image.fold(ConfigRecord(CLUSTER_WIDE, "min.insync.replicas", "2"))
    found = gauges(image, 1)
    assert (found["underminisrpartitioncount"], found["atminisrpartitioncount"]) == (1, 1)


def by_partition(image: ClusterImage, broker_id: int) -> dict[str, dict[str, float]]:
    """The series of partitions that a broker shows, by the end of their names and their partition."""
    offsets = {TopicPartition(TOPIC, 0): ReadableOffsets(3, 9)}
    found: dict[str, dict[str, float]] = {}
    for metric in partition_metrics(image, broker_id, offsets if broker_id == 1 else {}):
        for labels, value in metric.values.items():
            if dict(labels).get("topic") == TOPIC and "partition" in dict(labels):
                assert not isinstance(value, Histogram)
                found.setdefault(metric.name.removeprefix("kafka_"), {})[dict(labels)["partition"]] = value
    return found


def test_one_broker_shows_a_partitions_series() -> None:
    """Dashboards sum over brokers: the leader shows them, the controller those of a partition without a leader."""
    image = image_of(
        (1, 2, 3),
        partition((1, 2, 3), 1, (1, 2)),
        partition((2, 3, 1), 2, (2,), number=1),
        partition((3, 2), NO_LEADER, (3,), number=2),
    ).fold(MIN_ISR_2)
    one, two, three = (by_partition(image, broker_id) for broker_id in (1, 2, 3))
    assert image.controller_id == 1
    assert one["cluster_partition_atminisr"] == {"0": True}
    assert one["cluster_partition_replicascount"] == {"0": 3}
    assert two["cluster_partition_underminisr"] == {"1": True}
    assert one["topic_partition_leader"] == {"0": 1, "2": NO_LEADER}
    assert one["topic_partition_under_replicated_partition"] == {"0": True, "2": True}
    assert two["topic_partition_in_sync_replica"] == {"1": 1}
    assert two["topic_partition_leader_is_preferred"] == {"1": True}
    assert (one["topic_partition_current_offset"], one["topic_partition_oldest_offset"]) == ({"0": 9}, {"0": 3})
    assert three == {}


def test_the_controller_alone_shows_topics_and_brokers() -> None:
    image = image_of((1, 2), partition((1, 2), 1, (1, 2)), partition((2, 1), 2, (1, 2), number=1))
    own = {metric.name: dict(metric.values) for metric in partition_metrics(image, 1, {})}
    assert own["kafka_topic_partitions"] == {(("topic", TOPIC),): 2}
    assert own["kafka_brokers"] == {(): 2}
    assert len(own["kafka_broker_info"]) == 2
    assert "kafka_brokers" not in {metric.name for metric in partition_metrics(image, 2, {})}
