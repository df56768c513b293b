"""JSON in one VARIANT column beside Spark's `parse_json` and what the text says. I/O: Spark."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from stratalog.clients.typed_tables.config import TypedTableConfig, WriteMode
from stratalog.clients.typed_tables.delta_table import TypedDelta
from stratalog.clients.typed_tables.rows.evolution import VALUE_COLUMN
from stratalog.clients.typed_tables.rows.values import ValueReader
from tests.lab.differential.values.json_text import RECORDS, Number, parsed_exactly
from tests.lab.differential.values.known import PARSE_JSON, VARIANT_TEXT, Outcome, Tally
from tests.lab.differential.values.texts import ODD, ODD_NAMES, a_text, a_type, damaged

TYPES_A_QUERY, TEXTS = 250, 8
_DIGITS = 38
"""Those of the largest decimal; a number of more is a double in a VARIANT."""


def a_document(draw: Random) -> str:
    """A value of a random type, or an object of several of them whose names may be odd, long or there twice."""
    if draw.randrange(3) == 0:
        return a_text(draw, a_type(draw))
    names = draw.choices([*ODD_NAMES, "a", "A", "", "x" * 300, "\\u0061", "\\ud83d\\ude00"], k=draw.randrange(5))
    if draw.random() < 0.9:
        names = list(dict.fromkeys(names))
    members = [
        f'"{name}": {draw.choice(ODD) if draw.randrange(6) == 0 else a_text(draw, a_type(draw))}' for name in names
    ]
    return "{" + ", ".join(members) + "}"


def judge(spark: SparkSession, folder: Path, seed: int, count: int, tally: Tally) -> None:
    """Count what `count` kinds of documents, each with `TEXTS` texts, are in a VARIANT."""
    reader = ValueReader(spark, TypedTableConfig.from_settings({"value.format": "json"}), WriteMode.APPEND, None)
    for start in range(0, count, TYPES_A_QUERY):
        texts = []
        for number in range(start, min(count, start + TYPES_A_QUERY)):
            draw = Random(f"{seed} variant {number}")
            texts += [damaged(draw, a_document(draw), 12) for _ in range(TEXTS)]
        rows = [(0, n, None, None, bytearray(each.encode()), None) for n, each in enumerate(texts)]
        records = spark.createDataFrame(rows, RECORDS)
        found = reader.read(records, TypedDelta(spark, str(folder)))
        ours = found.frame.select("offset", *_shown("read." + VALUE_COLUMN), "error").orderBy("offset").collect()
        found.release()
        parsed = records.select("offset", sf.try_parse_json(sf.col("value").cast("string")).alias("v"))
        theirs = parsed.select("offset", *_shown("v")).orderBy("offset").collect()
        for text, own, other in zip(texts, ours, theirs, strict=True):
            about = f"{text!r}"
            mine = Outcome(None if own["error"] else (own["text"], own["schema"]), own["error"])
            by_spark = Outcome((other["text"], other["schema"]), "a null" if other["schema"] is None else None)
            tally.judge(PARSE_JSON, mine, by_spark if by_spark.error is None else by_spark._replace(value=None), about)
            if own["error"] is None:
                tally.judge(VARIANT_TEXT, Outcome(own["text"], None), _of_text(text, own["text"]), about)


def _shown(name: str) -> list[Any]:
    """A variant as text, which has its numbers and strings, and its type."""
    value = sf.col(name)
    return [sf.to_json(value).alias("text"), sf.schema_of_variant(value).alias("schema")]


def _of_text(text: str, shown: str) -> Outcome:
    """What a variant shows where the text says the same, otherwise the text itself."""
    try:
        exact = parsed_exactly(text)
    except ValueError as reason:
        return Outcome(None, str(reason))
    return Outcome(shown if _is_same(exact, parsed_exactly(shown)) else text, None)


def _is_same(exact: Any, shown: Any) -> bool:
    if type(exact) is not type(shown):
        return False
    if isinstance(exact, Number):
        one, other = Decimal(str(exact)), Decimal(str(shown))
        is_decimal = "e" not in exact.lower() and len(one.as_tuple().digits) <= _DIGITS
        return one == other if is_decimal else float(exact) == float(shown)
    if isinstance(exact, dict):
        return exact.keys() == shown.keys() and all(_is_same(each, shown[name]) for name, each in exact.items())
    if isinstance(exact, list):
        return len(exact) == len(shown) and all(map(_is_same, exact, shown))
    return bool(exact == shown)
