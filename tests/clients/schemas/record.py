"""Records what confluent-kafka's registry client asks and what its serializers write: needs `make clients` first.

    python -m tests.clients.schemas.record

I/O: writes `confluent_requests.json` and `confluent_bytes.json`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.clients.schemas.registry_server import RegistryServer
from tests.clients.schemas.test_rest_client import ANSWERS, AVRO, GUID


def requests() -> dict[str, Any]:
    from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient

    order, subject = Schema(AVRO, "AVRO"), "orders-value"
    using = Schema("[]", "AVRO", [SchemaReference("Order", subject, 1)])
    calls = {
        "register": lambda c: c.register_schema(subject, order),
        "register_references": lambda c: c.register_schema(subject, using),
        "lookup": lambda c: c.lookup_schema(subject, order),
        "schema_by_id": lambda c: c.get_schema(7),
        "schema_by_guid": lambda c: c.get_schema_by_guid(GUID),
        "latest": lambda c: c.get_latest_version(subject),
        "version": lambda c: c.get_version(subject, 1),
        "versions": lambda c: c.get_versions(subject),
        "subjects": lambda c: c.get_subjects("orders"),
        "subject_versions": lambda c: c.get_schema_versions(7),
        "referenced_by": lambda c: c.get_referenced_by(subject, 1),
        "delete_subject": lambda c: c.delete_subject(subject),
        "delete_subject_permanent": lambda c: c.delete_subject(subject, permanent=True),
        "delete_version": lambda c: c.delete_version(subject, 1),
        "incompatibilities": lambda c: c.test_compatibility_all_versions(subject, order),
        "incompatibilities_of_version": lambda c: c.test_compatibility(subject, order, 1),
        "compatibility": lambda c: c.get_compatibility(),
        "compatibility_of_subject": lambda c: c.get_compatibility(subject),
        "set_compatibility": lambda c: c.set_compatibility(level="none"),
        "set_compatibility_of_subject": lambda c: c.set_compatibility(subject, "none"),
        "delete_compatibility": lambda c: c.delete_config(subject),
    }
    recorded = {}
    for name, call in calls.items():
        with RegistryServer(ANSWERS) as server:
            call(SchemaRegistryClient({"url": server.url}))
            asked = server.asked[-1] if name.startswith("delete_subject_permanent") else server.asked[0]
            recorded[name] = [asked.method, asked.path, asked.query, asked.body]
    return recorded


def encoded() -> dict[str, str]:
    from confluent_kafka.schema_registry import SchemaRegistryClient
    from confluent_kafka.schema_registry.avro import AvroSerializer
    from confluent_kafka.schema_registry.json_schema import JSONSerializer
    from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
    from confluent_kafka.serialization import MessageField, SerializationContext

    from tests.clients.schemas.test_serializers import MESSAGES, VALUES

    place = SerializationContext("t", MessageField.VALUE, [])
    found: dict[str, str] = {}
    answer = {"id": 1, "version": 1, "subject": "t-value", "schema": "{}"}
    answers = {"POST /subjects/t-value/versions": (200, answer)}
    with RegistryServer(answers) as server:
        client = SchemaRegistryClient({"url": server.url})
        for name, (schema, value) in VALUES.items():
            found[name] = AvroSerializer(client, schema)(value, place).hex()
            client = SchemaRegistryClient({"url": server.url})
        found["json"] = JSONSerializer('{"type":"object"}', client)({"a": [1, None, "x"]}, place).hex()
        for name, message in MESSAGES.items():
            client = SchemaRegistryClient({"url": server.url})
            found[name] = ProtobufSerializer(type(message), client)(message, place).hex()
    return found


def write(name: str, recorded: Mapping[str, Any]) -> None:
    lines = ",\n".join(f"{json.dumps(key)}: {json.dumps(each)}" for key, each in recorded.items())
    (Path(__file__).parent / name).write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")


def main() -> None:
    write("confluent_requests.json", requests())
    write("confluent_bytes.json", encoded())


if __name__ == "__main__":
    main()
