"""The decoders print what Kafka 4.3.1's dump-log printed for the same bytes."""

from __future__ import annotations

import json

import pytest

from stratalog.jobs.command.terminal import UsageError
from stratalog.jobs.text.record_decoders import metadata_decoder, offsets_decoder, text_decoder, text_of
from stratalog.replication.metadata.records import PartitionRecord, record_to_json

COMMIT_KEY = "000100016700017400000003"
COMMIT = '{"type":"1","data":{"group":"g","topic":"t","partition":3}}'
GROUP_KEY = "0002000167"
GROUP = '{"type":"2","data":{"group":"g"}}'
NOTE = "00046e6f74650000018bcfe56800"
MEMBER = '"clientId":"c","clientHost":"/h","rebalanceTimeout":300000,"sessionTimeout":45000,"subscription":"AAEC"'
RANGE = '"protocolType":"consumer","generation":3,"protocol":"range","leader":"m-1"'
RANGE_BYTES = "0008636f6e73756d657200000003000572616e676500036d2d31"


@pytest.mark.parametrize(
    ("value", "version", "data"),
    [
        (f"0000000000000000002a{NOTE}", 0, '"offset":42,"metadata":"note","commitTimestamp":1700000000000'),
        (
            f"0001000000000000002a{NOTE}0000018bcfe58f0f",
            1,
            '"offset":42,"metadata":"note","commitTimestamp":1700000000000,"expireTimestamp":1700000009999',
        ),
        (f"0002000000000000002a{NOTE}", 2, '"offset":42,"metadata":"note","commitTimestamp":1700000000000'),
        (
            f"0003000000000000002a00000005{NOTE}",
            3,
            '"offset":42,"leaderEpoch":5,"metadata":"note","commitTimestamp":1700000000000',
        ),
        (
            "0004000000000000002a00000005056e6f74650000018bcfe5680000",
            4,
            '"offset":42,"leaderEpoch":5,"metadata":"note","commitTimestamp":1700000000000',
        ),
        (
            "0004000000000000002a00000005056e6f74650000018bcfe5680001001000000000000000010000000000000002",
            4,
            (
                '"offset":42,"leaderEpoch":5,"metadata":"note","commitTimestamp":1700000000000,'
                '"topicId":"AAAAAAAAAAEAAAAAAAAAAg"'
            ),
        ),
    ],
)
def test_a_committed_offset(value: str, version: int, data: str) -> None:
    decoded = offsets_decoder(0, bytes.fromhex(COMMIT_KEY), bytes.fromhex(value))
    assert decoded == (COMMIT, f'{{"version":"{version}","data":{{{data}}}}}')


@pytest.mark.parametrize(
    ("value", "version", "data"),
    [
        (
            f"0000{RANGE_BYTES}0000000100036d2d3100016300022f680000afc80000000300010200000000",
            0,
            (
                f'{RANGE},"members":[{{"memberId":"m-1","clientId":"c","clientHost":"/h",'
                '"sessionTimeout":45000,"subscription":"AAEC","assignment":""}]'
            ),
        ),
        (
            f"0001{RANGE_BYTES}0000000100036d2d3100016300022f68000493e00000afc80000000300010200000000",
            1,
            f'{RANGE},"members":[{{"memberId":"m-1",{MEMBER},"assignment":""}}]',
        ),
        (
            (
                f"0003{RANGE_BYTES}0000018bcfe568010000000100036d2d3100016900016300022f68000493e00000afc8"
                "0000000300010200000000"
            ),
            3,
            (
                f'{RANGE},"currentStateTimestamp":1700000000001,"members":[{{"memberId":"m-1","groupInstanceId":"i",'
                f'{MEMBER},"assignment":""}}]'
            ),
        ),
        (
            (
                "000409636f6e73756d6572000000030672616e6765046d2d310000018bcfe5680102046d2d3102690263032f68000493e0"
                "0000afc804000102010000"
            ),
            4,
            (
                f'{RANGE},"currentStateTimestamp":1700000000001,"members":[{{"memberId":"m-1","groupInstanceId":"i",'
                f'{MEMBER},"assignment":""}}]'
            ),
        ),
        (
            "0003000000000004ffffffffffffffffffffffff00000000",
            3,
            '"protocolType":"","generation":4,"protocol":null,"leader":null,"currentStateTimestamp":-1,"members":[]',
        ),
    ],
)
def test_a_groups_state(value: str, version: int, data: str) -> None:
    decoded = offsets_decoder(0, bytes.fromhex(GROUP_KEY), bytes.fromhex(value))
    assert decoded == (GROUP, f'{{"version":"{version}","data":{{{data}}}}}')


def test_tombstones_and_what_is_no_record_of_the_offsets_topic() -> None:
    assert offsets_decoder(6, bytes.fromhex(COMMIT_KEY), None) == (COMMIT, "<DELETE>")
    assert offsets_decoder(13, b"\0\x63", None) == ("Unknown record type 99 at offset 13, skipping.", None)
    for key, value in ((b"\0\1\0", None), (b"", None), (bytes.fromhex(COMMIT_KEY), b"\0\3\0")):
        text, payload = offsets_decoder(14, key, value)
        assert (str(text).startswith("Error at offset 14, skipping. "), payload) == (True, None)
    with pytest.raises(UsageError, match=r"Failed to decode message at offset 3 .* \(message had a missing key\)"):
        offsets_decoder(3, None, b"")


def test_a_metadata_record_has_the_shape_of_kafkas() -> None:
    key, value = record_to_json(PartitionRecord("t", 0, (1, 2), 1, 5, (1,), 7, 3))
    shown = metadata_decoder(0, key, value)[1] or ""
    assert shown.startswith(
        '{"type":"PARTITION_RECORD","version":0,"data":{"topic":"t","partition":0,"replicas":[1,2],'
    )
    assert json.loads(shown)["data"]["leaderEpoch"] == 5
    for bad in (None, b"{}", b"[1]", b"\xff"):
        assert str(metadata_decoder(9, None, bad)[1]).startswith("Error at 9, skipping. ")


@pytest.mark.parametrize(
    ("class_name", "data", "text"),
    [
        ("StringDecoder", b"caf\xc3\xa9", "café"),
        ("org.apache.kafka.tools.api.IntegerDecoder", b"\xff\xff\xff\xfe", "-2"),
        ("LongDecoder", bytes(7) + b"\7", "7"),
    ],
)
def test_decoder_classes_by_name(class_name: str, data: bytes, text: str) -> None:
    assert text_of(class_name)(data) == text
    assert text_decoder(value=text_of(class_name))(0, None, data) == (None, text)


def test_a_number_of_another_size_is_named() -> None:
    with pytest.raises(UsageError, match="IntegerDecoder needs 4 bytes, found 3"):
        text_of("IntegerDecoder")(b"abc")
