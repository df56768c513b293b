"""Records of `__consumer_offsets`: Kafka's bytes, and back. What Kafka's own tool prints of them: tests/jobs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stratalog.replication.coordinator.groups.records import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
    decode_group_metadata,
    decode_key,
    decode_offset_commit,
    encode_group_metadata,
    encode_offset_commit,
    group_metadata_key,
    offset_commit_key,
)
from stratalog.storage.errors import CorruptMessageError
from stratalog.wire.kafka_types import version_of

MEMBER = MemberMetadata("m-1", "i", "c", "/h", 300_000, 45_000, b"\0\1\2", b"")
GROUP = GroupMetadataValue("consumer", 3, "range", "m-1", 1_700_000_000_001, (MEMBER,))
GROUP_HEX = (
    "00030008636f6e73756d657200000003000572616e676500036d2d310000018bcfe568010000000100036d2d3100016900016300022f68"
    "000493e00000afc80000000300010200000000"
)
"""What Kafka 4.3.1's dump-log reads as this group."""


def test_a_group_is_written_as_kafka_reads_it() -> None:
    assert encode_group_metadata(GROUP).hex() == GROUP_HEX
    assert decode_group_metadata(bytes.fromhex(GROUP_HEX)) == GROUP
    assert (group_metadata_key("g").hex(), decode_key(group_metadata_key("g"))) == ("0002000167", GroupMetadataKey("g"))


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (
            OffsetCommitValue(42, 5, "note", 1_700_000_000_000),
            "0003000000000000002a0000000500046e6f74650000018bcfe56800",
        ),
        (
            OffsetCommitValue(42, -1, "note", 1_700_000_000_000, 1_700_000_009_999),
            "0001000000000000002a00046e6f74650000018bcfe568000000018bcfe58f0f",
        ),
        (
            OffsetCommitValue(42, 5, "note", 1_700_000_000_000, topic_id="00000000000000010000000000000002"),
            "0004000000000000002a00000005056e6f74650000018bcfe5680001001000000000000000010000000000000002",
        ),
    ],
)
def test_an_offset_is_written_as_kafka_reads_it(value: OffsetCommitValue, written: str) -> None:
    assert encode_offset_commit(value).hex() == written
    assert decode_offset_commit(bytes.fromhex(written)) == value


@pytest.mark.parametrize(
    ("data", "value"),
    [
        ("0000000000000000002a00046e6f74650000018bcfe56800", OffsetCommitValue(42, -1, "note", 1_700_000_000_000)),
        ("0002000000000000002a00046e6f74650000018bcfe56800", OffsetCommitValue(42, -1, "note", 1_700_000_000_000)),
    ],
)
def test_other_versions_are_read(data: str, value: OffsetCommitValue) -> None:
    assert decode_offset_commit(bytes.fromhex(data)) == value


def test_a_member_of_the_first_version_has_no_rebalance_timeout() -> None:
    data = (
        "00000008636f6e73756d657200000003000572616e676500036d2d310000000100036d2d3100016300022f680000afc8"
        "0000000300010200000000"
    )
    value = decode_group_metadata(bytes.fromhex(data))
    assert value.members == (MemberMetadata("m-1", None, "c", "/h", -1, 45_000, b"\0\1\2", b""),)
    assert value.current_state_timestamp == -1


def test_keys_tell_what_a_record_is() -> None:
    key = offset_commit_key("g", "t", 3)
    assert (version_of(key), decode_key(key)) == (1, OffsetCommitKey("g", "t", 3))
    assert decode_key(b"\0\0" + key[2:]) == OffsetCommitKey("g", "t", 3)
    assert decode_key(b"\0\3" + key[2:]) is None


@pytest.mark.parametrize("data", ["", "00", "0005", "ffff", "0003000000"])
def test_what_is_cut_off_or_newer_is_corrupt(data: str) -> None:
    for decode in (decode_offset_commit, decode_group_metadata):
        with pytest.raises(CorruptMessageError):
            decode(bytes.fromhex(data))
    with pytest.raises(CorruptMessageError):
        decode_group_metadata(bytes.fromhex(GROUP_HEX[:-2]))


texts = st.text(max_size=20)
numbers = st.integers(-(2**31), 2**31 - 1)
longs = st.integers(-(2**63), 2**63 - 1)
members = st.builds(
    MemberMetadata, texts, st.none() | texts, texts, texts, numbers, numbers, st.binary(max_size=9), st.binary()
)


@given(st.builds(OffsetCommitValue, longs, numbers, texts, longs))
def test_offsets_come_back_as_they_were(value: OffsetCommitValue) -> None:
    assert decode_offset_commit(encode_offset_commit(value)) == value


@given(
    st.builds(
        GroupMetadataValue, texts, numbers, st.none() | texts, st.none() | texts, longs, st.lists(members).map(tuple)
    )
)
def test_groups_come_back_as_they_were(value: GroupMetadataValue) -> None:
    assert decode_group_metadata(encode_group_metadata(value)) == value
