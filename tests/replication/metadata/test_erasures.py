"""A request to erase is a record of the metadata: every partition sees its part of it."""

from __future__ import annotations

import pytest

from stratalog.replication.metadata.erasures import erases_of, request_erase
from stratalog.replication.metadata.records import RemoveTopicRecord, TopicRecord, record_from_json, record_to_json
from stratalog.storage.errors import InvalidRequestError, UnknownTopicOrPartitionError
from stratalog.storage.log.leader_epochs import UNDEFINED_EPOCH
from stratalog.storage.records import TopicPartition
from stratalog.storage.transactions import OffsetAndEpoch
from tests.replication.images import TOPIC, GrowingImage, image_of, partition

BOB = '{"key": {"equals": "bob"}}'


def two_partitions() -> GrowingImage:
    return image_of([1, 2], partition((1, 2), 1, (1, 2)), partition((2, 1), 2, (1, 2), number=1))


def ask(image: GrowingImage, request_id: str, *end_offsets: int, predicate: str = BOB) -> int:
    ends = [OffsetAndEpoch(end_offset, 3 + partition) for partition, end_offset in enumerate(end_offsets)]
    result = request_erase(image, TOPIC, image.topic_ids[TOPIC], predicate, ends, request_id)
    image.becomes(image.fold(*(record_from_json(record_to_json(record)[1]) for record in result.records)))
    return result.response.erase_id


def test_ids_count_up_and_a_repeated_request_is_the_first_one() -> None:
    image = two_partitions()
    assert [ask(image, "x", 5, 7), ask(image, "y", 6, 7), ask(image, "x", 9, 9)] == [1, 2, 1]
    assert image.erases[TOPIC][1].end_offsets == (5, 7)


def test_each_partition_sees_its_end_offset() -> None:
    image = two_partitions()
    ask(image, "x", 5, 7)
    ask(image, "y", 6, 8, predicate='{"value":{"is_null":true}}')
    asked = [
        [(each.erase_id, each.end_offset, each.leader_epoch) for each in erases_of(image, TopicPartition(TOPIC, n))]
        for n in range(3)
    ]
    assert asked == [[(1, 5, 3), (2, 6, 3)], [(1, 7, 4), (2, 8, 4)], [(1, 0, -1), (2, 0, -1)]]
    assert erases_of(image, TopicPartition("other", 0)) == []


def test_the_epoch_of_a_request_of_an_earlier_version_is_unknown() -> None:
    image = two_partitions()
    value = b'{"type":"Erase","topic":"%s","erase_id":1,"predicate":"%s","end_offsets":[5,7],"request_id":"x"}'
    record = record_from_json(value % (TOPIC.encode(), BOB.replace('"', '\\"').encode()))
    image = image.fold(record)
    (asked,) = erases_of(image, TopicPartition(TOPIC, 1))
    assert (asked.end_offset, asked.leader_epoch) == (7, UNDEFINED_EPOCH)


@pytest.mark.parametrize("after", [RemoveTopicRecord(TOPIC, "id-orders"), TopicRecord(TOPIC, "id-again")])
def test_a_topic_made_anew_has_nothing_to_erase(after: RemoveTopicRecord | TopicRecord) -> None:
    image = two_partitions()
    ask(image, "x", 5, 7)
    image = image.fold(after)
    assert erases_of(image, TopicPartition(TOPIC, 0)) == []


def test_what_cannot_be_asked_is_refused() -> None:
    with pytest.raises(UnknownTopicOrPartitionError, match="'other'"):
        request_erase(two_partitions(), "other", "id", BOB, (), "x")
    with pytest.raises(InvalidRequestError, match="unknown name 'offset'"):
        request_erase(two_partitions(), TOPIC, "id-orders", '{"offset": 3}', (), "x")
