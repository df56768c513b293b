"""confluent-kafka's serializers and ours, both ways: over a listener, through one registry, in our own clients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from confluent_kafka import DeserializingConsumer, SerializingProducer
from confluent_kafka.schema_registry import SchemaRegistryClient as ConfluentRegistry
from confluent_kafka.schema_registry import avro, header_schema_id_serializer, json_schema, protobuf
from google.protobuf import struct_pb2

from stratalog.clients.admin.admin import Admin
from stratalog.clients.consumer.consumer import Consumer
from stratalog.clients.producer.producer import Producer
from stratalog.clients.schemas.avro import AvroDeserializer, AvroSerializer
from stratalog.clients.schemas.json_schema import JsonDeserializer, JsonSerializer
from stratalog.clients.schemas.protobuf import ProtobufDeserializer, ProtobufSerializer
from stratalog.clients.schemas.rest_client import SchemaRegistryClient
from tests.clients.schemas.registry_server import StateServer
from tests.lab.foreign.checks import fresh
from tests.lab.foreign.served import Served

AVRO = """{"type": "record", "name": "Order", "fields": [
    {"name": "id", "type": "long"}, {"name": "note", "type": ["null", "string"], "default": null}]}"""
JSON = '{"title": "Order", "type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]}'
ORDER = {"id": 7, "note": "grün"}
LIST = struct_pb2.ListValue(values=[struct_pb2.Value(string_value="x"), struct_pb2.Value(number_value=1.5)])
WAIT_S = 30


def serdes(kind: str, theirs: ConfluentRegistry, ours: SchemaRegistryClient, *, header: bool) -> tuple[Any, ...]:
    """A value; confluent-kafka's serializer and deserializer; ours."""
    config: dict[str, Any] = {"schema.id.serializer": header_schema_id_serializer} if header else {}
    own = {"schema.id.serializer": "header" if header else "prefix"}
    if kind == "avro":
        return (
            ORDER, avro.AvroSerializer(theirs, AVRO, conf=config), avro.AvroDeserializer(theirs),
            AvroSerializer(ours, AVRO, own), AvroDeserializer(ours),
        )  # fmt: skip
    if kind == "json":
        return (
            ORDER, json_schema.JSONSerializer(JSON, theirs, conf=config), json_schema.JSONDeserializer(JSON),
            JsonSerializer(ours, JSON, own), JsonDeserializer(ours),
        )  # fmt: skip
    return (
        LIST, protobuf.ProtobufSerializer(struct_pb2.ListValue, theirs, conf=config),
        protobuf.ProtobufDeserializer(struct_pb2.ListValue, {}),
        ProtobufSerializer(ours, struct_pb2.ListValue, own), ProtobufDeserializer(ours),
    )  # fmt: skip


def both_ways(served: Served, kind: str) -> None:
    """Write with each, read with each: their client with their serializer, our client with each of both."""
    for header in (False, True):
        topic = fresh(f"schemas-{kind}")
        Admin(served.metadata_root).create_topic(topic, 1, 1)
        with StateServer() as server:
            theirs, ours = ConfluentRegistry({"url": server.url}), SchemaRegistryClient({"url": server.url})
            value, write, read, own_write, own_read = serdes(kind, theirs, ours, header=header)
            producer = SerializingProducer({"bootstrap.servers": served.bootstrap, "value.serializer": write})
            producer.produce(topic, value=value, headers=[])
            producer.flush(WAIT_S)
            for serializer in (write, own_write):
                with Producer(served.metadata_root, value_serializer=serializer) as own:
                    own.send(topic, value).result(WAIT_S)
            for deserializer in (read, own_read):
                assert [shown(each) for each in read_all(served, topic, deserializer)] == [shown(value)] * 3
            assert [shown(each) for each in read_by_theirs(served, topic, read)] == [shown(value)] * 3
            assert len(server.state.live(f"{topic}-value")) == 1


def read_all(served: Served, topic: str, deserializer: Any) -> list[Any]:
    found: list[Any] = []
    config = {"auto.offset.reset": "earliest", "value.deserializer": deserializer}
    with Consumer(served.metadata_root, config) as consumer:
        consumer.assign_all(topic)
        while len(found) < 3:
            records = consumer.poll(1_000 * WAIT_S)
            assert records, f"{len(found)} of 3 records within {WAIT_S} s"
            found += [record.value for record in records]
    return found


def read_by_theirs(served: Served, topic: str, deserializer: Any) -> list[Any]:
    config = {
        "bootstrap.servers": served.bootstrap, "group.id": fresh("schemas"), "auto.offset.reset": "earliest",
        "value.deserializer": deserializer,
    }  # fmt: skip
    consumer = DeserializingConsumer(config)
    try:
        consumer.subscribe([topic])
        found = []
        for _ in range(3):
            message = consumer.poll(WAIT_S)
            assert message is not None
            assert message.error() is None
            found.append(message.value())
        return found
    finally:
        consumer.close()


def shown(value: Any) -> Any:
    """A value that can be compared, of messages of generated and of made classes."""
    return value if isinstance(value, dict) else value.SerializeToString(deterministic=True)


def _check(kind: str) -> Callable[[Served], None]:
    return lambda served: both_ways(served, kind)


CHECKS = {
    f"{kind}: confluent-kafka's serializers and ours, ids before the payload and in headers, both ways": _check(kind)
    for kind in ("avro", "json", "protobuf")
}
