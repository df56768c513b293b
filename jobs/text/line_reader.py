r"""Lines as records, the way Kafka's console producer reads them: `h1:v1,h2:v2<TAB>key<TAB>value`. Pure.

Lines stay bytes, so text that is not UTF-8 arrives as it was typed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Self

from stratalog.jobs.command.properties import truth, typed_fields
from stratalog.storage.errors import InvalidConfigError, InvalidRecordError
from stratalog.storage.records import Header

_TEXTS = ("key.separator", "headers.delimiter", "headers.separator", "headers.key.separator")
_KINDS: dict[str, Callable[[str], bool | bytes]] = {
    **dict.fromkeys(("parse.key", "parse.headers", "ignore.error"), truth),
    **dict.fromkeys((*_TEXTS, "null.marker"), str.encode),
}
"""What makes the value of each reader property."""

_MUST_DIFFER = (
    ("headers.delimiter", "headers.separator"),
    ("headers.delimiter", "headers.key.separator"),
    ("headers.separator", "headers.key.separator"),
    ("null.marker", "key.separator"),
    ("null.marker", "headers.separator"),
    ("null.marker", "headers.delimiter"),
    ("null.marker", "headers.key.separator"),
)


class InputRecord(NamedTuple):
    """The parts of a line."""

    key: bytes | None
    value: bytes | None
    headers: list[Header]


@dataclass(frozen=True, slots=True)
class LineReader:
    """How a line is parsed. `null_marker`: a key, value or header value equal to it is null."""

    parse_key: bool = False
    parse_headers: bool = False
    ignore_error: bool = False
    key_separator: bytes = b"\t"
    headers_delimiter: bytes = b"\t"
    headers_separator: bytes = b","
    headers_key_separator: bytes = b":"
    null_marker: bytes | None = None

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> Self:
        """Kafka's reader properties. InvalidConfigError for an unknown one, or two that may not be equal."""
        reader = cls(**typed_fields(properties, _KINDS, "reader"))
        for name, text in properties.items():
            if not text and name in _TEXTS:
                raise InvalidConfigError(f"Invalid value {text} for configuration {name}: String must be non-empty")
        for one, other in _MUST_DIFFER:
            if getattr(reader, _field(one)) == getattr(reader, _field(other)):
                raise InvalidConfigError(f"{one} and {other} may not be equal")
        return reader

    def record(self, line: bytes, line_number: int) -> InputRecord:
        """A line without its end as a record. InvalidRecordError when a separator is missing, naming the line."""
        headers, rest = self._cut(
            self.parse_headers, line, line, self.headers_delimiter, "headers delimiter", line_number
        )
        key, value = self._cut(self.parse_key, rest, line, self.key_separator, "key separator", line_number)
        found = [] if headers is None or headers == self.null_marker else self._headers(headers, line_number)
        return InputRecord(self._or_null(key), self._or_null(value), found)

    def _cut(
        self, is_there: bool, rest: bytes, line: bytes, separator: bytes, what: str, line_number: int
    ) -> tuple[bytes | None, bytes]:
        if not is_there:
            return None, rest
        part, found, behind = rest.partition(separator)
        if found:
            return part, behind
        if self.ignore_error:
            return None, rest
        raise InvalidRecordError(f"No {what} found on line number {line_number}: '{_text(line)}'")

    def _headers(self, headers: bytes, line_number: int) -> list[Header]:
        pairs = headers.split(self.headers_separator)
        while len(pairs) > 1 and not pairs[-1]:
            pairs.pop()
        return [self._header(pair, line_number) for pair in pairs]

    def _header(self, pair: bytes, line_number: int) -> Header:
        key, found, value = pair.partition(self.headers_key_separator)
        if not found:
            if self.ignore_error:
                return Header(_text(pair), None)
            raise InvalidRecordError(
                f"No header key separator found in pair '{_text(pair)}' on line number {line_number}"
            )
        if key == self.null_marker:
            raise InvalidRecordError(
                f"Header keys should not be equal to the null marker '{_text(key)}' as they can't be null"
            )
        return Header(_text(key), self._or_null(value))

    def _or_null(self, part: bytes | None) -> bytes | None:
        return None if part == self.null_marker else part


def without_line_end(line: bytes) -> bytes:
    r"""A line without its LF or CR LF.

    >>> without_line_end(b"a\r\n")
    b'a'
    """
    return line.removesuffix(b"\n").removesuffix(b"\r") if line.endswith(b"\n") else line


def _field(name: str) -> str:
    return name.replace(".", "_")


def _text(part: bytes) -> str:
    return part.decode(errors="replace")
