"""The console consumer's formatters of `__consumer_offsets`: Kafka's JSON, a line for each record of their type."""

from __future__ import annotations

import pytest

from stratalog.clients.records import ConsumerRecord
from stratalog.jobs.text.message_formatter import COORDINATOR_FORMATTERS

COMMIT_KEY = bytes.fromhex("000100016700017400000003")
COMMIT = bytes.fromhex("0003000000000000002a0000000500046e6f74650000018bcfe56800")
GROUP_KEY = bytes.fromhex("0002000167")
COMMIT_TEXT = (
    '{"key":{"type":1,"data":{"group":"g","topic":"t","partition":3}},"value":{"version":3,"data":'
    '{"offset":42,"leaderEpoch":5,"metadata":"note","commitTimestamp":1700000000000}}}\n'
)
TOMBSTONE_TEXT = '{"key":{"type":1,"data":{"group":"g","topic":"t","partition":3}},"value":null}\n'
GROUP_TOMBSTONE_TEXT = '{"key":{"type":2,"data":{"group":"g"}},"value":null}\n'


@pytest.mark.parametrize(
    ("name", "key", "value", "text"),
    [
        ("OffsetsMessageFormatter", COMMIT_KEY, COMMIT, COMMIT_TEXT),
        ("OffsetsMessageFormatter", COMMIT_KEY, None, TOMBSTONE_TEXT),
        ("OffsetsMessageFormatter", GROUP_KEY, None, ""),
        ("OffsetsMessageFormatter", bytes.fromhex("0063"), b"x", ""),
        ("OffsetsMessageFormatter", None, b"x", ""),
        ("OffsetsMessageFormatter", COMMIT_KEY, COMMIT[:-3], ""),
        ("GroupMetadataMessageFormatter", GROUP_KEY, None, GROUP_TOMBSTONE_TEXT),
        ("GroupMetadataMessageFormatter", COMMIT_KEY, COMMIT, ""),
    ],
)
def test_a_record_of_its_type_is_one_line_of_json(name: str, key: bytes | None, value: bytes | None, text: str) -> None:
    record = ConsumerRecord("__consumer_offsets", 0, 7, 1, 0, key, value, (), 0)
    assert COORDINATOR_FORMATTERS[name].format(record).decode() == text
