"""Verdicts on pairs of Avro schemas, and on new versions under each level, are those of Avro's Java classes."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from stratalog.clients.schemas.compatibility import levels as compatibility
from stratalog.clients.schemas.compatibility.avro import incompatibilities, parsed
from stratalog.clients.schemas.compatibility.levels import CompatibilityLevel, ResolvedSchema
from stratalog.clients.schemas.errors import InvalidSchemaError
from stratalog.clients.schemas.schema import Schema
from tests.clients.schemas.oracle.avro_families import FAMILIES, Json, chains, field, pairs, record

ORACLE = Path(__file__).parent / "oracle"
VERDICTS = json.loads((ORACLE / "avro_verdicts.json").read_text(encoding="utf-8"))
LEVELS = json.loads((ORACLE / "avro_levels.json").read_text(encoding="utf-8"))


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


def accepted(new: Json, earlier: list[Json]) -> str:
    """A digit for each level but NONE, in the order of the oracle."""
    candidate, *versions = (ResolvedSchema(Schema(json.dumps(each))) for each in (new, *earlier))
    levels = [level for level in CompatibilityLevel if level != CompatibilityLevel.NONE]
    assert compatibility.incompatibilities(CompatibilityLevel.NONE, candidate, versions) == []
    try:
        found = [compatibility.incompatibilities(level, candidate, versions[::-1]) for level in levels]
    except InvalidSchemaError:
        return "refused"
    return "".join("0" if each else "1" for each in found)


@pytest.mark.parametrize("family", FAMILIES)
def test_each_levels_verdict_is_that_of_avros_validators(family: str) -> None:
    found = {name: accepted(new, earlier) for name, new, earlier in chains() if name.startswith(family)}
    judged = {name: each for name, each in found.items() if LEVELS[name] != "differ"}
    assert {name: (each, LEVELS[name]) for name, each in judged.items() if each != LEVELS[name]} == {}


def test_the_table_of_levels_tells_them_apart() -> None:
    assert LEVELS.keys() == {name for name, _, _ in chains()}
    verdicts = [each for each in LEVELS.values() if each[0] in "01"]
    assert len(verdicts) > 1_000
    for place in range(6):
        assert min(Counter(each[place] for each in verdicts).values()) > 20
        assert all(any(each[place] != each[other] for each in verdicts) for other in range(place))


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
