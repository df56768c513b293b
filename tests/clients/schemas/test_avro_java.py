"""Columns of random Avro schemas have what Avro's Java reader reads, or an error that says why.

`make oracle` recorded Java's answers; the long test asks Java itself.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pytest

from stratalog.clients.schemas.columns.avro import AvroColumns
from stratalog.clients.schemas.columns.avro_fast import ROWS_MIN
from stratalog.clients.schemas.compatibility.levels import ResolvedSchema
from stratalog.clients.schemas.schema import Schema
from tests.clients.schemas.oracle.__main__ import RECORDED, RECORDED_SEED, answered, recorded_values
from tests.clients.schemas.oracle.avro_questions import Json, Question, questions
from tests.clients.schemas.oracle.java_values import NoColumnValueError, column_value, values_of

NOTHING = object()


def read(asked: Question, count: int) -> tuple[Any, str | None]:
    """The value and the error of the payload in a column of `count` times the same."""
    writer, reader = (ResolvedSchema(Schema(json.dumps(each))) for each in (asked.writer, asked.reader))
    columns = AvroColumns(reader)
    found = columns.read(pa.array([bytes.fromhex(asked.payload)] * count, pa.binary()), writer)
    assert set(found.errors) in (set(), set(range(count)))
    return values_of(found.values)[count - 1], found.errors.get(0)


def verdict(asked: Question, answer: Json, count: int) -> str:
    """`same`, `error` where Java has none, `both` for errors of both; anything else is a value that was altered."""
    value, error = read(asked, count)
    wanted: Any = NOTHING
    if "value" in answer:
        with suppress(NoColumnValueError):
            wanted = column_value(asked.reader, answer["value"])
    if error is not None:
        assert value is None
        return "both" if wanted is NOTHING else "error"
    return "same" if repr(value) == repr(wanted) else f"{value!r}, not {wanted!r} of {answer}"


def assert_judged(asked: Sequence[Question], answers: Sequence[Json], *, at_once: int) -> None:
    """All are as Java has them; every `at_once`-th also in a column that is read for all rows at once."""
    verdicts: Counter[str] = Counter()
    for number, (question, answer) in enumerate(zip(asked, answers, strict=True)):
        if "refused" in answer or question.writer == question.reader == "bytes":
            continue  # the bytes of a schema that is bytes stand for themselves, as in Confluent's serializers
        found = verdict(question, answer, 1)
        assert found in ("same", "error", "both"), question
        if number % at_once == 0:
            assert verdict(question, answer, 2 * ROWS_MIN) == found, question
        verdicts[found] += 1
    assert sum(verdicts.values()) > 0.9 * len(asked)
    assert verdicts["same"] > 0.7 * len(asked)
    assert verdicts["error"] < 0.05 * len(asked), "damaged bytes that Java takes, and times of another unit"


def test_columns_have_what_avros_java_reader_reads() -> None:
    assert_judged(list(questions(RECORDED_SEED, RECORDED)), recorded_values(), at_once=7)


@pytest.mark.long
def test_columns_of_10_000_random_schemas_have_what_java_reads() -> None:
    asked = list(questions(random.randrange(2**32), 10_000))
    assert_judged(asked, answered([each._asdict() for each in asked], "AvroValues"), at_once=3)
