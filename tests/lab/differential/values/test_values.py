"""Columns have what others read of the same bytes, or an error that says why: the judges, and what they let pass."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.lab.differential.values.known import JAVA_AVRO, KNOWN, SPARK_AVRO, Outcome, Tally, shape_of

ROOT = Path(__file__).parents[4]
VALUE, OTHER = Outcome({"a": 1}, None), Outcome({"a": 2}, None)
REFUSED, UNTOLD = Outcome(None, "schema id 1: cut off: 3 bytes are too few"), Outcome(None, " ")
NO_TEXT = Outcome(None, "a string is no UTF-8: invalid start byte")


@pytest.mark.parametrize(
    ("ours", "theirs", "verdict"),
    [
        (VALUE, VALUE, "equal"), (REFUSED, REFUSED, "dead letter, and refused by the judge"),
        (VALUE, OTHER, "differs"), (VALUE, REFUSED, "differs"), (REFUSED, VALUE, "differs"),
        (UNTOLD, REFUSED, "differs"), (NO_TEXT, VALUE, "meant, a dead letter here"),
        (Outcome(-0.0, None), Outcome(0.0, None), "differs"),
    ],
)  # fmt: skip
def test_a_difference_counts_unless_it_is_named(ours: Outcome, theirs: Outcome, verdict: str) -> None:
    tally = Tally()
    tally.judge(JAVA_AVRO, ours, theirs, "case 1")
    ((judge, found),) = tally.counts
    assert judge == JAVA_AVRO
    assert found.startswith(verdict)
    assert bool(tally.differences) == (verdict == "differs")


def test_dead_letters_are_counted_by_their_reason_without_values() -> None:
    assert shape_of('schema id 7: #/f1/0: "x" is no integer') == "schema id #: at a path: … is no integer"
    assert all(each.reason and (each.ours or each.theirs or each.about) for each in KNOWN)
    assert {JAVA_AVRO, SPARK_AVRO} <= {each.judge for each in KNOWN}


@pytest.mark.long
@pytest.mark.timeout(1_200)
def test_columns_of_random_schemas_have_what_others_read() -> None:
    """A tenth of `make differential-values`, of new schemas each time."""
    command = [sys.executable, "-m", "tests.lab.differential.values", "--count", "1000"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stdout[-8_000:] + done.stderr[-4_000:]
