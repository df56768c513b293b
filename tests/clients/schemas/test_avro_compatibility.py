"""Verdicts on pairs of Avro schemas are those of Avro's Java class."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from stratalog.clients.schemas.avro_compatibility import incompatibilities, parsed
from stratalog.clients.schemas.errors import InvalidSchemaError
from tests.clients.schemas.oracle.avro_families import FAMILIES, Json, field, pairs, record

VERDICTS = json.loads((Path(__file__).parent / "oracle" / "avro_verdicts.json").read_text(encoding="utf-8"))


def verdict(reader: Json, writer: Json) -> list[str]:
    """`location: kind`, without the texts behind; of a pair that Java throws for, `refused`."""
    try:
        found = incompatibilities(parsed(reader), parsed(writer))
    except InvalidSchemaError:
        return ["refused"]
    return [": ".join(each.split(": ")[:2]) for each in found]


@pytest.mark.parametrize("family", FAMILIES)
def test_verdicts_are_those_of_avros_java_class(family: str) -> None:
    differing = {}
    for name, reader, writer in pairs():
        if name.startswith(family):
            theirs = VERDICTS[name] if isinstance(VERDICTS[name], list) else ["refused"]
            if verdict(reader, writer) != theirs:
                differing[name] = (verdict(reader, writer), theirs)
    assert differing == {}


def test_the_table_has_verdicts_of_both_kinds() -> None:
    assert VERDICTS.keys() == {name for name, _, _ in pairs()}
    counts = Counter(bool(found) for found in VERDICTS.values())
    assert min(counts.values()) > 200


def test_an_alias_for_two_fields_of_the_writer_is_refused() -> None:
    reader, writer = record(field("a", aliases=["b"])), record(field("a"), field("b"))
    with pytest.raises(InvalidSchemaError, match="several fields"):
        incompatibilities(parsed(reader), parsed(writer))


@pytest.mark.parametrize("schema", [{"type": "record", "name": "R"}, {}, 7, "x", record(field("a", record(name="R")))])
def test_a_form_that_avro_does_not_have_is_refused(schema: Json) -> None:
    with pytest.raises(InvalidSchemaError):
        parsed(schema)
