"""What `to_registry` writes of the columns that `from_registry` gives: others read the same values of it. I/O: Java."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from stratalog import Schema
from stratalog.clients.schemas.columns.avro import AvroColumns
from stratalog.clients.schemas.columns.json_schema import JsonColumns
from stratalog.clients.schemas.columns.protobuf import ProtobufColumns
from stratalog.clients.schemas.columns.writer import ColumnWriter
from stratalog.clients.schemas.compatibility.levels import ResolvedSchema
from stratalog.clients.schemas.errors import InvalidSchemaError
from stratalog.storage.errors import SerializationError
from tests.clients.schemas.oracle.__main__ import answered
from tests.clients.schemas.oracle.java_values import values_of
from tests.lab.differential.values.avro import AvroCase, java_outcome
from tests.lab.differential.values.json_text import JsonCase, exact_of_schema, schema_of_case
from tests.lab.differential.values.known import WRITTEN, Outcome, Tally
from tests.lab.differential.values.messages import ProtobufCase, schema_of
from tests.lab.differential.values.protobuf import mapped


def _written(writer: ColumnWriter, value: pa.Array) -> bytes | SerializationError:
    try:
        found: bytes = writer.write(value)[0].as_py()
    except SerializationError as refused:
        return refused
    return found


def judge_avro(cases: Sequence[AvroCase], tally: Tally) -> None:
    asked: list[dict[str, Any]] = []
    values: list[Any] = []
    for case in cases:
        if case.reader == "bytes":
            continue
        own, writer = (ResolvedSchema(Schema(json.dumps(each))) for each in (case.reader, case.writer))
        try:
            read = AvroColumns(own).read(pa.array(case.payloads, pa.binary()), writer)
        except InvalidSchemaError:
            continue
        shown, column_writer = values_of(read.values), ColumnWriter(None, own)
        for place in range(len(case.payloads)):
            if shown[place] is None:
                continue  # an error, or a null, which is no value
            found = _written(column_writer, read.values.slice(place, 1))
            if isinstance(found, bytes):
                asked.append({"writer": case.reader, "reader": case.reader, "payload": found.hex()})
                values.append(shown[place])
            else:
                about = f"{shown[place]!r} of {json.dumps(case.reader)}"
                tally.judge(WRITTEN, Outcome(None, f"avro: {found}"), Outcome(shown[place], None), about)
    for question, value, answer in zip(asked, values, answered(asked, "AvroValues"), strict=True):
        tally.judge(WRITTEN, Outcome(value, None), java_outcome(question["reader"], answer), json.dumps(question))


def judge_protobuf(cases: Sequence[ProtobufCase], tally: Tally) -> None:
    for case in cases:
        own = ResolvedSchema(schema_of(case.reader))
        read = ProtobufColumns(own, case.message).read(pa.array(case.payloads, pa.binary()), None)
        shown, writer = values_of(read.values), ColumnWriter(None, own, case.message)
        for place in range(len(case.payloads)):
            if shown[place] is None:
                continue
            found = _written(writer, read.values.slice(place, 1))
            theirs = mapped(case, found) if isinstance(found, bytes) else Outcome(shown[place], None)
            ours = Outcome(shown[place], None) if isinstance(found, bytes) else Outcome(None, f"protobuf: {found}")
            about = f"case {case.number}, row {place}: {found!r} of {case.message} in {case.reader}".replace("\n", " ")
            tally.judge(WRITTEN, ours, theirs, about)


def judge_json(cases: Sequence[JsonCase], tally: Tally) -> None:
    for case in cases:
        own = ResolvedSchema(schema_of_case(case))
        read = JsonColumns(own).read(pa.array([each.encode() for each in case.texts], pa.binary()))
        shown, writer = values_of(read.values), ColumnWriter(None, own)
        for place in range(len(case.texts)):
            if shown[place] is None:
                continue
            found = _written(writer, read.values.slice(place, 1))
            ours, theirs = Outcome(shown[place], None), Outcome(shown[place], None)
            if isinstance(found, bytes):
                theirs = exact_of_schema(case.schema, found.decode())
            else:
                ours = Outcome(None, f"json: {found}")
            tally.judge(WRITTEN, ours, theirs, f"{found!r} of {case.texts[place]} as {json.dumps(case.schema)}")
