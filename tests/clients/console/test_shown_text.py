"""What of others' bytes is shown: nothing that is obeyed, nothing cut within a character. Pure."""

from __future__ import annotations

import unicodedata

from hypothesis import given, settings
from hypothesis import strategies as st

from stratalog.clients.console.shown_text import CUT_BYTES, HEX_BYTES, shown, visible


@settings(max_examples=300)
@given(st.binary(max_size=300), st.integers(1, 300))
def test_nothing_that_is_shown_is_obeyed(data: bytes, cut_bytes: int) -> None:
    found = shown(data, cut_bytes)
    assert not [each for each in found.text if unicodedata.category(each) in ("Cc", "Cf", "Cs") and each not in "\t\n"]
    assert found.size_bytes == len(data)
    assert found.is_cut == (len(data) > (HEX_BYTES if found.is_binary else cut_bytes))


@settings(max_examples=300)
@given(st.text(max_size=200), st.integers(1, 100))
def test_text_is_cut_between_characters(text: str, cut_bytes: int) -> None:
    found = shown(text.encode(), cut_bytes)
    if "\x00" not in text:
        assert not found.is_binary
        assert visible(text).startswith(found.text)


def test_characters_that_turn_text_around_are_numbers() -> None:
    assert shown("exe\u202egnp".encode()).text == "exe⟨U+202E⟩gnp"
    assert shown(b"\x1b[31m").text == "⟨U+001B⟩[31m"


def test_a_value_that_is_no_text_is_hexadecimal() -> None:
    found = shown(b"\xff" * 10_000)
    assert (found.text[:5], found.is_binary, found.is_cut) == ("ff ff", True, True)
    assert len(found.text) < 3 * HEX_BYTES


def test_null_and_empty_differ() -> None:
    assert (shown(None).is_null, shown(b"").is_null) == (True, False)


def test_a_large_value_is_cut() -> None:
    assert len(shown(b"x" * 10_000_000).text) == CUT_BYTES
