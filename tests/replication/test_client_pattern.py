"""Expressions of clients: RE2's, of a bounded length and memory."""

from __future__ import annotations

import pytest

from stratalog.replication.client_pattern import PATTERN_BYTES_MAX, client_pattern
from stratalog.storage.errors import InvalidRegularExpressionError


@pytest.mark.parametrize("text", ["(a+)+b", "(a|a)*b", "(x+x+)+y", "a{1000}b"])
def test_an_expression_that_backtracks_elsewhere_is_matched_at_once(text: str) -> None:
    assert client_pattern(text, "pattern").fullmatch("a" * 4_000) is None


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a" * (PATTERN_BYTES_MAX + 1), f"it has {PATTERN_BYTES_MAX + 1} bytes > {PATTERN_BYTES_MAX}"),
        (r"\p{L}" * 800, "pattern too large"),
        ("((a{100}){100}){100}", "invalid repetition size"),
        ("(?!a)", "invalid perl operator"),
        ("(a", "missing )"),
        ("(" + "a" * 4_000, "missing )"),
    ],
)
def test_a_broken_or_large_expression_is_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(InvalidRegularExpressionError, match=r"Regex `.* is not a valid regular expression") as refused:
        client_pattern(text, "Regex")
    assert reason in str(refused.value)
    assert len(str(refused.value)) < 600


def test_a_list_of_names_is_allowed() -> None:
    text = "|".join(f"orders-of-region-{number}" for number in range(200))
    assert client_pattern(text, "pattern").fullmatch("orders-of-region-199")
