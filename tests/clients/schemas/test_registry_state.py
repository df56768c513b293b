"""The rules of a schema topic: ids, versions, levels, references, deletions."""

from __future__ import annotations

import hashlib
import json
from typing import TypeVar
from uuid import UUID

import pytest

from stratalog.clients.schemas import errors
from stratalog.clients.schemas.registry_state import Change, RegistryState
from stratalog.clients.schemas.schema import RegisteredSchema, Schema, SchemaReference, SchemaType, guid_of

T = TypeVar("T")


def order(*names: str, default: bool = True) -> Schema:
    fields = [{"name": name, "type": "long", **({"default": 0} if default else {})} for name in names]
    return Schema(json.dumps({"type": "record", "name": "Order", "fields": fields}))


class Topic:
    """A state and the records that led to it."""

    def __init__(self) -> None:
        self.state = RegistryState()
        self.records: list[tuple[bytes, bytes | None]] = []

    def store(self, change: Change[T]) -> T:
        for record in change.records:
            self.records.append(record)
            self.state.apply(*record)
        return change.answer

    def register(self, subject: str, schema: Schema) -> RegisteredSchema:
        return self.store(self.state.register(subject, schema))


def test_one_schema_has_one_id_in_all_subjects_and_a_version_in_each() -> None:
    topic = Topic()
    first = topic.register("a", order("x"))
    assert (first.id, first.version) == (1, 1)
    assert topic.register("a", order("x")) == first
    assert len(topic.records) == 1
    second = topic.register("a", order("x", "y"))
    assert (second.id, second.version) == (2, 2)
    other = topic.register("b", order("x", "y"))
    assert (other.id, other.version) == (2, 1)
    assert topic.register("c", order("z")).id == 3


def test_blanks_and_the_order_of_keys_do_not_make_another_schema() -> None:
    topic = Topic()
    first = topic.register("a", Schema('{"type": "string",  "doc": "x"}'))
    assert topic.register("a", Schema('{"doc":"x","type":"string"}')) == first
    assert first.schema.text == '{"type":"string","doc":"x"}'


def test_the_records_are_those_of_confluents_topic() -> None:
    topic = Topic()
    topic.register("s", Schema('"string"'))
    topic.store(topic.state.set_level("full", "s"))
    topic.store(topic.state.set_level("NONE", None))
    topic.store(topic.state.delete_version("s", None))
    topic.register("s", Schema("{}", SchemaType.JSON, (SchemaReference("n", "s", 1),)))
    topic.store(topic.state.delete_subject("s"))
    topic.store(topic.state.delete_level("s"))
    assert topic.records == [
        (b'{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}',
         b'{"subject":"s","version":1,"id":1,"schema":"\\"string\\"","deleted":false}'),
        (b'{"keytype":"CONFIG","subject":"s","magic":0}', b'{"subject":"s","compatibilityLevel":"FULL"}'),
        (b'{"keytype":"CONFIG","magic":0}', b'{"compatibilityLevel":"NONE"}'),
        (b'{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}',
         b'{"subject":"s","version":1,"id":1,"schema":"\\"string\\"","deleted":true}'),
        (b'{"keytype":"SCHEMA","subject":"s","version":2,"magic":1}',
         b'{"subject":"s","version":2,"id":2,"schema":"{}","schemaType":"JSON",%s,"deleted":false}'
         % b'"references":[{"name":"n","subject":"s","version":1}]'),
        (b'{"keytype":"DELETE_SUBJECT","subject":"s","magic":0}', b'{"subject":"s","version":2}'),
        (b'{"keytype":"CONFIG","subject":"s","magic":0}', None),
    ]  # fmt: skip


def test_what_compaction_leaves_is_the_same_state() -> None:
    topic = Topic()
    for names in (["x"], ["x", "y"], ["x", "y", "z"]):
        topic.register("a", order(*names))
        topic.register("b", order(*names))
    topic.store(topic.state.set_level("FULL", "a"))
    topic.store(topic.state.delete_subject("b"))
    topic.store(topic.state.set_level("NONE", "a"))
    topic.store(topic.state.delete_version("a", 2))
    last = {key: number for number, (key, _) in enumerate(topic.records)}
    folded = RegistryState()
    for number, record in enumerate(topic.records):
        if last[record[0]] == number:
            folded.apply(*record)
    assert folded.subjects == topic.state.subjects
    assert folded.level("a") == topic.state.level("a") == "NONE"
    assert folded.register("c", order("new")).answer.id == 4


