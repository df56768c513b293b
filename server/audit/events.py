"""Events of the audit topic: administrators' requests, denials, logins, refused frames. Pure.

Each is a record whose value is a JSON object with the fields of `AUDIT_VALUE_SCHEMA`, so that a typed table has them as
columns. A broker numbers the events of a run of its process from 0 on: a number that is missing is an event that was
lost, one that is there twice was written again after an answer that did not come.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from stratalog.storage.errors import NAME_OF_CODE
from stratalog.wire.api_keys import ApiKey, api_name

ADMIN, DENIAL, LOGIN, FAILED_LOGIN, REFUSED_FRAME, LOST = (
    "admin", "denial", "login", "failed-login", "refused-frame", "lost"
)  # fmt: skip
KINDS = (ADMIN, DENIAL, LOGIN, FAILED_LOGIN, REFUSED_FRAME, LOST)

AUDIT_VALUE_SCHEMA = (
    "time BIGINT, broker INT, run STRING, number BIGINT, kind STRING, principal STRING, host STRING, listener STRING, "
    "clientId STRING, api STRING, apiVersion INT, outcome STRING, resources ARRAY<STRING>, detail STRING"
)
"""The fields as columns of SQL. `time` in ms since 1970. `outcome`: NONE, or the names of Kafka's errors with commas.
`resources`: topics, groups and transactional ids that the request names. `detail`: an administrator's request as JSON,
without secrets, or the reason of a refusal."""

ADMIN_APIS = frozenset(
    {
        ApiKey.CREATE_TOPICS,
        ApiKey.DELETE_TOPICS,
        ApiKey.DELETE_RECORDS,
        ApiKey.CREATE_PARTITIONS,
        ApiKey.ALTER_CONFIGS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.DESCRIBE_ACLS,
        ApiKey.CREATE_ACLS,
        ApiKey.DELETE_ACLS,
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        ApiKey.DESCRIBE_CLIENT_QUOTAS,
        ApiKey.ALTER_CLIENT_QUOTAS,
        ApiKey.DELETE_GROUPS,
        ApiKey.OFFSET_DELETE,
        ApiKey.ELECT_LEADERS,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        ApiKey.ALTER_REPLICA_LOG_DIRS,
        ApiKey.UPDATE_FEATURES,
        ApiKey.UNREGISTER_BROKER,
    }
)
"""Requests of administrators: what changes the cluster, and what reads who may do what. What consoles ask for all the
time, such as DescribeConfigs, is none, unless it is denied."""
DENIALS = frozenset({29, 30, 31, 53, 65})
"""Codes of Kafka's authorization errors: of topics, groups, the cluster, transactional ids, delegation tokens."""
NAMES_MAX = 20
DETAIL_MAX = 4_000
"""Letters of `detail`; the rest is cut."""


@dataclass(frozen=True, slots=True)
class AuditEvent:
    """An event without its number and time."""

    kind: str
    principal: str = ""
    host: str = ""
    listener: str = ""
    client_id: str = ""
    api: str = ""
    api_version: int | None = None
    outcome: str = "NONE"
    resources: tuple[str, ...] = ()
    detail: str = ""

    def to_json(self, time_ms: int, broker_id: int, run: str, number: int) -> bytes:
        """The record's value."""
        body = {
            "time": time_ms,
            "broker": broker_id,
            "run": run,
            "number": number,
            "kind": self.kind,
            "principal": self.principal,
            "host": self.host,
            "listener": self.listener,
            "clientId": self.client_id,
            "api": self.api,
            "apiVersion": self.api_version,
            "outcome": self.outcome,
            "resources": list(self.resources),
            "detail": self.detail[:DETAIL_MAX],
        }
        return json.dumps(body, separators=(",", ":"), ensure_ascii=True).encode()


def is_event(api_key: int, codes: Sequence[int]) -> bool:
    """Whether the answer to a request, with these errors in it, is an event.

    >>> is_event(ApiKey.CREATE_TOPICS, []), is_event(ApiKey.FETCH, [29]), is_event(ApiKey.FETCH, [6])
    (True, True, False)
    """
    return api_key in ADMIN_APIS or (bool(codes) and not DENIALS.isdisjoint(codes))


def request_kind(codes: Iterable[int]) -> str:
    """Of a request that is an event: one with an authorization error is a denial."""
    return ADMIN if DENIALS.isdisjoint(codes) else DENIAL


def outcome_of(codes: Iterable[int]) -> str:
    """The names of errors, each once.

    >>> outcome_of([]), outcome_of([29, 36, 29])
    ('NONE', 'TOPIC_ALREADY_EXISTS,TOPIC_AUTHORIZATION_FAILED')
    """
    return ",".join(sorted({NAME_OF_CODE.get(code, str(code)) for code in codes})) or "NONE"


def named_resources(request: Any) -> tuple[str, ...]:
    """What a request names, as `TOPIC:orders`: at most `NAMES_MAX` of it."""
    found: list[str] = []
    for kind, attribute in (("GROUP", "group_id"), ("TRANSACTIONAL_ID", "transactional_id")):
        name = getattr(request, attribute, None)
        if isinstance(name, str) and name:
            found.append(f"{kind}:{name}")
    for kind, attribute, parts in (
        ("TOPIC", "topics", ("name", "topic")),
        ("TOPIC", "topic_data", ("name",)),
        ("TOPIC", "topic_names", ()),
        ("GROUP", "groups", ("group_id",)),
        ("GROUP", "groups_names", ()),
    ):
        for item in list(getattr(request, attribute, None) or ())[:NAMES_MAX]:
            name = item if isinstance(item, str) else next(
                (getattr(item, part) for part in parts if getattr(item, part, None)), None
            )  # fmt: skip
            if isinstance(name, str):
                found.append(f"{kind}:{name}")
    return tuple(found[:NAMES_MAX])


def api_text(api_key: int) -> str:
    """Kafka's name of an API, or its number."""
    return api_name(api_key) or str(api_key)
