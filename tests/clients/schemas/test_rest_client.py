"""The client of registry servers: requests as confluent-kafka sends them, answers as servers give them.

`confluent_requests.json` holds the requests of confluent-kafka 2.16 (`python -m tests.clients.schemas.record`).
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from http.client import HTTPMessage
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request
from uuid import UUID

import pytest

from stratalog.clients.schemas import errors
from stratalog.clients.schemas.avro import AvroDeserializer, AvroSerializer
from stratalog.clients.schemas.rest_client import SchemaRegistryClient
from stratalog.clients.schemas.schema import RegisteredSchema, Schema, SchemaReference, SchemaType
from stratalog.clients.serialization import VALUE, SerializationContext
from stratalog.server.http_redirects import SafeRedirects
from stratalog.storage.errors import InvalidConfigError
from tests.clients.schemas.registry_server import RegistryServer, StateServer

AVRO = '{"type":"record","name":"Order","fields":[{"name":"id","type":"long"}]}'
GUID = "89791762-2336-4186-9674-299b90a802e2"
ORDER = {"subject": "orders-value", "version": 1, "id": 7, "guid": GUID, "schemaType": "AVRO", "schema": AVRO}
REFERENCE = {"name": "Order", "subject": "orders-value", "version": 1}
ANSWERS: dict[str, Any] = {
    "POST /subjects/orders-value/versions": (200, ORDER),
    "POST /subjects/orders-value": (200, ORDER),
    "GET /schemas/ids/7": (200, {"schema": AVRO, "schemaType": "AVRO", "guid": GUID}),
    f"GET /schemas/guids/{GUID}": (200, {"schema": AVRO, "schemaType": "AVRO", "guid": GUID}),
    "GET /subjects/orders-value/versions/latest": (200, ORDER),
    "GET /subjects/orders-value/versions/1": (200, ORDER),
    "GET /subjects/orders-value/versions": (200, [1]),
    "GET /subjects": (200, ["orders-value"]),
    "GET /schemas/ids/7/versions": (200, [{"subject": "orders-value", "version": 1}]),
    "GET /subjects/orders-value/versions/1/referencedby": (200, [8]),
    "DELETE /subjects/orders-value": (200, [1]),
    "DELETE /subjects/orders-value/versions/1": (200, 1),
    "POST /compatibility/subjects/orders-value/versions": (200, {"is_compatible": True}),
    "POST /compatibility/subjects/orders-value/versions/1": (200, {"is_compatible": True}),
    "GET /config": (200, {"compatibilityLevel": "BACKWARD"}),
    "GET /config/orders-value": (200, {"compatibilityLevel": "FULL"}),
    "PUT /config": (200, {"compatibility": "NONE"}),
    "PUT /config/orders-value": (200, {"compatibility": "NONE"}),
    "DELETE /config/orders-value": (200, {"compatibilityLevel": "NONE"}),
}
SCHEMA = Schema(AVRO)
FOUND = RegisteredSchema(SCHEMA, 7, UUID(GUID), "orders-value", 1)
USING = Schema("[]", references=(SchemaReference("Order", "orders-value", 1),))

CALLS: dict[str, tuple[Callable[[SchemaRegistryClient], object], object]] = {
    "register": (lambda c: c.register("orders-value", SCHEMA), FOUND),
    "register_references": (lambda c: c.register("orders-value", USING).id, 7),
    "lookup": (lambda c: c.lookup("orders-value", SCHEMA), FOUND),
    "schema_by_id": (lambda c: c.schema_by_id(7), RegisteredSchema(SCHEMA, 7, UUID(GUID))),
    "schema_by_guid": (lambda c: c.schema_by_guid(UUID(GUID)), RegisteredSchema(SCHEMA, None, UUID(GUID))),
    "latest": (lambda c: c.version("orders-value"), FOUND),
    "version": (lambda c: c.version("orders-value", 1), FOUND),
    "versions": (lambda c: c.versions("orders-value"), [1]),
    "subjects": (lambda c: c.subjects("orders"), ["orders-value"]),
    "subject_versions": (lambda c: c.subject_versions(7), [("orders-value", 1)]),
    "referenced_by": (lambda c: c.referenced_by("orders-value", 1), [8]),
    "delete_subject": (lambda c: c.delete_subject("orders-value"), [1]),
    "delete_subject_permanent": (lambda c: c.delete_subject("orders-value", permanent=True), [1]),
    "delete_version": (lambda c: c.delete_version("orders-value", 1), 1),
    "incompatibilities": (lambda c: c.incompatibilities("orders-value", SCHEMA), []),
    "incompatibilities_of_version": (lambda c: c.incompatibilities("orders-value", SCHEMA, 1), []),
    "compatibility": (lambda c: c.compatibility(), "BACKWARD"),
    "compatibility_of_subject": (lambda c: c.compatibility("orders-value"), "FULL"),
    "set_compatibility": (lambda c: c.set_compatibility("none"), None),
    "set_compatibility_of_subject": (lambda c: c.set_compatibility("none", "orders-value"), None),
    "delete_compatibility": (lambda c: c.delete_compatibility("orders-value"), None),
}
RECORDED = json.loads((Path(__file__).parent / "confluent_requests.json").read_text(encoding="utf-8"))
DEFAULTS = {"normalize": "false", "deleted": "false", "deleted_only": "false", "offset": "0", "limit": "-1"}
"""Parameters that say what is the case without them."""
OURS = {"verbose", "defaultToGlobal"}


def told(query: Iterable[Sequence[str]]) -> dict[str, str]:
    return {name: value for name, value in query if DEFAULTS.get(name) != value and name not in OURS}


@pytest.mark.parametrize("name", CALLS)
def test_a_call_asks_as_confluent_kafka_does(name: str) -> None:
    call, expected = CALLS[name]
    with RegistryServer(ANSWERS) as server:
        assert call(SchemaRegistryClient({"url": server.url})) == expected
        asked = server.asked[0]
        method, path, query, body = RECORDED[name]
        assert (asked.method, asked.path, asked.body) == (method, path, body)
        assert told(asked.query) == told(query)


def test_every_recorded_request_has_a_call() -> None:
    assert RECORDED.keys() == CALLS.keys()


REFUSALS = [
    (404, {"error_code": 40401, "message": "Subject 'x' not found."}, errors.SubjectNotFoundError),
    (404, {"error_code": 40402, "message": "Version 9 not found."}, errors.SchemaVersionNotFoundError),
    (404, {"error_code": 40403, "message": "Schema not found"}, errors.SchemaNotFoundError),
    (409, {"error_code": 409, "message": "Schema being registered is incompatible"}, errors.IncompatibleSchemaError),
    (409, {"error_code": 40901, "message": "incompatible"}, errors.IncompatibleSchemaError),
    (422, {"error_code": 42201, "message": "Invalid schema"}, errors.InvalidSchemaError),
    (422, {"error_code": 42202, "message": "The specified version '-2' is not"}, errors.InvalidSchemaVersionError),
    (422, {"error_code": 42205, "message": "Subject x is in read-only mode"}, errors.OperationNotPermittedError),
    (422, {"error_code": 42206, "message": "One or more references exist"}, errors.ReferenceExistsError),
    (500, {"error_code": 50001, "message": "Error in the backend datastore"}, errors.RegistryUnavailableError),
    (401, {"error_code": 401, "message": "Unauthorized"}, errors.SchemaRegistryError),
    (200, "<html>", errors.SchemaRegistryError),
    (502, "<html>Bad Gateway", errors.RegistryUnavailableError),
]


@pytest.mark.parametrize(("status", "answer", "kind"), REFUSALS)
def test_a_refusal_is_an_error_of_our_tree(status: int, answer: object, kind: type[errors.SchemaRegistryError]) -> None:
    with RegistryServer({"GET /subjects/x/versions/latest": (status, answer)}) as server:
        client = SchemaRegistryClient({"url": server.url, "max.retries": 0})
        with pytest.raises(errors.SchemaRegistryError) as raised:
            client.version("x")
    assert type(raised.value) is kind
    if isinstance(answer, dict):
        assert raised.value.error_code == answer["error_code"]
        assert str(answer["message"]) in str(raised.value)


class StillClock:
    def __init__(self) -> None:
        self.slept: list[float] = []

    def wall_ms(self) -> int:
        return 0

    def monotonic_ms(self) -> int:
        return 0

    def sleep_ms(self, duration_ms: float) -> None:
        self.slept.append(duration_ms)


def test_an_outage_is_waited_for_with_growing_pauses() -> None:
    outage = (503, {"error_code": 50003, "message": "Error while forwarding the request to the primary"})
    clock = StillClock()
    with RegistryServer({"GET /subjects": [outage, outage, (200, ["x"])]}) as server:
        client = SchemaRegistryClient({"url": server.url}, clock=clock, rng=random.Random(1))
        assert client.subjects() == ["x"]
        assert len(server.asked) == 3
    assert 0 <= clock.slept[0] <= 1_000
    assert 0 <= clock.slept[1] <= 2_000


def test_the_next_address_is_asked_when_one_does_not_answer() -> None:
    with RegistryServer({"GET /subjects": (200, ["x"])}) as server:
        config = {"schema.registry.url": f"http://127.0.0.1:1,{server.url}", "max.retries": 0}
        assert SchemaRegistryClient(config).subjects() == ["x"]
    with pytest.raises(errors.RegistryUnavailableError, match="check url"):
        SchemaRegistryClient({"url": "http://127.0.0.1:1", "max.retries": 0}).subjects()


def test_what_never_changes_is_asked_once() -> None:
    with RegistryServer(ANSWERS) as server:
        client = SchemaRegistryClient({"url": server.url})
        for _ in range(2):
            client.schema_by_id(7)
            client.version("orders-value", 1)
            client.register("orders-value", SCHEMA)
        assert len(server.asked) == 3
        for _ in range(2):
            client.version("orders-value")
        assert len(server.asked) == 5


def test_an_older_server_that_answers_the_id_alone_is_asked_for_the_version() -> None:
    answers = ANSWERS | {"POST /subjects/orders-value/versions": (200, {"id": 7})}
    with RegistryServer(answers) as server:
        assert SchemaRegistryClient({"url": server.url}).register("orders-value", SCHEMA) == FOUND
        assert [each.path for each in server.asked] == ["/subjects/orders-value/versions", "/subjects/orders-value"]


def test_a_protobuf_schema_is_asked_for_as_a_descriptor() -> None:
    text = {"schema": 'syntax = "proto3";', "schemaType": "PROTOBUF"}
    descriptor = {"schema": "CgR4LnByb3Rv", "schemaType": "PROTOBUF"}
    with RegistryServer({"GET /schemas/ids/7": [(200, text), (200, descriptor)]}) as server:
        found = SchemaRegistryClient({"url": server.url}).schema_by_id(7)
        assert server.asked[1].query == (("format", "serialized"),)
    assert found.schema == Schema("CgR4LnByb3Rv", SchemaType.PROTOBUF)


def test_a_redirect_to_another_server_is_not_followed_with_a_login() -> None:
    with RegistryServer({"GET /subjects": (200, ["a"])}) as other, RegistryServer({}) as registry:
        plain = SchemaRegistryClient({"url": registry.url})
        alice = SchemaRegistryClient({"url": registry.url, "basic.auth.user.info": "alice:secret"})
        registry.redirects["/subjects"] = f"{other.url}/subjects"
        with pytest.raises(errors.SchemaRegistryError, match="is not followed: it is another server"):
            alice.subjects()
        assert other.asked == []
        assert plain.subjects() == ["a"], "without a login it is"
        registry.redirects["/subjects"] = f"{registry.url}/moved"
        with pytest.raises(errors.SchemaRegistryError, match="404"):
            alice.subjects()
        assert registry.asked[-1].path == "/moved", "the same server answers for what it moved"


@pytest.mark.parametrize(
    ("before", "after", "login", "is_followed"),
    [
        ("https://a/x", "https://a/y", True, True),
        ("https://a/x", "https://a:443/y", True, True),
        ("http://a/x", "http://a:81/y", True, False),
        ("http://a/x", "https://a/y", True, False),
        ("http://a/x", "https://b/y", False, True),
        ("https://a/x", "http://a/y", False, False),
        ("https://a/x", "ftp://a/y", False, False),
    ],
)
def test_redirects_that_may_be_followed(before: str, after: str, login: bool, is_followed: bool) -> None:
    request = Request(before, headers={"Authorization": "Bearer x"} if login else {})
    redirect = partial(SafeRedirects().redirect_request, request, BytesIO(), 302, "Found", HTTPMessage(), after)
    if is_followed:
        found = redirect()
        assert found is not None
        assert found.full_url == after
    else:
        with pytest.raises(HTTPError, match="is not followed"):
            redirect()


def test_a_subject_with_a_slash_stays_one_part_of_the_path() -> None:
    with RegistryServer({"GET /subjects/a%2Fb%20c/versions": (200, [1])}) as server:
        assert SchemaRegistryClient({"url": server.url}).versions("a/b c") == [1]


@pytest.mark.parametrize(
    ("config", "header"),
    [
        ({"basic.auth.user.info": "ann:s:ecret"}, "Basic YW5uOnM6ZWNyZXQ="),
        ({"bearer.auth.token": "abc"}, "Bearer abc"),
    ],
)
def test_a_login_is_sent(config: dict[str, str], header: str) -> None:
    with RegistryServer({"GET /subjects": (200, [])}) as server:
        client = SchemaRegistryClient({"url": server.url, **config})
        assert client.subjects() == []
        assert server.asked[0].headers["Authorization"] == header
    assert "ecret" not in repr(client.config)


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({}, "Missing required configuration url"),
        ({"url": "localhost:8081"}, "must begin with http"),
        ({"url": "http://ann:secret@host"}, "basic.auth.user.info"),
        ({"url": "http://host", "max.retry": 1}, "did you mean max.retries"),
        ({"url": "http://host", "basic.auth.user.info": "a:b", "bearer.auth.token": "c"}, "both set"),
        ({"url": "https://host", "ssl.ca.location": "/nowhere.pem"}, "ssl.ca.location"),
        ("localhost:8081", "must begin with http"),
        ("", "must be the address"),
        (None, "are a mapping such as"),
        (["http://host"], "are a mapping such as"),
    ],
)
def test_a_bad_config_is_refused(config: Any, reason: str) -> None:
    with pytest.raises(InvalidConfigError, match=reason):
        SchemaRegistryClient(config)


def test_an_address_alone_is_a_config() -> None:
    with RegistryServer({"GET /subjects": (200, ["x"])}) as server:
        assert SchemaRegistryClient(server.url).subjects() == ["x"]


def test_the_server_says_why_a_schema_is_incompatible() -> None:
    path = "POST /compatibility/subjects/orders-value/versions"
    with RegistryServer({path: (200, {"is_compatible": False, "messages": ["a", "b"]})}) as server:
        assert SchemaRegistryClient({"url": server.url}).incompatibilities("orders-value", SCHEMA) == ["a", "b"]
        assert ("verbose", "true") in server.asked[0].query
    with RegistryServer({path: (200, {"is_compatible": False})}) as server:
        assert len(SchemaRegistryClient({"url": server.url}).incompatibilities("orders-value", SCHEMA)) == 1


@pytest.mark.parametrize("location", ["prefix", "header"])
def test_serializers_and_client_work_with_a_server_that_keeps_schemas(location: str) -> None:
    place = SerializationContext("orders", VALUE)
    with StateServer() as server:
        writer, reader = (SchemaRegistryClient({"url": server.url}) for _ in range(2))
        encoded = AvroSerializer(writer, AVRO, {"schema.id.serializer": location})({"id": 7}, place)
        assert AvroDeserializer(reader)(encoded, place) == {"id": 7}
        assert reader.version("orders-value") == reader.lookup("orders-value", SCHEMA)
        with pytest.raises(errors.IncompatibleSchemaError, match="TYPE_MISMATCH"):
            writer.register("orders-value", Schema('"string"'))
        with pytest.raises(errors.SchemaNotFoundError):
            reader.schema_by_id(2)
