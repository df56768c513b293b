"""The language of erase predicates matches rows, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from stratalog.storage.errors import InvalidRequestError
from stratalog.storage.records import Header, NewRecordBatch, data_table, payload_table
from stratalog.storage.upkeep.erase import ErasePredicate

ROWS = data_table(
    [
        NewRecordBatch(
            payload_table(
                [
                    (1_000, b"bob", b"one", [Header("user", b"bob"), Header("n", None)]),
                    (2_000, b"eve", b"two \x00\x01", None),
                    (None, None, None, []),
                    (3_000, b"", b"bob's", [Header("user", b"eve"), Header("user", b"bob")]),
                ]
            )
        )
    ]
)


@pytest.mark.parametrize(
    ("predicate", "expected"),
    [
        ({"key": {"equals": "bob"}}, "x..."),
        ({"key": {"equals": ""}}, "...x"),
        ({"key": {"in": ["bob", "eve", "none"]}}, "xx.."),
        ({"key": {"in": []}}, "...."),
        ({"key": {"is_null": True}}, "..x."),
        ({"key": {"is_null": False}}, "xx.x"),
        ({"value": {"begins_with": "bob"}}, "...x"),
        ({"value": {"contains": "o"}}, "xx.x"),
        ({"value": {"contains": {"base64": "AAE="}}}, ".x.."),
        ({"timestamp_ms": {"from": 2_000}}, ".x.x"),
        ({"timestamp_ms": {"below": 2_000}}, "x..."),
        ({"timestamp_ms": {"from": 1_000, "below": 3_000}}, "xx.."),
        ({"header": {"name": "user"}}, "x..x"),
        ({"header": {"name": "user", "equals": "bob"}}, "x..x"),
        ({"header": {"name": "user", "equals": "eve"}}, "...x"),
        ({"header": {"name": "n", "equals": ""}}, "...."),
        ({"header": {"name": "bob"}}, "...."),
        ({"not": {"key": {"equals": "bob"}}}, ".xxx"),
        ({"all": [{"key": {"equals": "bob"}}, {"timestamp_ms": {"below": 1_000}}]}, "...."),
        ({"any": [{"key": {"equals": "eve"}}, {"value": {"is_null": True}}]}, ".xx."),
    ],
)
def test_rows_that_match(predicate: dict[str, Any], expected: str) -> None:
    found = ErasePredicate.parse(predicate)
    assert "".join("x" if each else "." for each in found.matches(ROWS).to_pylist()) == expected
    again = ErasePredicate.parse(found.text)
    assert (again.text, again.matches(ROWS)) == (found.text, found.matches(ROWS))
    assert len(found.matches(ROWS.slice(0, 0))) == 0
    assert found.matches(ROWS.slice(2)).to_pylist() == found.matches(ROWS).to_pylist()[2:]


@pytest.mark.parametrize(
    ("predicate", "text"),
    [
        ("{", "not JSON"),
        ("[]", "one name"),
        ({}, "one name"),
        ({"key": {"equals": "a"}, "value": {"equals": "b"}}, "one name"),
        ({"offset": {"from": 3}}, "unknown name 'offset'"),
        ({"key": "bob"}, "one operation"),
        ({"key": {"equals": 3}}, "compared with 3"),
        ({"key": {"equals": {"base64": "?"}}}, "not base64"),
        ({"key": {"like": "b%"}}, "unknown operation 'like'"),
        ({"key": {"in": "bob"}}, "expected a list"),
        ({"key": {"is_null": 1}}, "true or false"),
        ({"timestamp_ms": {}}, "needs from or below"),
        ({"timestamp_ms": {"from": True}}, "expected milliseconds"),
        ({"timestamp_ms": {"to": 3}}, r"\['below', 'from'\]"),
        ({"header": {"equals": "x"}}, "header name is None"),
        ({"any": []}, "list of predicates"),
        ({"not": []}, "one name"),
    ],
)
def test_what_is_not_of_the_language_is_refused(predicate: Any, text: str) -> None:
    with pytest.raises(InvalidRequestError, match=text):
        ErasePredicate.parse(predicate)


def test_a_predicate_is_not_too_deep() -> None:
    predicate: dict[str, Any] = {"key": {"equals": "a"}}
    for _ in range(33):
        predicate = {"not": predicate}
    with pytest.raises(InvalidRequestError, match="32 levels"):
        ErasePredicate.parse(predicate)
