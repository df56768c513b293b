"""Expressions of clients: RE2's, of a bounded length and memory."""

from __future__ import annotations

import pytest

from stratalog.replication.client_pattern import PATTERN_BYTES_MAX, UNICODE_CLASSES_MAX, client_pattern
from stratalog.storage.errors import InvalidRegularExpressionError


@pytest.mark.parametrize("text", ["(a+)+b", "(a|a)*b", "(x+x+)+y", "a{1000}b"])
def test_an_expression_that_backtracks_elsewhere_is_matched_at_once(text: str) -> None:
    assert client_pattern(text, "pattern").fullmatch("a" * 4_000) is None


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a" * (PATTERN_BYTES_MAX + 1), f"it has {PATTERN_BYTES_MAX + 1} bytes > {PATTERN_BYTES_MAX}"),
        (r"\p{L}" * 800, "pattern too large"),
        (r"\PL" * (UNICODE_CLASSES_MAX + 1), "pattern too large"),
        ("x{0,1000}" * 400, "pattern too large"),
        ("x{1000}" * 9, "pattern too large"),
        ("x{1000,}" * 9, "pattern too large"),
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


@pytest.mark.parametrize("text", [r"\pL" * 8, r"[\p{Lu}\p{Nd}_-]+", "[a-z]{1,249}", "(a{3,5}|b{2}){1,9}"])
def test_some_classes_and_repetitions_are_allowed(text: str) -> None:
    client_pattern(text, "pattern")


@pytest.mark.parametrize("text", ["orders-of-.*", "(a"])
def test_an_expression_is_compiled_once_for_all_who_send_it(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    outcomes = [outcome_of(text)]
    monkeypatch.setattr("re2.compile", None)
    outcomes.append(outcome_of(text))
    assert outcomes[0] == outcomes[1]


def outcome_of(text: str) -> object:
    try:
        return client_pattern(text, "Regex")
    except InvalidRegularExpressionError as error:
        return str(error)