def test_a_level_decides_what_a_schema_is_compared_with() -> None:
    topic = Topic()
    topic.register("s", order("x", default=False))
    topic.register("s", order(default=False))
    with pytest.raises(errors.IncompatibleSchemaError, match="READER_FIELD_MISSING_DEFAULT_VALUE: y") as raised:
        topic.register("s", order("y", default=False))
    assert raised.value.status == 409
    assert len(raised.value.reasons) == 1
    narrower = Schema(order("x").text.replace("long", "int"))
    assert topic.state.incompatibilities("s", narrower) == []
    topic.store(topic.state.set_level("BACKWARD_TRANSITIVE", "s"))
    assert len(topic.state.incompatibilities("s", narrower)) == 1
    topic.store(topic.state.set_level("FORWARD", "s"))
    assert topic.state.incompatibilities("s", order("y", default=False)) == []
    topic.store(topic.state.set_level("NONE", "s"))
    assert topic.register("s", Schema('"string"')).version == 3


def test_a_deletion_leaves_the_id_readable_and_no_number_is_used_twice() -> None:
    topic = Topic()
    topic.register("s", order("x"))
    topic.register("s", order("x", "y"))
    assert topic.store(topic.state.delete_version("s", 2)) == 2
    assert json.loads(topic.state.by_id(2).schema.text) == json.loads(order("x", "y").text)
    with pytest.raises(errors.SchemaVersionNotFoundError):
        topic.state.version("s", 2)
    again = topic.register("s", order("x", "y"))
    assert (again.id, again.version) == (2, 3)
    assert topic.store(topic.state.delete_subject("s")) == [1, 3]
    with pytest.raises(errors.SubjectNotFoundError):
        topic.state.version("s", None)
    assert topic.register("s", Schema('"string"')).version == 4


def test_references_are_resolved_and_keep_what_they_name() -> None:
    topic = Topic()
    topic.register("order", order("x"))
    uses = Schema('{"type":"array","items":"Order"}', references=(SchemaReference("Order", "order", 1),))
    assert topic.register("orders", uses).id == 2
    with pytest.raises(errors.ReferenceExistsError, match="delete orders version 1 first"):
        topic.state.delete_subject("order")
    dangling = Schema(uses.text, references=(SchemaReference("Order", "order", 9),))
    with pytest.raises(errors.InvalidSchemaError, match="register it first"):
        topic.register("orders", dangling)
    with pytest.raises(errors.InvalidSchemaError, match="Order is not defined"):
        topic.register("other", Schema(uses.text))
    topic.store(topic.state.delete_subject("orders"))
    assert topic.store(topic.state.delete_subject("order")) == [1]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "is not JSON"),
        ('{"type":"record"}', "lacks 'name'"),
        ('{"type":"nothing"}', "not defined"),
        ("7", "not an"),
    ],
)
def test_a_text_that_is_no_avro_schema_is_refused(text: str, reason: str) -> None:
    with pytest.raises(errors.InvalidSchemaError, match=reason):
        RegistryState().register("s", Schema(text))


def test_records_of_other_kinds_are_passed_over() -> None:
    state = RegistryState()
    for key, value in [(None, None), (b"{", b"1"), (b'{"keytype":"NOOP","magic":0}', None), (b"[]", b"[]"),
                       (b'{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}', b'{"schemaType":"XML"}'),
                       (b'{"keytype":"MODE","subject":"s","magic":0}', b'{"mode":"IMPORT"}')]:  # fmt: skip
        state.apply(key, value)
    assert state.register("s", Schema('"int"')).answer.version == 1


def test_the_guid_is_confluents() -> None:
    """The MD5 of the text, and of name, subject and version (4 bytes) of each reference."""
    assert guid_of(Schema('"string"')) == UUID("095d71cf-1255-6b9d-5e33-0ad575b3df5d")
    one = Schema('"string"', references=(SchemaReference("n", "s", 1),))
    digest = hashlib.md5(b'"string"ns\0\0\0\1', usedforsecurity=False).digest()
    assert guid_of(one) == UUID(bytes=digest)
