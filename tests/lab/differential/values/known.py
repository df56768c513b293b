"""Which differences are meant, and the count of what the judges found. Pure."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, NamedTuple

SHOWN_DIFFERENCES_MAX = 2_000
_SHAPES = (
    (re.compile(r"#(/[^:]*)?: "), "at a path: "), (re.compile(r"type bytes: .*"), "type bytes"),
    (re.compile(r"b'[^']*'|\"(?:[^\"\\]|\\.)*\"|\{.*\}|\[.*\]"), "…"),
    (re.compile(r"-?\d+(\.\d+)?(e[+-]?\d+)?", re.IGNORECASE), "#"), (re.compile(r"missing: .*"), "missing: …"),
)  # fmt: skip


class Known(NamedTuple):
    """A difference that is meant.

    judge   the judge's name
    ours    pattern of our dead letter's error; of a value "value"
    theirs  pattern of the judge's error; of a value "value"
    about   pattern of what was read
    reason  why the two differ
    """

    judge: str
    ours: str
    theirs: str
    about: str
    reason: str


JAVA_AVRO, SPARK_AVRO = "Avro's Java reader", "Spark's from_avro"
JSON_MAPPING, FROM_JSON, JSON_TEXT = "protobuf's JSON mapping", "Spark's from_json", "the JSON text"
GROWN = "Avro's Java reader, of a column that has grown"
PARSE_JSON, VARIANT_TEXT = "Spark's parse_json", "the JSON text, of a VARIANT"
WRITTEN = "others, of what to_registry writes"
ENTRIES = "a producer in the broker's process"
KNOWN: tuple[Known, ...] = (
    *(
        Known(judge, ours, "^value$", "", reason)
        for judge in (JAVA_AVRO, SPARK_AVRO, GROWN)
        for ours, reason in (
            (r"a string is no UTF-8", "bytes that are no text: Java puts U+FFFD for them, Spark keeps them"),
            (r"\d is no boolean", "a byte that no writer makes: Java reads all but 1 as false"),
            (r"is no int|number of more than 64 bits", "a number of more bits than its type has: Java cuts it"),
            (r"a size of -\d+, and", "a size below 0: Java goes back in the bytes that it skips"),
            (r"a block of \d+ items", "more than 10,000 items without bytes: Java makes a list of any length"),
            (r"the numbers mean other times", "times of another unit: Java takes the number of one for the other"),
        )
    ),
    *(
        Known(judge, r"a decimal of (more than|no bytes)|beyond the microseconds", "^value$", '"map"',
              "a value that is none, of a map's key that is there again: others look at the last one alone")
        for judge in (JAVA_AVRO, SPARK_AVRO, GROWN)
    ),
    Known(GROWN, "a date is more than", "^value$", "date",
          "a date that no time without a zone holds, into which its column may grow"),
    Known(GROWN, "in the table and .* in the record|name the field again", "", "",
          "the second schema contradicts the table: its records wait as dead letters"),
    Known(WRITTEN, "is no long", "^value$", "timestamp-nanos",
          "the least nanoseconds, rounded down to microseconds: no long has them as nanoseconds again"),
    Known(SPARK_AVRO, "^value$", "a null", "time-micros", "a number that is no time of a day: it stays a number here"),
    Known(JSON_MAPPING, "Could not convert b'", "^value$", "proto2",
          "a string of proto2 that is no UTF-8: the mapping has Python's spelling of its bytes"),
    *(
        Known(judge, "^value$", "Duration is not valid", "",
              "a Duration is the struct of its two numbers, as it is written; the mapping refuses some")
        for judge in (JSON_MAPPING, WRITTEN)
    ),
    *(
        Known(f"{ENTRIES}, {way}", "^value$", "^value$", r"LogAppendTime.*\[times alone differ\]$",
              "files that another process hands over keep their records' own times")
        for way in ("a producer of another process", "the Spark sink")
    ),
    Known(FROM_JSON, "is no DECIMAL", "^value$", "", "digits that a decimal does not have: Spark rounds them"),
    Known(FROM_JSON, r"is no integer of \d+ bits", "^value$", "", "Spark takes 200 for the TINYINT -56"),
    Known(FROM_JSON, '"-?(NaN|Inf.*)" is no', "^value$", "", "text for a number: Spark takes Infinity and NaN"),
    Known(FROM_JSON, "is no (TIMESTAMP|DATE)", "^value$", "", "a time that no column holds: Spark does not check"),
    *(
        Known(judge, ours, "^value$", about, reason)
        for judge in (FROM_JSON, PARSE_JSON)
        for ours, about, reason in (
            ("is no (FLOAT|double)", "", "a number beyond its type: Spark makes infinity of it"),
            ("half of a surrogate", "", "a string that is no text: Spark puts ? for it"),
            ("Extra data", "", "text behind the document: Spark reads the first document alone"),
            ("the bytes are no JSON", "'x'|NaN|Infinity",
             "a text that RFC 8259 does not have: Spark takes single quotes, NaN and Infinity"),
        )
    ),
    Known(FROM_JSON, "", "", r"\[a name in another case\]", "names count without case: Spark leaves the member out"),
)  # fmt: skip


class Outcome(NamedTuple):
    """What was made of bytes: a value, or an error."""

    value: Any
    error: str | None


@dataclass(slots=True)
class Tally:
    """What was found, by judge."""

    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    reasons: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Dead letters by error, with # for numbers."""
    differences: list[str] = field(default_factory=list)

    def count(self, judge: str, verdict: str) -> None:
        self.counts[judge, verdict] += 1

    def judge(self, judge: str, ours: Outcome, theirs: Outcome, about: str) -> None:
        """Count a row that both have read."""
        if ours.error is not None:
            self.reasons[judge, shape_of(ours.error)] += 1
        if ours.error is None and repr(ours.value) == repr(theirs.value):
            self.count(judge, "equal")
        elif ours.error is not None and not ours.error.strip():
            self._differs(judge, ours, theirs, about)
        elif ours.error is not None and theirs.error is not None:
            self.count(judge, "dead letter, and refused by the judge")
        else:
            known = self._known(judge, ours, theirs, about)
            if known is None:
                self._differs(judge, ours, theirs, about)
            else:
                kind = "value" if ours.error is None else "dead letter"
                self.count(judge, f"meant, a {kind} here: {known.reason}")

    def _known(self, judge: str, ours: Outcome, theirs: Outcome, about: str) -> Known | None:
        for each in KNOWN:
            if (
                each.judge == judge
                and re.search(each.ours, ours.error or "value")
                and re.search(each.theirs, theirs.error or "value")
                and re.search(each.about, about)
            ):
                return each
        return None

    def _differs(self, judge: str, ours: Outcome, theirs: Outcome, about: str) -> None:
        self.count(judge, "differs")
        if len(self.differences) < SHOWN_DIFFERENCES_MAX:
            here, there = (f"error {each.error}" if each.error else repr(each.value) for each in (ours, theirs))
            self.differences.append(f"{judge}: {there}\n  here: {here}\n  {about}")

    def lines(self) -> list[str]:
        """The counts, a line each."""
        found = [f"{judge}: {number:>7,} {verdict}" for (judge, verdict), number in sorted(self.counts.items())]
        return found + [
            f"{judge}: {number:>7,} dead letters: {reason}" for (judge, reason), number in self.reasons.most_common()
        ]


def shape_of(error: str) -> str:
    """An error without the values that it names.

    >>> shape_of("schema id 7: -12 is no int")
    'schema id #: # is no int'
    """
    for pattern, instead in _SHAPES:
        error = pattern.sub(instead, error)
    return error[:120]
