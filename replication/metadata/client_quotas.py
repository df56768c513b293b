"""Quotas of clients in the metadata log, by user, client id or both. Pure.

An entity names a user, a client id or both; None stands for all that have no quota of their own. A quota is a
`ConfigRecord` whose `topic` is made of the entity.
Source: Kafka's `ClientQuotaControlManager`, `ClientQuotasImage`, `ClientQuotaManager.DefaultQuotaCallback`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from stratalog.replication.metadata.image import ClusterImage, Result
from stratalog.replication.metadata.records import ConfigRecord
from stratalog.storage.errors import InvalidRequestError, UnsupportedVersionError
from stratalog.storage.topic_config import LONG_MAX
from stratalog.wire.java_strings import bucket_order, hash_order, string_hash

USER, CLIENT_ID, IP = "user", "client-id", "ip"
PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE = "producer_byte_rate", "consumer_byte_rate"
REQUEST_PERCENTAGE, MUTATION_RATE = "request_percentage", "controller_mutation_rate"
KEYS = (CONSUMER_BYTE_RATE, MUTATION_RATE, PRODUCER_BYTE_RATE, REQUEST_PERCENTAGE)
MATCH_EXACT, MATCH_DEFAULT, MATCH_SPECIFIED = range(3)
_TOPIC = "<quota>"
_INTEGRAL = (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE)
_SMALLEST_FRACTION = 1e-6

QuotaEntity = tuple[tuple[str, str | None], ...]
"""Type and name of its parts, sorted by type. `(("user", None),)` is every user without a quota of its own."""
Quotas = Mapping[QuotaEntity, Mapping[str, float]]
"""Values by key, of each entity that has any."""


class QuotaMatch(NamedTuple):
    """One part of a filter: `match_type` 0: the name is `match`, 1: the default, 2: any, also the default."""

    entity_type: str
    match_type: int
    match: str | None


class QuotaInForce(NamedTuple):
    """The quota of a client. Clients with equal `user` and `client_id` share it; "" where the quota does not count
    them apart."""

    bound: float
    user: str
    client_id: str


def quotas_of(image: ClusterImage) -> dict[QuotaEntity, dict[str, float]]:
    """All quotas."""
    found: dict[QuotaEntity, dict[str, float]] = {}
    for topic, values in list(image.configs.items()):
        if topic.startswith(_TOPIC) and values:
            entity = tuple(sorted(json.loads(topic.removeprefix(_TOPIC)).items()))
            found[entity] = {key: float(value) for key, value in dict(values).items()}
    return found


def quota_in_force(quotas: Quotas, key: str, user: str, client_id: str) -> QuotaInForce | None:
    """The quota of a client, the most special one first (KIP-55); None: it is not limited."""
    both = ((user, client_id), (user, None), (None, client_id), (None, None))
    of_user_and_client = [(_entity(u, c), user, client_id) for u, c in both]
    candidates = [
        *of_user_and_client[:2],
        (((USER, user),), user, ""),
        *of_user_and_client[2:],
        (((USER, None),), user, ""),
        (((CLIENT_ID, client_id),), "", client_id),
        (((CLIENT_ID, None),), "", client_id),
    ]
    for entity, shared_user, shared_client in candidates:
        bound = quotas.get(entity, {}).get(key)
        if bound is not None:
            return QuotaInForce(bound, shared_user, shared_client)
    return None


def _entity(user: str | None, client_id: str | None) -> QuotaEntity:
    return ((CLIENT_ID, client_id), (USER, user))


def alter_client_quota(
    image: ClusterImage, parts: Sequence[tuple[str, str | None]], changes: Sequence[tuple[str, float | None]]
) -> Result[None]:
    """Set or, with None, remove quotas of one entity. InvalidRequestError in Kafka's words."""
    entity = _checked(parts)
    wanted: dict[str, float | None] = {}
    for key, value in changes:
        if key in wanted:
            raise InvalidRequestError(f"Duplicate quota key {key} not updating quota for this entity {dict(entity)}")
        wanted[key] = value if value is None else _checked_value(key, value)
    topic = _TOPIC + json.dumps(dict(entity), sort_keys=True)
    before = image.configs.get(topic, {})
    texts = {key: None if value is None else repr(value) for key, value in wanted.items()}
    changed = (ConfigRecord(topic, key, text) for key, text in texts.items() if before.get(key) != text)
    return Result(tuple(changed), None)


