"""Keys and values by their schemas, pages of subjects, and that nobody sees of a subject what is hidden from him."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import cast

import pytest
from starlette.testclient import TestClient

from stratalog.clients.console.agents import answer_text
from stratalog.clients.console.asker import Asker
from stratalog.clients.console.beside import Beside
from stratalog.clients.console.catalogue import QUESTIONS
from stratalog.clients.console.questions.records import Records, ShownRecord
from stratalog.clients.console.questions.schemas import SchemaFit, SchemaText, SubjectList, SubjectUsers
from stratalog.clients.console.schemas.avro_json import AvroText
from stratalog.clients.console.schemas.decoded import DECODING_MS_MAX
from stratalog.clients.schemas.avro_values import avro_type
from stratalog.clients.schemas.errors import SchemaNotFoundError, SubjectNotFoundError
from stratalog.clients.schemas.rest_client import SchemaRegistryClient
from stratalog.clients.schemas.schema import Schema
from stratalog.jobs.command.opened import OpenedCluster
from stratalog.replication.metadata.acls import Authorizer, Principal, ResourceType
from stratalog.storage.errors import SerializationError
from tests.clients.console.asked_cluster import NOW_MS, console_of, everybody, filled_cluster, rule
from tests.clients.console.schema_records import BOMB, ORDER, ORDER_VALUE, TOPIC, WIDER, bomb_bytes, schema_records
from tests.clients.schemas.registry_server import StateServer

ABSENT = "there is no schema {} that you may see"


@pytest.fixture(scope="module")
def cluster() -> Iterator[OpenedCluster]:
    with filled_cluster() as opened:
        yield opened


def reader(cluster: OpenedCluster, *topics: str) -> Asker:
    """A user who may read some topics."""
    rules = [rule("User:carol", ResourceType.TOPIC, each) for each in topics]
    return Asker(cluster, Principal("User:carol"), Authorizer(rules), NOW_MS)


def read(asker: Asker, **given: str) -> list[ShownRecord]:
    found = cast("Records", QUESTIONS["records"].ask(asker, {"topic": TOPIC, "where": "oldest", **given}))
    assert found.schemas_problem == ""
    return found.records


def test_values_of_each_kind_are_read_by_their_schemas(cluster: OpenedCluster) -> None:
    first, wider, text, message, *_ = read(everybody(cluster))
    assert first.key_read is not None
    assert (first.key_read.text, first.key_read.subject) == ('"ann"', f"{TOPIC}-key")
    for each, version in ((first, 1), (wider, 2)):
        assert each.value_read is not None
        assert (each.value_read.subject, each.value_read.version) == (f"{TOPIC}-value", version)
        assert (each.value_read.kind, each.value_read.message) == ("AVRO", "acme.Order")
        assert json.loads(each.value_read.text) == {
            **ORDER_VALUE, "at": "2023-11-14T22:13:20.123Z", **({"note": "now"} if version == 2 else {}),
        }  # fmt: skip
    assert text.value_read is not None
    assert message.value_read is not None
    assert (text.value_read.text, text.value_read.kind, text.value_read.subject) == (
        '{"text":"1.50 <i>"}',
        "JSON",
        "Note",
    )
    assert json.loads(message.value_read.text) == {"sensor_id": "5", "place": "roof"}
    assert (message.value_read.kind, message.value_read.message) == ("PROTOBUF", "acme.Reading")


def test_a_schema_named_in_a_header_is_read(cluster: OpenedCluster) -> None:
    found = read(everybody(cluster))[9].value_read
    assert found is not None
    assert (found.subject, found.version, found.problem) == (f"{TOPIC}-value", 1, "")


def test_what_cannot_be_read_is_shown_with_the_reason(cluster: OpenedCluster) -> None:
    records = read(everybody(cluster))
    problems = [each.value_read.problem if each.value_read else None for each in records]
    assert problems[5] == ABSENT.format(999)
    assert problems[6] is not None
    assert "too many values" in problems[6]
    assert problems[7] is not None
    assert "do not fit the Avro schema" in problems[7]
    assert problems[8] is None
    assert records[8].value.text == "plain text"
    assert records[5].value.text.startswith("00 00")


def test_bytes_alone_are_shown_when_they_are_asked_for(cluster: OpenedCluster) -> None:
    assert all(each.value_read is None and each.key_read is None for each in read(everybody(cluster), raw="on"))


def test_a_search_finds_what_the_schema_makes_of_a_value(cluster: OpenedCluster) -> None:
    assert [each.offset for each in read(everybody(cluster), contains="2023-11-14")] == [0, 1, 9]
    assert [each.offset for each in read(everybody(cluster), contains="2023-11-14", part="key")] == []


def test_a_payload_of_billions_of_values_costs_what_its_bound_allows() -> None:
    text = AvroText(avro_type(Schema(json.dumps(BOMB))))
    begun = time.thread_time()
    with pytest.raises(SerializationError, match="too many values"):
        text(bomb_bytes())
    assert time.thread_time() - begun < DECODING_MS_MAX / 1_000


def test_a_list_that_contains_itself_is_refused_when_it_is_too_deep() -> None:
    node = avro_type(Schema('{"type":"record","name":"L","fields":[{"name":"next","type":["null","L"]}]}'))
    text = AvroText(node)
    assert json.loads(text(b"\x02\x02\x00")) == {"next": {"next": {"next": None}}}
    with pytest.raises(SerializationError, match="deep"):
        text(b"\x02" * 100_000)


# -- who sees what -------------------------------------------------------------------------------------------


def test_the_reader_of_a_topic_sees_the_subjects_of_its_name_alone(cluster: OpenedCluster) -> None:
    carol = reader(cluster, TOPIC)
    records = read(carol)
    assert [each.value_read.problem if each.value_read else None for each in records[:2]] == ["", ""]
    assert [each.value_read.problem if each.value_read else None for each in records[2:6]] == [
        ABSENT.format(number) for number in (4, 5, 6, 999)
    ]
    found = cast("SubjectList", QUESTIONS["schemas"].ask(carol, {}))
    assert [each.subject for each in found.subjects] == [f"{TOPIC}-key", f"{TOPIC}-value"]
    with pytest.raises(SchemaNotFoundError, match="Schema 6 not found"):
        QUESTIONS["schema_by_id"].ask(carol, {"schema_id": "6"})
    for name in ("schema", "schema_users", "schema_fits"):
        with pytest.raises(SubjectNotFoundError):
            QUESTIONS[name].ask(carol, {"subject": "hidden-payroll-value", **({"text": "1"} if "fits" in name else {})})


def test_a_schema_that_refers_to_a_hidden_one_is_hidden(cluster: OpenedCluster) -> None:
    """Its values would show the fields of the other."""
    carol = reader(cluster, TOPIC, "orders")
    found = read(carol)[10].value_read
    assert found is not None
    assert found.problem == ABSENT.format(found.schema)
    shown = cast("SchemaText", QUESTIONS["schema"].ask(carol, {"subject": "orders-value"}))
    assert shown.references == []
    with pytest.raises(SubjectNotFoundError):
        QUESTIONS["schema_fits"].ask(carol, {"subject": "orders-value", "text": '"int"'})
    whole = read(everybody(cluster))[10].value_read
    assert whole is not None
    assert json.loads(whole.text) == {"part": {"size": 2}}


def test_the_reader_of_the_schema_topic_sees_all(cluster: OpenedCluster) -> None:
    found = read(reader(cluster, TOPIC, "_schemas"))[4].value_read
    assert found is not None
    assert (found.subject, json.loads(found.text)) == ("hidden-payroll-value", {"salary": "1"})


# -- subjects ------------------------------------------------------------------------------------------------


def test_a_version_is_shown_with_what_differs_from_the_one_before(cluster: OpenedCluster) -> None:
    found = cast("SchemaText", QUESTIONS["schema"].ask(everybody(cluster), {"subject": f"{TOPIC}-value"}))
    assert (found.version, found.versions, found.against, found.compatibility) == (2, [2, 1], 1, "BACKWARD")
    assert json.loads(found.text) == WIDER
    assert [each for each in found.differences if each.startswith("+") and "note" in each] == ['+      "name": "note",']


def test_a_schema_fits_or_the_reasons_are_named(cluster: OpenedCluster) -> None:
    def fits(schema: object) -> SchemaFit:
        given = {"subject": f"{TOPIC}-value", "text": json.dumps(schema)}
        return cast("SchemaFit", QUESTIONS["schema_fits"].ask(everybody(cluster), given))

    assert fits(ORDER).fits
    narrow = {**ORDER, "fields": [*ORDER["fields"], {"name": "count", "type": "int"}]}
    refused = fits(narrow)
    assert (refused.fits, "READER_FIELD_MISSING_DEFAULT_VALUE" in refused.reasons[0]) == (False, True)


def test_topics_that_use_a_subject_are_found_by_their_records(cluster: OpenedCluster) -> None:
    def users(subject: str) -> list[tuple[str, str, bool, list[int]]]:
        found = cast("SubjectUsers", QUESTIONS["schema_users"].ask(everybody(cluster), {"subject": subject}))
        return [(each.topic, each.part, each.is_named, each.versions) for each in found.topics]

    assert users(f"{TOPIC}-value") == [(TOPIC, "value", True, [2, 1])]
    assert users("Note") == [(TOPIC, "value", False, [1])]


PAGES = {
    "/schemas": ["decoded-value", "hidden-payroll-value", "topic _schemas", "BACKWARD"],
    "/schema?subject=decoded-value": ["What differs from version 1", "&#34;acme&#34;"],
    "/schema_users?subject=Note": ["Versions in the newest records", TOPIC],
    "/schema_fits?subject=decoded-value": ["Would it fit?"],
    f"/records?topic={TOPIC}": ["decoded-value v2", "&lt;b&gt;ápples", "not decoded: there is no schema 999"],
    f"/record?topic={TOPIC}&partition=0&offset=0": ["Download as JSON", "AVRO, schema 1, acme.Order", "Show the bytes"],
    f"/record?topic={TOPIC}&partition=0&offset=0&raw=on": ["Decode by schema"],
    "/ask/schema_by_id?schema_id=1": ["decoded-value"],
}


@pytest.mark.parametrize("address", PAGES)
def test_a_page_shows_schemas(cluster: OpenedCluster, address: str) -> None:
    browser = TestClient(console_of(cluster)[0].application(), follow_redirects=False)
    answer = browser.get(address)
    assert answer.status_code == 200, answer.text
    for text in PAGES[address]:
        assert text in answer.text
    assert "<b>ápples" not in answer.text


def test_a_decoded_value_is_downloaded_as_json(cluster: OpenedCluster) -> None:
    browser = TestClient(console_of(cluster)[0].application(), follow_redirects=False)
    address = f"/download?topic={TOPIC}&partition=0&offset=0&part=value&decoded=on"
    answer = browser.get(address)
    assert answer.headers["content-disposition"].endswith(".value.json")
    assert answer.json()["item"] == ORDER_VALUE["item"]
    assert browser.get(address.replace("offset=0", "offset=8")).status_code == 400


def test_agents_get_decoded_values(cluster: OpenedCluster) -> None:
    told = json.loads(answer_text(everybody(cluster), "record", {"topic": TOPIC, "partition": 0, "offset": 0}))
    assert told["record"]["value_read"]["subject"] == f"{TOPIC}-value"


# -- a server ------------------------------------------------------------------------------------------------


def test_a_registry_server_is_asked_when_one_is_named(cluster: OpenedCluster) -> None:
    with StateServer() as server:
        for named, text in schema_records()[0]:
            server.state.apply(named, text)
        beside = Beside(SchemaRegistryClient({"url": server.url, "max.retries": 0}))
        asker = Asker(cluster, Principal(), None, NOW_MS, beside)
        texts = [each.value_read.text if each.value_read else "" for each in read(asker)]
        assert [bool(each) for each in texts] == [True] * 5 + [False] * 4 + [True, True]
        count = len(server.asked)
        assert count < 40
        read(asker)
        assert len(server.asked) == count + 1  # for the schema that is not there
        found = cast("SubjectList", QUESTIONS["schemas"].ask(asker, {"contains": "decoded"}))
        assert (found.registry, [each.versions for each in found.subjects]) == (server.url, [1, 2])


def test_a_registry_that_does_not_answer_leaves_bytes_and_the_reason(cluster: OpenedCluster) -> None:
    with StateServer() as server:
        url = server.url
    beside = Beside(SchemaRegistryClient({"url": url, "max.retries": 0}))
    records = read(Asker(cluster, Principal(), None, NOW_MS, beside))
    assert records[0].value_read is not None
    assert records[0].value_read.problem.startswith("the registry does not answer")
    assert records[0].value.size_bytes > 0
