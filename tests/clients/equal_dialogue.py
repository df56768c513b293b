"""Random requests of the user who may not see everything: every API, every version, any field."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

from stratalog.storage.records import TopicPartition
from stratalog.wire.api_keys import ApiKey
from stratalog.wire.consumer_protocol import (
    Assignment,
    Subscription,
    encode_assignment,
    encode_subscription,
)
from stratalog.wire.messages.schema import EntityType, FieldShape, request_type, shape_of
from tests.clients.kafka_client import batch_of

NUMBERS = (-2, -1, 0, 0, 1, 1, 2, 5, 9, 100, 10_003, 20_000, 2**31 - 1)
BOUNDS = {"int8": 2**7 - 1, "int16": 2**15 - 1}
TOPICS = ("plain-a", "plain-b", "plain-new", "secret-payroll", "secret-payroll", "secret-new", "__consumer_offsets", "")
GROUPS = ("plain-offsets", "plain-shared", "plain-group", "plain-modern", "secret-group", "secret-modern", "absent", "")
OWN_GROUPS = ("plain-group", "plain-modern", "plain-mixed", "secret-modern", "secret-group")
"""Groups that the user joins. In `plain-shared` are others, who may see more, and their shares depend on that."""
TRANSACTIONS = ("plain-tx", "plain-new", "secret-tx", "absent")
REGEXES = (".*", "s.*", "plain-a|secret-.*", "secret-payroll", "secret-p[a-z]*", "e.*", "(")
USERS = ("mallory", "secret-user", "alice")
MEMBERS = ("", "m", "mine", "other")
ASSIGNORS = ("range", "uniform", None)
NOT_OF_THE_CLUSTER = 8
"""Resource type of loggers, which belong to this process."""

Fields = dict[str, Callable[[random.Random], Any]]


def _one_of(*values: Any) -> Callable[[random.Random], Any]:
    return lambda rng: rng.choice(values)


RECIPES: dict[int, Fields] = {
    ApiKey.CONSUMER_GROUP_HEARTBEAT: {
        "group_id": _one_of(*OWN_GROUPS),
        "member_id": _one_of("mine", "other"),
        "member_epoch": _one_of(0, 0, 0, 1, 2, 3, -1),
        "instance_id": _one_of(None),
        "rebalance_timeout": _one_of(60_000),
        "subscribed_topic_names": _one_of((), ("plain-a",), None),
        "subscribed_topic_regex": _one_of(*REGEXES),
        "server_assignor": _one_of(*ASSIGNORS),
        "topic_partitions": _one_of(()),
    },
    ApiKey.JOIN_GROUP: {
        "group_id": _one_of(*OWN_GROUPS),
        "session_timeout": _one_of(30_000),
        "rebalance_timeout": _one_of(30_000),
        "group_instance_id": _one_of(None),
        "protocol_type": _one_of("consumer"),
    },
    ApiKey.SYNC_GROUP: {
        "group_id": _one_of(*OWN_GROUPS),
        "generation_id": _one_of(0, 1, 2, 3, 4),
        "group_instance_id": _one_of(None),
        "protocol_type": _one_of("consumer"),
        "protocol_name": _one_of("range"),
    },
}
"""Fields of requests that random ones would be refused for."""


class Dialogue:
    """Makes requests. `stand_ins`: ids that the user has met, as `_Ids` has them."""

    def __init__(self, rng: random.Random, stand_ins: Callable[[], Sequence[str]]) -> None:
        self._rng = rng
        self._stand_ins = stand_ins
        self._recipe: Fields = {}

    def request(self, key: int, version: int) -> dict[str, Any]:
        """The values of a request of this API and version."""
        self._recipe = RECIPES.get(key, {}) if self._rng.random() < 0.8 else {}
        values = self._values(request_type(key, version))
        if key in (ApiKey.JOIN_GROUP, ApiKey.CONSUMER_GROUP_HEARTBEAT) and values.get("group_id") == "plain-shared":
            values["group_id"] = "plain-group"
        return values

    def _values(self, entity_type: EntityType) -> dict[str, Any]:
        return {field.name: self._value(field) for field in shape_of(entity_type)}

    def _value(self, field: FieldShape) -> Any:
        rng = self._rng
        if field.name in self._recipe:
            return self._recipe[field.name](rng)
        if field.is_nullable and rng.random() < 0.3:
            return None
        one = self._part if field.part is not None else self._primitive
        if field.is_array:
            return [one(field) for _ in range(rng.choice((0, 1, 1, 2)))]
        return one(field)

    def _part(self, field: FieldShape) -> dict[str, Any]:
        return self._values(field.part)

    def _primitive(self, field: FieldShape) -> Any:
        rng, kind = self._rng, field.kafka_type or ""
        if kind == "bool":
            return rng.random() < 0.5
        if kind == "float64":
            return 1e9
        if kind == "uuid":
            return rng.choice([*self._stand_ins(), "0" * 32])
        if kind == "string":
            return self._text(field.name)
        if kind in ("bytes", "records"):
            return self._bytes(field.name)
        if kind.startswith("timedelta"):
            return rng.choice((0, 1, 10, 30_000)) if field.name in _LONG else rng.choice((0, 1, 10))
        if field.name in ("partition", "partition_index", "index", "partitions", "partition_indexes"):
            return rng.choice((0, 0, 1, 2, 4, 7, -1))
        if field.name == "resource_type":
            return rng.choice([each for each in (*range(7), 16, 32) if each != NOT_OF_THE_CLUSTER])
        number = rng.choice(NUMBERS)
        bound = BOUNDS.get(kind, 2**31 - 1)
        return max(-bound, min(bound, number))

    def _text(self, name: str) -> str:
        rng = self._rng
        for part, values in _NAMES:
            if part in name:
                return rng.choice(values)
        if "member_id" in name:
            return rng.choice([*MEMBERS, *(f"test-{each}" for each in self._stand_ins()), *self._stand_ins()])
        return rng.choice((*TOPICS, *GROUPS, "x"))

    def _bytes(self, name: str) -> bytes:
        rng = self._rng
        topics = tuple(rng.sample(("plain-a", "secret-payroll", "absent"), rng.randint(0, 3)))
        if name == "metadata":
            return encode_subscription(Subscription(topics), 1)
        if name == "assignment":
            return encode_assignment(Assignment(tuple(TopicPartition(topic, 0) for topic in topics)), 1)
        return batch_of(b"v") if name == "records" and rng.random() < 0.8 else b""


_LONG = ("session_timeout", "rebalance_timeout", "transaction_timeout")
_NAMES: tuple[tuple[str, Sequence[str]], ...] = (
    ("regex", REGEXES),
    ("pattern", (*REGEXES, "")),
    ("group", GROUPS),
    ("transactional", TRANSACTIONS),
    ("coordinator_key", (*GROUPS, *TRANSACTIONS)),
    ("topic", TOPICS),
    ("principal", ("User:mallory", "User:alice")),
    ("entity_type", ("user", "client-id")),
    ("entity_name", USERS),
    ("protocol_name", ("range", "x")),
    ("protocol_type", ("consumer", "x")),
)
