"""The fields of Kafka's messages in each version, from the dataclasses of kio. Pure.

kio has one dataclass for each API and version. Their fields are classified here, once for each class, for `layouts`,
which reads and writes bytes. A dataclass of ours has the fields
of all versions of a message: it names milliseconds with `_ms`, and has an `error` for the code and the message.
"""

from __future__ import annotations

from dataclasses import MISSING, dataclass, fields, make_dataclass
from dataclasses import field as field_of
from functools import cache
from types import NoneType, UnionType
from typing import Any, Final, NamedTuple, Union, get_args, get_origin, get_type_hints

from kio.index import load_request_schema, load_response_schema
from kio.schema.index import api_key_map, schema_name_map
from kio.static.constants import EntityType as Kind

from stratalog.wire.api_keys import ApiKey

Entity = Any
"""An instance of one of kio's classes; which one depends on the version, so its fields are read by name."""
EntityType = Any
"""One of kio's classes, or a dataclass of ours: a message, or a part of one."""
TOPIC_ID_TAG: Final = 10_000
"""The tag of a topic's id in a request that names topics in Kafka's protocol, far above the tags that Kafka gives out.
Kafka's brokers skip it, and its clients do not send it."""


@dataclass(frozen=True, slots=True)
class FieldShape:
    """One field of a message or of a part of it.

    kafka_type  of a primitive or of an array's primitives: `int32`, `string`, `error_code`, …; None for a part
    part        the class of a part, or of an array's parts
    tag         of a tagged field (KIP-482), else None
    """

    name: str
    kafka_type: str | None
    part: EntityType | None
    is_array: bool
    is_nullable: bool
    tag: int | None
    default: Any

    @property
    def has_default(self) -> bool:
        return self.default is not MISSING


@cache
def shape_of(entity_type: EntityType) -> tuple[FieldShape, ...]:
    """The fields of a message or part, in the order in which they are written."""
    return tuple(_field_shape(each) for each in fields(entity_type))


def _field_shape(field: Any) -> FieldShape:
    is_nullable, inner = False, field.type
    if get_origin(inner) in (UnionType, Union):
        is_nullable = True
        inner = next(each for each in get_args(inner) if each is not type(None))
    is_array = get_origin(inner) is tuple
    if is_array:
        inner = get_args(inner)[0]
    kafka_type = field.metadata.get("kafka_type")
    part = inner if kafka_type is None else None
    return FieldShape(field.name, kafka_type, part, is_array, is_nullable, field.metadata.get("tag"), field.default)


class HeldField(NamedTuple):
    """A field of a message, as the objects of a class hold it: the attribute's name, and the class of its parts."""

    shape: FieldShape
    attribute: str
    part: EntityType | None


@cache
def held_fields(entity_type: EntityType, held_as: EntityType) -> tuple[HeldField, ...]:
    """The fields of a message or part as the objects of kio's own class hold them, or those of a dataclass of ours, or
    a `dict` of plain values. TypeError for a field that the dataclass lacks."""
    shapes = shape_of(entity_type)
    if issubclass(held_as, entity_type):
        return tuple(HeldField(each, each.name, each.part) for each in shapes)
    if held_as is dict:
        return tuple(HeldField(each, each.name, dict) for each in shapes)
    hints = get_type_hints(held_as)
    names = [_attribute(held_as, each.name) for each in shapes]
    return tuple(HeldField(each, name, _part(hints.get(name))) for each, name in zip(shapes, names, strict=True))


def _attribute(held_as: EntityType, name: str) -> str:
    for attribute in (name, f"{name}_ms", name.removesuffix("_code")):
        if hasattr(held_as, attribute):
            return attribute
    raise TypeError(f"{held_as.__name__} has no {name}")


def _part(hint: Any) -> EntityType | None:
    """The dataclass within `X`, `X | None`, `tuple[X, ...]`; None for anything else."""
    if get_origin(hint) in (UnionType, Union):
        return next((_part(each) for each in get_args(hint) if each is not NoneType), None)
    if get_origin(hint) is tuple:
        return _part(get_args(hint)[0])
    return hint if hasattr(hint, "__dataclass_fields__") else None


@cache
def request_type(api_key: int, version: int) -> EntityType:
    """kio's class of a request; KeyError when it has none. DeleteRecords may name a topic's id beside its name."""
    if version not in known_versions(api_key):
        raise KeyError(f"API {api_key} version {version}")
    found: EntityType = load_request_schema(api_key, version)
    return _with_topic_ids(found) if api_key == ApiKey.DELETE_RECORDS and found.__flexible__ else found


def _with_topic_ids(request: EntityType) -> EntityType:
    """kio's class with an id in each of its `topics`, which is a tagged field (KIP-482)."""
    (topics,) = (each for each in shape_of(request) if each.name == "topics")
    topic_id = field_of(default=None, metadata={"kafka_type": "uuid", "tag": TOPIC_ID_TAG})
    topic = _extended(topics.part, ("topic_id", str | None, topic_id))
    return _extended(request, ("topics", _array_of(topic)))


def _array_of(part: EntityType) -> Any:
    return tuple.__class_getitem__((part, ...))


def _extended(of: EntityType, *given: Any) -> EntityType:
    return make_dataclass(of.__name__, given, bases=(of,), frozen=True, slots=True, kw_only=True)


@cache
def response_type(api_key: int, version: int) -> EntityType:
    """kio's class of the response to a request of this version."""
    return load_response_schema(api_key, version)


@cache
def known_versions(api_key: int) -> frozenset[int]:
    """The versions of an API's requests in kio; none for an unknown API."""
    versions = schema_name_map[api_key_map[api_key]] if api_key in api_key_map else {}
    return frozenset(version for version, types in versions.items() if Kind.request in types)


@cache
def names_in_any_version(api_key: int) -> frozenset[str]:
    """The names of all fields of an API's messages and their parts in any version; any other name is a defect."""
    names: set[str] = set()
    versions = known_versions(api_key)
    waiting: list[EntityType] = [
        each(api_key, version) for version in versions for each in (request_type, response_type)
    ]
    while waiting:
        for field in shape_of(waiting.pop()):
            names.add(field.name)
            if field.part is not None:
                waiting.append(field.part)
    return frozenset(names)
