"""A record of a log is one line, of a bounded length, whoever chose the names in it."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator

import pytest

from stratalog.storage.log_lines import CHARACTERS_MAX, line_logger


@pytest.fixture
def written() -> Iterator[io.StringIO]:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logging.Formatter("%(levelname)s %(name)s %(message)s"))
    logger = line_logger("stratalog.test.lines")
    logger.addHandler(handler)
    yield stream
    logger.removeHandler(handler)


@pytest.mark.parametrize("text", ["a\nWARNING forged", "a\r\nb", "a\x1b[2Jb", "a\x85b", "a\u2028b", "a\u202eb", "a\0b"])
def test_control_characters_are_escaped(written: io.StringIO, text: str) -> None:
    line_logger("stratalog.test.lines").warning("mechanism %s", text)
    (line,) = written.getvalue().splitlines()
    assert line.isprintable()
    assert line.startswith("WARNING stratalog.test.lines mechanism a\\")


def test_a_long_message_is_cut_and_its_rest_counted(written: io.StringIO) -> None:
    line_logger("stratalog.test.lines").warning("%s", "Y" * 32_000)
    assert written.getvalue().endswith(f"Y… ({32_000 - CHARACTERS_MAX} more characters)\n")


def test_other_characters_stay(written: io.StringIO) -> None:
    line_logger("stratalog.test.lines").warning("topic %s of %d", "bücher-日本", 3)
    assert written.getvalue() == "WARNING stratalog.test.lines topic bücher-日本 of 3\n"


def test_the_text_of_an_error_is_one_line_of_its_traceback(written: io.StringIO) -> None:
    logger = line_logger("stratalog.test.lines")
    try:
        try:
            raise ValueError("inner\nWARNING forged")
        except ValueError as reason:
            raise KeyError("outer\nWARNING forged") from reason
    except KeyError:
        logger.exception("a request")
    lines = written.getvalue().splitlines()
    assert "Traceback (most recent call last):" in lines
    assert "ValueError: inner\\nWARNING forged" in lines
    assert not [line for line in lines if line.startswith("WARNING")]
