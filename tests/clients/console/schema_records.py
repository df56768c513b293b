"""Records of a topic by schemas of each kind, with the registry's own records: what a console decodes, and what not."""

from __future__ import annotations

import json

from google.protobuf import descriptor_pb2, message_factory
from google.protobuf.descriptor_pool import DescriptorPool

from stratalog.clients.schemas.avro import AvroSerializer
from stratalog.clients.schemas.json_schema import JsonSerializer
from stratalog.clients.schemas.protobuf import ProtobufSerializer
from stratalog.clients.schemas.registry_state import SchemaRecord
from stratalog.clients.schemas.schema import Schema, SchemaReference, SchemaType
from stratalog.clients.serialization import KEY, VALUE, SerializationContext
from tests.clients.schemas.memory_registry import MemoryRegistry

TOPIC = "decoded"
ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "acme",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "item", "type": "string"},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ],
}
WIDER = {**ORDER, "fields": [*ORDER["fields"], {"name": "note", "type": ["null", "string"], "default": None}]}
SECRET = {"type": "record", "name": "Pay", "doc": "hidden-doc", "fields": [{"name": "salary", "type": "string"}]}
BOMB = {"type": "array", "items": {"type": "array", "items": "null"}}
PART = {"type": "record", "name": "Part", "namespace": "acme", "fields": [{"name": "size", "type": "int"}]}
USING = {"type": "record", "name": "Using", "fields": [{"name": "part", "type": "acme.Part"}]}
JSON = {"title": "Note", "type": "object", "properties": {"text": {"type": "string"}}}
ORDER_VALUE = {"id": 7, "item": "<b>ápples</b>", "price": "12.34", "at": 1_700_000_000_123}


class RecordedRegistry(MemoryRegistry):
    """A registry that keeps the records of its topic."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[SchemaRecord] = []

    def register(self, subject: str, schema: Schema):  # type: ignore[no-untyped-def]
        self.records += self.state.register(subject, schema).records
        return super().register(subject, schema)


def protobuf_class() -> type:
    """A message `acme.Reading` with a repeated one."""
    file = descriptor_pb2.FileDescriptorProto(name="reading.proto", package="acme", syntax="proto3")
    message = file.message_type.add(name="Reading")
    field = descriptor_pb2.FieldDescriptorProto
    message.field.add(name="sensor_id", number=1, type=field.TYPE_INT64, label=field.LABEL_OPTIONAL)
    message.field.add(name="place", number=2, type=field.TYPE_STRING, label=field.LABEL_OPTIONAL)
    pool = DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("acme.Reading"))


def bomb_bytes() -> bytes:
    """4 KiB of Avro for 13 million nulls: arrays of 10,000, each of three bytes."""
    inner = b"\xa0\x9c\x01\x00"  # 10,000 items of no byte, and the end
    return b"\x80\x10" + inner * 1_024 + b"\x00"


def schema_records() -> tuple[list[SchemaRecord], list[tuple[bytes | None, bytes | None, list[tuple[str, bytes]]]]]:
    """The records of the schema topic; key, value and headers of the records of the topic."""
    from decimal import Decimal

    registry = RecordedRegistry()
    value, key = SerializationContext(TOPIC, VALUE), SerializationContext(TOPIC, KEY)
    order = {**ORDER_VALUE, "price": Decimal("12.34")}
    written = AvroSerializer(registry, json.dumps(ORDER))(order, value)
    keyed = AvroSerializer(registry, '"string"')("ann", key)
    wider = AvroSerializer(registry, json.dumps(WIDER))({**order, "note": "now"}, value)
    by_record = {"subject.name.strategy": "RecordNameStrategy"}
    text = JsonSerializer(registry, json.dumps(JSON), by_record)({"text": "1.50 <i>"}, value)
    reading = protobuf_class()
    message = ProtobufSerializer(registry, reading, by_record)(reading(sensor_id=5, place="roof"), value)
    secret = AvroSerializer(registry, json.dumps(SECRET))(
        {"salary": "1"}, SerializationContext("hidden-payroll", VALUE)
    )
    bomb = registry.register("bomb-value", Schema(json.dumps(BOMB)))
    headed = SerializationContext(TOPIC, VALUE)
    alone = AvroSerializer(registry, json.dumps(ORDER), {"schema.id.serializer": "header"})(order, headed)
    registry.register("hidden-part-value", Schema(json.dumps(PART)))
    reference = SchemaReference("acme.Part", "hidden-part-value", 1)
    using = registry.register("orders-value", Schema(json.dumps(USING), SchemaType.AVRO, (reference,)))
    assert bomb.id is not None
    assert using.id is not None
    frame = bytes([0]) + bomb.id.to_bytes(4, "big")
    records: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes]]]] = [
        (keyed, written, []),
        (None, wider, []),
        (b"plain", text, []),
        (None, message, []),
        (None, secret, []),
        (None, b"\0\0\0\3\xe7payload", []),
        (None, frame + bomb_bytes(), []),
        (None, None if written is None else written[:-3], []),
        (None, b"plain text", []),
        (None, alone, [(name, data) for name, data in headed.headers if data is not None]),
        (None, bytes([0]) + using.id.to_bytes(4, "big") + b"\x04", []),
    ]
    return registry.records, records
