"""Loggers whose records are one line each, whatever text of a client is in them, and lines as JSON. Pure.

A name that a client chose may hold line ends, sequences for a terminal, or kilobytes. Every logger of the library comes
from `line_logger`: its filter escapes control characters and cuts what is long, before any handler sees the record.
"""

from __future__ import annotations

import json
import logging
import re
import traceback
from datetime import UTC, datetime
from typing import Final

CHARACTERS_MAX: Final = 1_000
"""The longest message of a record; the rest is cut, and counted."""
_CONTROLS: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
"""Control characters, other line ends, and characters that change the direction of text."""


FIELDS: Final = "fields"
"""Attribute of a record with the mapping that its message is made of."""


class JsonLines(logging.Formatter):
    """A record as one JSON object: time (UTC), level, logger, thread, message, and what it was made of, if it says so.

    >>> record = logging.makeLogRecord({"msg": "up", "levelname": "INFO", "name": "a", "threadName": "t", "created": 0})
    >>> JsonLines().format(record)
    '{"time":"1970-01-01T00:00:00.000Z","level":"INFO","logger":"a","thread":"t","message":"up"}'
    """

    def format(self, record: logging.LogRecord) -> str:
        written = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        body: dict[str, object] = {
            "time": written.replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "thread": record.threadName,
            "message": record.getMessage(),
        }
        fields = getattr(record, FIELDS, None)
        if fields is not None:
            body["message"] = str(body["message"]).partition(":")[0]
            body[FIELDS] = fields
        if record.exc_info and not record.exc_text:
            record.exc_text = self.formatException(record.exc_info)
        if record.exc_text:
            body["exception"] = record.exc_text
        return json.dumps(body, separators=(",", ":"), ensure_ascii=True)


def line_logger(name: str, characters_max: int = CHARACTERS_MAX) -> logging.Logger:
    """The logger of that name."""
    logger = logging.getLogger(name)
    if not any(isinstance(each, _OneLine) for each in logger.filters):
        logger.addFilter(_OneLine(characters_max))
    return logger


def one_line(text: str, characters_max: int = CHARACTERS_MAX) -> str:
    r"""The text without line ends and control characters, and not longer than so many characters of it.

    >>> one_line("X\n2026 WARNING forged\x1b[2J")
    'X\\n2026 WARNING forged\\x1b[2J'
    >>> one_line("Y" * 100, 10)
    'YYYYYYYYYY… (90 more characters)'
    """
    more = len(text) - characters_max
    kept = text[:characters_max] if more > 0 else text
    plain = _CONTROLS.sub(_escaped, kept) if _CONTROLS.search(kept) else kept
    return f"{plain}… ({more} more characters)" if more > 0 else plain


def _escaped(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode("ascii")


class _OneLine(logging.Filter):
    def __init__(self, characters_max: int) -> None:
        super().__init__()
        self._characters_max = characters_max

    def filter(self, record: logging.LogRecord) -> bool:
        message = record.getMessage()
        plain = one_line(message, self._characters_max)
        if plain is not message:
            record.msg, record.args = plain, None
        if record.exc_info and record.exc_info[1] is not None and not record.exc_text:
            record.exc_text = _trace(record.exc_info[1], self._characters_max)
        return True


def _trace(error: BaseException, characters_max: int) -> str:
    """The traceback with the text of each error in one line."""
    found = traceback.TracebackException.from_exception(error)
    waiting: list[traceback.TracebackException | None] = [found]
    while waiting:
        each = waiting.pop()
        if each is not None:
            text = getattr(each, "_str", None)
            if isinstance(text, str):
                setattr(each, "_str", one_line(text, characters_max))  # noqa: B010 - there is no public way
            waiting += [each.__cause__, each.__context__]
    return "".join(found.format()).rstrip("\n")
