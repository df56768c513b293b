"""`kafka.group.id` and what belongs to it, as options of a streaming query."""

from __future__ import annotations

import pytest

from stratalog.clients.spark.group.options import GroupMode
from stratalog.clients.spark.options import GROUP, OffsetLimit, SourceOptions, batch_options, stream_options
from stratalog.storage.errors import InvalidConfigError, StratalogError

BASE = {"stratalog.root": "r", "subscribe": "t"}


def stream(**options: str) -> SourceOptions:
    return stream_options(BASE | {name.replace("__", "."): value for name, value in options.items()})


def test_a_query_without_a_group_has_none() -> None:
    assert stream().group is None
    assert stream(groupIdPrefix="mine").group is None
    assert batch_options(BASE | {"kafka.group.id": "g"}).group is None


@pytest.mark.parametrize("name", ["kafka.group.id", "group.id", "KAFKA.Group.Id"])
def test_a_group_id_has_two_names(name: str) -> None:
    group = stream_options(BASE | {name: "Billing"}).group
    assert group is not None
    assert (group.group_id, group.mode) == ("Billing", GroupMode.COMMIT)
    assert (group.consumer.auto_offset_reset, group.consumer.enable_auto_commit) == ("latest", False)


def test_kafkas_configs_of_a_member_and_its_connections() -> None:
    options = stream(
        kafka__group__id="g",
        stratalog__group__mode="Share",
        stratalog__auto__offset__reset="earliest",
        stratalog__listener="INSIDE",
        kafka__session__timeout__ms="6000",
        kafka__heartbeat__interval__ms="500",
        kafka__group__instance__id="one",
        kafka__partition__assignment__strategy="cooperative-sticky",
        kafka__sasl__username="me",
        kafka__sasl__password="secret",
        kafka__fetch__min__bytes="1",  # another config of Kafka's
    )
    group = options.group
    assert group is not None
    consumer = group.consumer
    assert (group.mode, group.listener) == (GroupMode.SHARE, "INSIDE")
    assert (consumer.session_timeout_ms, consumer.heartbeat_interval_ms) == (6_000, 500)
    assert (consumer.group_instance_id, consumer.auto_offset_reset) == ("one", "earliest")
    assert consumer.partition_assignment_strategy == ("cooperative-sticky",)
    assert dict(group.connection) == {"sasl.username": "me", "sasl.password": "secret"}
    assert "secret" not in repr(group)


def test_a_stream_may_start_where_its_group_stands() -> None:
    assert stream(kafka__group__id="g", startingOffsets="group").starting == OffsetLimit(GROUP)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"startingOffsets": "group"}, "startingOffsets=group needs kafka.group.id"),
        ({"stratalog.group.mode": "share"}, "stratalog.group.mode needs kafka.group.id"),
        ({"stratalog.auto.offset.reset": "earliest"}, "stratalog.auto.offset.reset needs kafka.group.id"),
        ({"kafka.group.id": " "}, "kafka.group.id must not be empty"),
        ({"kafka.group.id": "a", "group.id": "b"}, "kafka.group.id=a and group.id=b are two names of one option"),
        ({"kafka.group.id": "g", "stratalog.group.mode": "both"}, "stratalog.group.mode.*commit, share"),
        ({"kafka.group.id": "g", "stratalog.auto.offset.reset": "first"}, "auto.offset.reset"),
        ({"kafka.group.id": "g", "kafka.auto.offset.reset": "latest"}, "'auto.offset.reset' is not supported"),
        ({"kafka.group.id": "g", "kafka.session.timeout.ms": "long"}, "session.timeout.ms"),
        ({"kafka.group.id": "g", "kafka.security.protocol": "TELNET"}, "security.protocol"),
        (
            {"kafka.group.id": "g", "kafka.group.protocol": "consumer", "kafka.session.timeout.ms": "6000"},
            "session.timeout.ms cannot be set when group.protocol=CONSUMER",
        ),
    ],
)
def test_wrong_options_of_a_group_are_refused(options: dict[str, str], text: str) -> None:
    with pytest.raises(StratalogError, match=text):
        stream_options(BASE | options)


def test_a_batch_query_does_not_start_at_a_group() -> None:
    with pytest.raises(InvalidConfigError, match="startingOffsets=group is for streaming queries"):
        batch_options(BASE | {"startingOffsets": "group", "kafka.group.id": "g"})


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"assign": '{"t":[0]}'}, "share needs subscribe or subscribePattern"),
        ({"subscribe": "t", "startingOffsets": "earliest"}, "startingOffsets cannot be set with"),
        ({"subscribe": "t", "startingTimestamp": "1"}, "startingTimestamp cannot be set with"),
        ({"subscribe": "t", "startingOffsetsByTimestamp": '{"t":{"0":1}}'}, "startingOffsetsByTimestamp cannot be set"),
    ],
)
def test_what_the_group_decides_is_no_option_of_a_member(options: dict[str, str], text: str) -> None:
    given = {"stratalog.root": "r", "kafka.group.id": "g", "stratalog.group.mode": "share"}
    with pytest.raises(InvalidConfigError, match=text):
        stream_options(given | options)
    allowed = stream_options(given | {"subscribePattern": "t", "startingOffsets": "group"}).group
    assert allowed is not None
    assert allowed.is_shared
