"""Which requests are events of the audit topic, and what is in one."""

from __future__ import annotations

import json
import re

import pytest

from stratalog.server.audit.events import (
    ADMIN,
    AUDIT_VALUE_SCHEMA,
    DENIAL,
    DETAIL_MAX,
    AuditEvent,
    is_event,
    named_resources,
    outcome_of,
    request_kind,
)
from stratalog.wire.api_keys import ApiKey
from stratalog.wire.messages.schema import request_type
from tests.kio_messages import build


@pytest.mark.parametrize(
    ("api", "codes", "kind"),
    [
        (ApiKey.CREATE_TOPICS, [], ADMIN),
        (ApiKey.CREATE_TOPICS, [36], ADMIN),
        (ApiKey.CREATE_TOPICS, [29], DENIAL),
        (ApiKey.DESCRIBE_ACLS, [], ADMIN),
        (ApiKey.PRODUCE, [29, 6], DENIAL),
        (ApiKey.JOIN_GROUP, [30], DENIAL),
        (ApiKey.INIT_PRODUCER_ID, [53], DENIAL),
        (ApiKey.DESCRIBE_CLUSTER, [31], DENIAL),
        (ApiKey.PRODUCE, [6], None),
        (ApiKey.FETCH, [], None),
        (ApiKey.DESCRIBE_CONFIGS, [], None),
    ],
)
def test_a_request_is_an_event_by_its_api_or_by_a_denial(api: ApiKey, codes: list[int], kind: str | None) -> None:
    assert (request_kind(codes) if is_event(api, codes) else None) == kind


@pytest.mark.parametrize(
    ("api", "version", "values", "names"),
    [
        (ApiKey.CREATE_TOPICS, 7, {"topics": [{"name": "a"}, {"name": "b"}]}, ("TOPIC:a", "TOPIC:b")),
        (ApiKey.DELETE_TOPICS, 5, {"topic_names": ["a"]}, ("TOPIC:a",)),
        (ApiKey.PRODUCE, 9, {"topic_data": [{"name": "a"}]}, ("TOPIC:a",)),
        (ApiKey.DELETE_GROUPS, 2, {"groups_names": ["g"]}, ("GROUP:g",)),
        (ApiKey.JOIN_GROUP, 9, {"group_id": "g"}, ("GROUP:g",)),
        (ApiKey.INIT_PRODUCER_ID, 4, {"transactional_id": "x"}, ("TRANSACTIONAL_ID:x",)),
        (ApiKey.DESCRIBE_ACLS, 3, {}, ()),
    ],
)
def test_an_event_names_what_the_request_names(
    api: ApiKey, version: int, values: dict[str, object], names: tuple[str, ...]
) -> None:
    assert named_resources(build(request_type(api, version), values)) == names


def test_a_value_has_the_fields_of_its_schema() -> None:
    event = AuditEvent(DENIAL, "User:bob\n", resources=("TOPIC:a",), outcome=outcome_of([29]), detail="x" * 9_000)
    body = json.loads(event.to_json(5, 1, "run", 7))
    assert list(body) == re.findall(r"(\w+) (?:BIGINT|INT|STRING|ARRAY<STRING>)", AUDIT_VALUE_SCHEMA)
    assert (body["time"], body["broker"], body["run"], body["number"]) == (5, 1, "run", 7)
    assert (body["outcome"], len(body["detail"])) == ("TOPIC_AUTHORIZATION_FAILED", DETAIL_MAX)
