"""Serializers and deserializers of Avro, JSON and Protobuf; bytes are those of confluent-kafka's.

`confluent_bytes.json` holds what confluent-kafka 2.16 makes of `VALUES` (`python -m tests.clients.schemas.record`).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, struct_pb2
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from stratalog.clients.schemas.avro import AvroDeserializer, AvroSerializer
from stratalog.clients.schemas.errors import InvalidSchemaError, SchemaNotFoundError
from stratalog.clients.schemas.json_schema import JsonDeserializer, JsonSerializer
from stratalog.clients.schemas.protobuf import ProtobufDeserializer, ProtobufSerializer
from stratalog.clients.schemas.schema import Schema, SchemaReference
from stratalog.clients.serialization import KEY, VALUE, SerializationContext
from stratalog.storage.errors import InvalidConfigError, SerializationError
from tests.clients.schemas.memory_registry import MemoryRegistry

ORDER = (
    '{"type":"record","name":"Order","namespace":"shop","fields":[{"name":"id","type":"long"},'
    '{"name":"tags","type":{"type":"array","items":"string"},"default":[]},'
    '{"name":"note","type":["null","string"],"default":null}]}'
)
VALUES: dict[str, tuple[str, Any]] = {
    "record": (ORDER, {"id": 7, "tags": ["a", "ü"], "note": None}),
    "defaults": (ORDER, {"id": -1, "tags": [], "note": "x"}),
    "string": ('"string"', "grün"),
    "bytes": ('"bytes"', b"\x00\xff"),
    "map": ('{"type":"map","values":"double"}', {"a": 0.5}),
    "enum": ('{"type":"enum","name":"E","symbols":["A","B"]}', "B"),
    "decimal": ('{"type":"record","name":"D","fields":[{"name":"d","type":{"type":"int","logicalType":"date"}}]}',
                {"d": 20_000}),
}  # fmt: skip
MESSAGES = {
    "first message": struct_pb2.Struct(fields={"a": struct_pb2.Value(number_value=1.5)}),
    "third message": struct_pb2.ListValue(values=[struct_pb2.Value(string_value="x")]),
    "nested message": descriptor_pb2.DescriptorProto.ExtensionRange(start=1, end=2),
}
RECORDED = json.loads((Path(__file__).parent / "confluent_bytes.json").read_text(encoding="utf-8"))
NO_VALIDATION = {"validate": False}


def context(field: str = VALUE, topic: str = "t") -> SerializationContext:
    return SerializationContext(topic, field)


@pytest.mark.parametrize("name", VALUES)
def test_avro_bytes_are_those_of_confluent_kafka(name: str) -> None:
    schema, value = VALUES[name]
    registry = MemoryRegistry()
    encoded = AvroSerializer(registry, schema)(value, context())
    assert encoded is not None
    assert encoded.hex() == RECORDED[name]
    read = AvroDeserializer(registry)(encoded, context())
    assert AvroSerializer(registry, schema)(read, context()) == encoded


@pytest.mark.parametrize("name", MESSAGES)
def test_protobuf_bytes_are_those_of_confluent_kafka(name: str) -> None:
    message = MESSAGES[name]
    registry = MemoryRegistry()
    encoded = ProtobufSerializer(registry, type(message))(message, context())
    assert encoded is not None
    assert encoded.hex() == RECORDED[name]
    assert ProtobufDeserializer(message_type=type(message))(encoded, context()) == message
    generic = ProtobufDeserializer(registry)(encoded, context())
    assert generic.DESCRIPTOR.full_name == message.DESCRIPTOR.full_name
    assert generic.SerializeToString() == message.SerializeToString()


def test_json_bytes_are_those_of_confluent_kafka() -> None:
    registry = MemoryRegistry()
    encoded = JsonSerializer(registry, '{"type":"object"}', NO_VALIDATION)({"a": [1, None, "x"]}, context())
    assert encoded is not None
    assert encoded.hex() == RECORDED["json"]
    assert JsonDeserializer(registry, NO_VALIDATION)(encoded, context()) == {"a": [1, None, "x"]}


@pytest.mark.parametrize("field", [KEY, VALUE])
def test_a_guid_in_a_header_leaves_the_payload_alone(field: str) -> None:
    registry = MemoryRegistry()
    place = context(field)
    encoded = AvroSerializer(registry, '"string"', {"schema.id.serializer": "header"})("x", place)
    assert encoded == b"\x02x"
    assert place.headers == [(f"__{field}_schema_id", bytes.fromhex("01095d71cf12556b9d5e330ad575b3df5d"))]
    assert AvroDeserializer(registry)(encoded, place) == "x"
    place = context(field, "messages")
    message = MESSAGES["third message"]
    encoded = ProtobufSerializer(registry, type(message), {"schema.id.serializer": "header"})(message, place)
    assert encoded == message.SerializeToString()
    assert ProtobufDeserializer(registry)(encoded, place).SerializeToString() == encoded


@pytest.mark.parametrize(
    ("strategy", "subject"),
    [("TopicNameStrategy", "t-key"), ("RecordNameStrategy", "shop.Order"), ("TopicRecordNameStrategy", "t-shop.Order")],
)
def test_a_strategy_names_the_subject(strategy: str, subject: str) -> None:
    registry = MemoryRegistry()
    AvroSerializer(registry, ORDER, {"subject.name.strategy": strategy})({"id": 1}, context(KEY))
    assert list(registry.state.subjects) == [subject]
    if strategy != "TopicNameStrategy":
        unnamed = AvroSerializer(registry, '"string"', {"subject.name.strategy": strategy})
        with pytest.raises(SerializationError, match="use TopicNameStrategy"):
            unnamed("x", context())


def test_the_registry_is_asked_once_for_a_subject_and_once_for_a_schema() -> None:
    registry = MemoryRegistry()
    serializer, deserializer = AvroSerializer(registry, ORDER), AvroDeserializer(registry)
    for number in range(5):
        encoded = serializer({"id": number}, context())
        assert deserializer(encoded, context())["id"] == number
    assert registry.asked == 2


def test_a_reader_gets_its_own_schema_of_every_version() -> None:
    registry = MemoryRegistry()
    old = AvroSerializer(registry, '{"type":"record","name":"R","fields":[{"name":"a","type":"int"}]}')
    newer = (
        '{"type":"record","name":"R","fields":[{"name":"a","type":"long"},{"name":"b","type":"string","default":"-"}]}'
    )
    new = AvroSerializer(registry, newer)
    written = [old({"a": 1}, context()), new({"a": 2, "b": "x"}, context())]
    reader = AvroDeserializer(registry, newer)
    assert [reader(each, context()) for each in written] == [{"a": 1, "b": "-"}, {"a": 2, "b": "x"}]


def test_without_registration_only_known_schemas_are_written() -> None:
    registry = MemoryRegistry()
    config = {"auto.register.schemas": False}
    registry.register("t-value", Schema('"string"'))
    with pytest.raises(SchemaNotFoundError):
        AvroSerializer(registry, '"int"', config)(1, context())
    assert AvroSerializer(registry, '"string"', config)("x", context()) == b"\0\0\0\0\1\2x"
    assert AvroSerializer(registry, config={"use.latest.version": True})("x", context()) == b"\0\0\0\0\1\2x"
    with pytest.raises(SerializationError, match="has no schema"):
        AvroSerializer(registry)("x", context())


def test_avro_references_are_read_from_the_registry() -> None:
    registry = MemoryRegistry()
    registry.register("order", Schema(ORDER))
    several = Schema('{"type":"array","items":"shop.Order"}', references=(SchemaReference("shop.Order", "order", 1),))
    encoded = AvroSerializer(registry, several)([{"id": 1}, {"id": 2}], context())
    read = AvroDeserializer(registry)(encoded, context())
    assert [each["id"] for each in read] == [1, 2]


def test_protobuf_imports_become_references() -> None:
    base = descriptor_pb2.FileDescriptorProto(name="base.proto", package="shop", syntax="proto3")
    base.message_type.add(name="Item").field.add(name="id", number=1, type=3, label=1)
    order = descriptor_pb2.FileDescriptorProto(
        name="order.proto", package="shop", syntax="proto3", dependency=["base.proto", "google/protobuf/struct.proto"]
    )
    fields = order.message_type.add(name="Order").field
    fields.add(name="item", number=1, type=11, label=1, type_name=".shop.Item")
    fields.add(name="more", number=2, type=11, label=1, type_name=".google.protobuf.Struct")
    pool = DescriptorPool()
    built_in = descriptor_pb2.FileDescriptorProto()
    struct_pb2.DESCRIPTOR.CopyToProto(built_in)
    for each in (built_in, base, order):
        pool.Add(each)
    kind = GetMessageClass(pool.FindMessageTypeByName("shop.Order"))
    registry = MemoryRegistry()
    message: Any = kind()
    message.item.id = 7
    encoded = ProtobufSerializer(registry, kind)(message, context())
    assert registry.version("t-value").schema.references == (SchemaReference("base.proto", "base.proto", 1),)
    assert ProtobufDeserializer(registry)(encoded, context()).item.id == 7


Serde = Callable[[MemoryRegistry], Any]
MISFITS: list[tuple[str, Serde, Any]] = [
    ("a value of another type", lambda r: AvroSerializer(r, '"long"'), "x"),
    ("a record without a field", lambda r: AvroSerializer(r, ORDER), {"note": "x"}),
    ("text for bytes", lambda r: AvroSerializer(r, '"bytes"'), "x"),
    ("a symbol that is not there", lambda r: AvroSerializer(r, VALUES["enum"][0]), "C"),
    ("a value without JSON", lambda r: JsonSerializer(r, "{}", NO_VALIDATION), {1, 2}),
    ("another message", lambda r: ProtobufSerializer(r, struct_pb2.Struct), struct_pb2.Value()),
    ("bytes without a schema", lambda r: AvroDeserializer(r), b'{"a":1}'),
    ("no byte", lambda r: AvroDeserializer(r), b""),
    ("no Protobuf", lambda r: ProtobufDeserializer(message_type=struct_pb2.Struct), b"\0\0\0\0\1\0\xff"),
]


@pytest.mark.parametrize(("make", "data"), [row[1:] for row in MISFITS], ids=[row[0] for row in MISFITS])
def test_what_does_not_fit_is_a_serialization_error(make: Serde, data: Any) -> None:
    with pytest.raises(SerializationError):
        make(MemoryRegistry())(data, context())


def test_avro_bytes_that_are_cut_off_are_a_serialization_error() -> None:
    registry = MemoryRegistry()
    encoded = AvroSerializer(registry, ORDER)({"id": 2**40, "tags": ["abc"]}, context())
    assert encoded is not None
    deserializer = AvroDeserializer(registry)
    for length in range(5, len(encoded)):
        with pytest.raises(SerializationError):
            deserializer(encoded[:length], context())
    with pytest.raises(SchemaNotFoundError):
        deserializer(b"\0\0\0\0\x09\x00", context())


def test_nothing_stays_nothing() -> None:
    registry = MemoryRegistry()
    several: list[Any] = [
        AvroSerializer(registry, ORDER), AvroDeserializer(registry), JsonSerializer(registry, "{}", NO_VALIDATION),
        JsonDeserializer(registry, NO_VALIDATION), ProtobufSerializer(registry, struct_pb2.Struct),
        ProtobufDeserializer(registry),
    ]  # fmt: skip
    assert [each(None, context()) for each in several] == [None] * 6
    assert registry.asked == 0


def test_a_schema_or_config_that_cannot_be_is_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = MemoryRegistry()
    with pytest.raises(InvalidSchemaError):
        AvroSerializer(registry, '{"type":"record","name":"R"}')
    with pytest.raises(InvalidConfigError, match=r"did you mean schema\.id\.serializer"):
        AvroSerializer(registry, ORDER, {"schema.id.serialiser": "header"})
    with pytest.raises(InvalidConfigError, match=r"leave auto\.register\.schemas out"):
        AvroSerializer(registry, ORDER, {"use.latest.version": True, "auto.register.schemas": True})
    monkeypatch.setitem(sys.modules, "jsonschema", None)
    with pytest.raises(InvalidConfigError, match=r"stratalog\[schemas\]"):
        JsonSerializer(registry, "{}")
