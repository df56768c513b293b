"""What the console consumer prints, byte for byte as Kafka's DefaultMessageFormatter."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stratalog.clients.records import ConsumerRecord
from stratalog.jobs.text.message_formatter import MessageFormatter
from stratalog.storage.errors import InvalidConfigError, InvalidRecordError
from stratalog.storage.records import Header

RECORD = ConsumerRecord("t", 3, 42, 1_700_000_000_000, 0, b"k", b"v", (Header("h1", b"a"), Header("h2", None)), 5)
ALL = {f"print.{part}": "true" for part in ("timestamp", "partition", "offset", "delivery", "epoch", "headers", "key")}


@pytest.mark.parametrize(
    ("properties", "record", "printed"),
    [
        ({}, RECORD, b"v\n"),
        ({}, replace(RECORD, value=None), b"null\n"),
        ({"print.key": "true"}, RECORD, b"k\tv\n"),
        ({"print.key": " True "}, replace(RECORD, key=None), b"null\tv\n"),
        ({"print.key": "true", "print.value": "false"}, RECORD, b"k\n"),
        ({"print.value": "false"}, RECORD, b""),
        ({"print.key": "true", "key.separator": "=>", "line.separator": ";"}, RECORD, b"k=>v;"),
        ({"print.key": "true", "null.literal": "-"}, replace(RECORD, key=None, value=None), b"-\t-\n"),
        (
            ALL,
            RECORD,
            b"CreateTime:1700000000000\tPartition:3\tOffset:42\tDelivery:NONE\tEpoch:5\th1:a,h2:null\tk\tv\n",
        ),
        ({"print.timestamp": "true"}, replace(RECORD, timestamp_type=1), b"LogAppendTime:1700000000000\tv\n"),
        ({"print.timestamp": "true"}, replace(RECORD, timestamp_ms=None), b"NO_TIMESTAMP\tv\n"),
        ({"print.headers": "true"}, replace(RECORD, headers=()), b"NO_HEADERS\tv\n"),
        ({"print.headers": "true", "headers.separator": "|"}, RECORD, b"h1:a|h2:null\tv\n"),
        ({"value.deserializer": "LongDeserializer"}, replace(RECORD, value=b"\0" * 7 + b"\x07"), b"7\n"),
        (
            {"value.deserializer": "org.apache.kafka.common.serialization.StringDeserializer"},
            replace(RECORD, value="é".encode()),
            "é\n".encode(),
        ),
        ({}, replace(RECORD, value=b"\xff\x00"), b"\xff\x00\n"),
    ],
)
def test_a_record_as_printed(properties: dict[str, str], record: ConsumerRecord, printed: bytes) -> None:
    assert MessageFormatter.from_properties(properties).format(record) == printed


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"print.keys": "true"}, r"Unknown formatter property name: print\.keys"),
        ({"value.deserializer": "com.example.Avro"}, r"Class com\.example\.Avro could not be found"),
    ],
)
def test_wrong_formatter_properties_are_refused(properties: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidConfigError, match=message):
        MessageFormatter.from_properties(properties)


def test_a_value_of_the_wrong_size_does_not_deserialize() -> None:
    with pytest.raises(InvalidRecordError, match="Size of data received by IntegerDeserializer is not 4"):
        MessageFormatter.from_properties({"value.deserializer": "IntegerDeserializer"}).format(RECORD)
