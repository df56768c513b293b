"""Records what confluent-kafka's registry client asks, for `test_rest_client`: needs `make clients` first.

    python -m tests.clients.schemas.record

I/O: writes `confluent_requests.json`.
"""

from __future__ import annotations

import json
from pathlib import Path

from tests.clients.schemas.registry_server import RegistryServer
from tests.clients.schemas.test_rest_client import ANSWERS, AVRO, GUID


def main() -> None:
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
    text = "{\n" + ",\n".join(f"{json.dumps(name)}: {json.dumps(each)}" for name, each in recorded.items()) + "\n}\n"
    (Path(__file__).parent / "confluent_requests.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
