"""Records of KIP-848 groups are the bytes that Kafka's coordinator wrote, and are read back."""

from __future__ import annotations

import json
from typing import Any

import pytest

from stratalog.jobs.text.record_decoders import offsets_decoder
from stratalog.replication.coordinator.groups.modern.member import ModernMember, ModernMemberState
from stratalog.replication.coordinator.groups.modern.records import (
    GroupEpoch,
    KeyVersion,
    ModernGroupKey,
    ResolvedRegex,
    TargetEpoch,
    current_record,
    decode_current,
    decode_group_epoch,
    decode_key,
    decode_member,
    decode_regex,
    decode_target,
    decode_target_epoch,
    encode_key,
    group_epoch_record,
    member_record,
    regex_record,
    target_epoch_record,
    target_record,
    tombstone,
)
from stratalog.replication.coordinator.server_assignors import TopicIdPartition
from stratalog.replication.coordinator.shard.shard import CoordinatorRecord
from stratalog.storage.errors import CorruptMessageError
from tests.replication.oracle.answers import recorded_lines
from tests.replication.oracle.server_questions import record_sets

SETS = list(zip(record_sets(), recorded_lines("records"), strict=True))


def member_of(asked: dict[str, Any]) -> ModernMember:
    return ModernMember(
        asked["member"],
        asked["instance"],
        asked["rack"],
        asked["client_id"],
        asked["client_host"],
        asked["timeout"],
        frozenset(asked["topics"]),
        asked["regex"],
        asked["assignor"],
        asked["epoch"],
        asked["previous"],
        ModernMemberState(asked["state"]),
        epochs(asked["assigned"]),
        epochs(asked["pending"]),
    )


def epochs(entries: list[list[Any]]) -> dict[TopicIdPartition, int]:
    return {TopicIdPartition(topic_id, number): epoch for topic_id, number, epoch in entries}


def records_of(asked: dict[str, Any]) -> list[CoordinatorRecord]:
    group, member, number = asked["group"], member_of(asked), asked["number"]
    return [
        group_epoch_record(group, GroupEpoch(7, number)),
        member_record(group, member),
        target_epoch_record(group, TargetEpoch(8, abs(number))),
        target_record(group, member.member_id, member.assigned),
        current_record(group, member),
        regex_record(group, "t.*", ResolvedRegex(frozenset(asked["topics"]), 0, abs(number))),
    ]


def test_records_are_kafkas_bytes() -> None:
    for asked, answer in SETS:
        ours = [data.hex() for record in records_of(asked) for data in (record.key, record.value or b"")]
        assert ours == [told for at, told in enumerate(answer["records"]) if at % 4 < 2], asked


def test_the_viewer_of_the_offsets_topic_prints_records_as_kafkas_does() -> None:
    for asked, answer in SETS:
        told = iter(answer["records"])
        for key, value, key_json, value_json in zip(told, told, told, told, strict=True):
            key_text, value_text = offsets_decoder(0, bytes.fromhex(key), bytes.fromhex(value))
            version = int(key[:4], 16)
            assert json.loads(key_text or "") == {"type": str(version), "data": key_json}, asked
            assert json.loads(value_text or "") == {"version": "0", "data": value_json}, asked
            assert offsets_decoder(0, bytes.fromhex(key), None) == (key_text, "<DELETE>")


def test_kafkas_bytes_are_read_back() -> None:
    for asked, answer in SETS:
        member = member_of(asked)
        keys = [decode_key(bytes.fromhex(key)) for key in answer["records"][::4]]
        group_epoch, told, target_epoch, target, current, regex = map(bytes.fromhex, answer["records"][1::4])
        assert [key.version for key in keys] == [3, 5, 6, 7, 8, 16]
        assert {key.group_id for key in keys} == {asked["group"]}
        assert [key.name for key in keys] == ["", member.member_id, "", member.member_id, member.member_id, "t.*"]
        assert decode_group_epoch(group_epoch) == GroupEpoch(7, asked["number"])
        read = decode_member(member.member_id, told)
        assert member_record("g", read) == member_record("g", member)
        assert decode_target_epoch(target_epoch) == TargetEpoch(8, abs(asked["number"]))
        assert decode_target(target) == member.assigned.keys()
        assert (decode_current(current).assigned, decode_current(current).pending_revocation) == (
            member.assigned,
            member.pending_revocation,
        )
        assert (decode_current(current).member_epoch, decode_current(current).previous_member_epoch) == (
            member.member_epoch,
            member.previous_member_epoch,
        )
        assert decode_regex(regex).topics == frozenset(asked["topics"])


def test_current_assignments_of_older_kafkas_without_epochs_have_the_members_epoch() -> None:
    value = bytes.fromhex("000000000009000000080002" + "ab" * 16 + "0200000003000100")
    assert decode_current(value).assigned == {TopicIdPartition("ab" * 16, 3): 9}


def test_a_state_that_is_not_known_is_unknown() -> None:
    assert decode_current(bytes.fromhex("0000000000090000000805010100")).state is ModernMemberState.UNKNOWN


@pytest.mark.parametrize("version", list(KeyVersion))
def test_keys_are_read_back(version: KeyVersion) -> None:
    has_name = version in (KeyVersion.MEMBER, KeyVersion.TARGET, KeyVersion.CURRENT, KeyVersion.REGEX)
    key = ModernGroupKey(version, "group", "name" if has_name else "")
    assert decode_key(encode_key(key)) == key
    assert tombstone(*key) == CoordinatorRecord(encode_key(key), None)


@pytest.mark.parametrize("data", ["", "0002000167", "000300ff", "0005000167"])
def test_keys_of_something_else_or_cut_off_are_refused(data: str) -> None:
    with pytest.raises(CorruptMessageError):
        decode_key(bytes.fromhex(data))


def test_values_of_an_unknown_version_are_refused() -> None:
    with pytest.raises(CorruptMessageError, match="version 1"):
        decode_group_epoch(bytes.fromhex("00010000000100"))