def _checked(parts: Sequence[tuple[str, str | None]]) -> QuotaEntity:
    if not parts:
        raise InvalidRequestError("Invalid empty client quota entity")
    for entity_type, name in parts:
        if entity_type == IP:
            raise InvalidRequestError("rates of connections are not limited here, so that an ip has no quotas")
        if entity_type not in (USER, CLIENT_ID):
            raise InvalidRequestError(f"Unhandled client quota entity type: {entity_type}")
        if name == "":
            raise InvalidRequestError(f"Empty {entity_type} not supported")
    if len(dict(parts)) < len(parts):
        raise InvalidRequestError(f"Invalid client quota entity, duplicate entity entry {parts[-1][0]}")
    return tuple(sorted(parts))


def _checked_value(key: str, value: float) -> float:
    if key not in KEYS:
        raise InvalidRequestError(f"Invalid configuration key {key}")
    if not value > 0:
        raise InvalidRequestError(f"Quota {key} must be greater than 0")
    if key in _INTEGRAL and value > LONG_MAX:
        raise InvalidRequestError(f"Proposed value for {key} is too large for a LONG.")
    if key in _INTEGRAL and value % 1 > _SMALLEST_FRACTION:
        raise InvalidRequestError(f"{key} cannot be a fractional value.")
    return value


def describe_client_quotas(quotas: Quotas, wanted: Iterable[QuotaMatch], *, is_strict: bool) -> Quotas:
    """The quotas whose entities have all these parts; `is_strict`: and no others.

    InvalidRequestError; UnsupportedVersionError for an entity type that does not exist.
    """
    exact: dict[str, str | None] = {}
    specified: set[str] = set()
    for part in wanted:
        if part.entity_type in exact or part.entity_type in specified:
            raise InvalidRequestError(f"Entity type {part.entity_type} cannot appear more than once in the filter.")
        _check_match(part)
        if part.match_type == MATCH_SPECIFIED:
            specified.add(part.entity_type)
        else:
            exact[part.entity_type] = part.match
    if IP in (*exact, *specified) and len(exact) + len(specified) > 1:
        raise InvalidRequestError(
            "Invalid entity filter component combination. IP filter component should not be used with user or "
            "clientId filter component."
        )

    def matches(entity: QuotaEntity) -> bool:
        parts = dict(entity)
        if is_strict and len(parts) != len(exact) + len(specified):
            return False
        return exact.items() <= parts.items() and specified <= parts.keys()

    return {entity: _values_in_order(quotas[entity]) for entity in _in_javas_order(quotas) if matches(entity)}


def _values_in_order(values: Mapping[str, float]) -> dict[str, float]:
    """As `ClientQuotasImage` has them: those of a delta, a HashMap, put into one that began empty. Clients may compare
    the order."""
    return {key: values[key] for key in hash_order(hash_order(values), capacity=1)}


def _in_javas_order(quotas: Quotas) -> list[QuotaEntity]:
    """As `ClientQuotasImage` has them: a HashMap of entities that grew from nothing. Clients may compare the order. Of
    one bucket the older comes first; here a user before its clients, since ages are not kept."""
    entities = sorted(quotas, key=lambda entity: (len(entity), repr(entity)))
    return [entities[index] for index in bucket_order([_hash(entity) for entity in entities], capacity=1)]


def _hash(entity: QuotaEntity) -> int:
    """`ClientQuotaEntity.hashCode`: `Objects.hash` of a map, whose entries have the hash of the key xor the value's."""
    return 31 + sum(string_hash(kind) ^ (0 if name is None else string_hash(name)) for kind, name in entity)


def _check_match(part: QuotaMatch) -> None:
    if not part.entity_type:
        raise InvalidRequestError("Invalid empty entity type.")
    if part.entity_type not in (USER, CLIENT_ID, IP):
        raise UnsupportedVersionError(f"Unsupported entity type {part.entity_type}")
    if part.match_type not in (MATCH_EXACT, MATCH_DEFAULT, MATCH_SPECIFIED):
        raise InvalidRequestError(f"Unknown match type {part.match_type}")
    if (part.match_type == MATCH_EXACT) == (part.match is None):
        what = "EXACT, but set match string to null" if part.match is None else "that needs no match string"
        raise InvalidRequestError(f"Request specified MATCH_TYPE_{what}.")
