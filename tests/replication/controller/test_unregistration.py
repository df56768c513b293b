"""A broker that was stopped for good is forgotten; one that lives, or that holds replicas, is not."""

from __future__ import annotations

import pytest

from stratalog.replication.controller.brokers import register_broker
from stratalog.replication.controller.topic_deletion import topic_deletions
from stratalog.replication.controller.unregistration import unregister_broker
from stratalog.replication.metadata.image import ClusterImage
from stratalog.replication.metadata.records import RemoveTopicRecord, TopicDeletionRecord
from stratalog.storage.errors import BrokerIdNotRegisteredError, InvalidRequestError
from tests.replication.images import TOPIC, commit, image_of, partition


def cluster_of_three() -> ClusterImage:
    """Broker 3 has been stopped."""
    return image_of((1, 2, 3), partition((1, 2), 1, (1, 2)), fenced={3: True})


def test_a_stopped_broker_without_replicas_is_forgotten() -> None:
    image = cluster_of_three()
    commit(image, unregister_broker(image, 3))
    assert sorted(image.brokers) == [1, 2]
    with pytest.raises(BrokerIdNotRegisteredError, match="Broker ID 3 is not currently registered"):
        unregister_broker(image, 3)


def test_its_epoch_is_not_used_again() -> None:
    """A process of it that slept would else be taken for the new one."""
    image = cluster_of_three()
    commit(image, unregister_broker(image, 3))
    assert commit(image, register_broker(image, 3, "run-again", "/data/3")) == 14


def test_a_live_broker_is_not_forgotten() -> None:
    image = image_of((1, 2))
    with pytest.raises(InvalidRequestError, match="broker 2 is live under broker epoch 12: stop it"):
        unregister_broker(image, 2)


def test_a_broker_with_replicas_is_not_forgotten() -> None:
    image = image_of((1, 2), *(partition((1, 2), 1, (1,), number=each) for each in range(7)), fenced={2: False})
    with pytest.raises(InvalidRequestError, match=r"replicas of 7 partitions \(orders-0, .*orders-4, …\): reassign"):
        unregister_broker(image, 2)


def test_deletions_of_topics_do_not_wait_for_it() -> None:
    image = image_of((1, 2, 3), partition((1, 3), 1, (1,)), fenced={3: False})
    for record in RemoveTopicRecord(TOPIC, "id-orders"), TopicDeletionRecord(TOPIC, "id-orders", 1, (1, 3)):
        image = image.fold(record)
    commit(image, unregister_broker(image, 3))
    assert image.deletions["id-orders"].brokers == (1,)
    assert len(topic_deletions(image)) == 1
