"""HTTP/1.1 messages as bytes: where one ends, and what its head says. Pure.

Source: RFC 9112, sections 2, 3, 6 and 7.1. A message is kept as it came, so that what signs it stays right.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Self

END_OF_HEAD = b"\r\n\r\n"
HEAD_BYTES_MAX = 1 << 20
NO_BODY = {204, 304}
"""Statuses of answers that have no body, whatever their head says."""


class NotHttpError(ValueError):
    """The bytes are no message of HTTP/1.1."""


@dataclass(frozen=True, slots=True)
class Head:
    """The first line of a message, its three parts, and its fields in order."""

    parts: tuple[str, str, str]
    fields: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, data: bytes) -> Self:
        """From the bytes before the empty line. NotHttpError.

        >>> Head.of(b"GET /b/k HTTP/1.1\\r\\nHost: a:1").get("host")
        'a:1'
        """
        first, *lines = data.decode("latin-1").split("\r\n")
        parts = first.split(" ", 2)
        if len(parts) < 2 or not (parts[0].startswith("HTTP/") or parts[-1].startswith("HTTP/")):
            raise NotHttpError(f"no first line of HTTP/1.1: {first[:100]!r}")
        fields = []
        for line in lines:
            name, colon, value = line.partition(":")
            if not colon or name != name.strip():
                raise NotHttpError(f"no field: {line[:100]!r}")
            fields.append((name, value.strip()))
        return cls((parts[0], parts[1], parts[2] if len(parts) > 2 else ""), tuple(fields))

    def get(self, name: str) -> str:
        """The first field of this name in any case, "" without one."""
        return next((value for key, value in self.fields if key.lower() == name.lower()), "")

    def with_fields(self, **changed: str) -> Self:
        """Values of fields that are there are replaced; underscores stand for hyphens."""
        new = {name.replace("_", "-").lower(): value for name, value in changed.items()}
        return replace(self, fields=tuple((name, new.get(name.lower(), value)) for name, value in self.fields))

    def to_bytes(self) -> bytes:
        """The head with the empty line."""
        lines = [" ".join(part for part in self.parts if part), *(f"{name}: {value}" for name, value in self.fields)]
        return "\r\n".join(lines).encode("latin-1") + END_OF_HEAD

    @property
    def is_chunked(self) -> bool:
        return self.get("transfer-encoding").lower().endswith("chunked")

    @property
    def content_length(self) -> int | None:
        """None when the head has none. NotHttpError for what is no number."""
        text = self.get("content-length")
        if not text:
            return None
        if not text.isdecimal():
            raise NotHttpError(f"Content-Length: {text[:100]!r}")
        return int(text)

    @property
    def status(self) -> int:
        """Of an answer."""
        return int(self.parts[1])


@dataclass(frozen=True, slots=True)
class Message:
    """A whole message.

    raw   head and body as they came
    body  without the framing of chunks
    is_last  whether its end is the connection's
    """

    head: Head
    raw: bytes = field(repr=False)
    body: bytes = field(repr=False)
    is_last: bool = False


def head_in(buffer: bytes | bytearray) -> tuple[Head, int] | None:
    """The head at the start of what was received, and where its body begins; None while it is not whole."""
    end = buffer.find(END_OF_HEAD, 0, HEAD_BYTES_MAX)
    if end < 0:
        if len(buffer) >= HEAD_BYTES_MAX:
            raise NotHttpError(f"no end of a head in {len(buffer)} bytes")
        return None
    return Head.of(bytes(buffer[:end])), end + len(END_OF_HEAD)


def request_in(buffer: bytes | bytearray) -> Message | None:
    """The request at the start of what was received; None while it is not whole."""
    found = head_in(buffer)
    if found is None:
        return None
    head, start = found
    if head.is_chunked:
        return _chunked(head, buffer, start)
    return _of_length(head, buffer, start, head.content_length or 0)


def answer_in(buffer: bytes | bytearray, method: str, *, is_closed: bool = False) -> Message | None:
    """The answer to a request of this method at the start of what was received; None while it is not whole.

    is_closed  whether the server has ended the connection, which ends an answer of unknown length
    """
    found = head_in(buffer)
    if found is None:
        return None
    head, start = found
    if method == "HEAD" or head.status in NO_BODY or head.status < 200:
        return _of_length(head, buffer, start, 0)
    if head.is_chunked:
        return _chunked(head, buffer, start)
    if head.content_length is not None:
        return _of_length(head, buffer, start, head.content_length)
    return Message(head, bytes(buffer), bytes(buffer[start:]), is_last=True) if is_closed else None


def _of_length(head: Head, buffer: bytes | bytearray, start: int, size_bytes: int) -> Message | None:
    end = start + size_bytes
    if len(buffer) < end:
        return None
    return Message(head, bytes(buffer[:end]), bytes(buffer[start:end]), _closes(head))


def _chunked(head: Head, buffer: bytes | bytearray, start: int) -> Message | None:
    parts, at = [], start
    while True:
        line_end = buffer.find(b"\r\n", at)
        if line_end < 0:
            return None
        size_text = bytes(buffer[at:line_end]).partition(b";")[0].strip()
        try:
            size_bytes = int(size_text, 16)
        except ValueError as reason:
            raise NotHttpError(f"no size of a chunk: {size_text[:100]!r}") from reason
        data_at = line_end + 2
        if size_bytes == 0:
            return _with_trailer(head, buffer, data_at, b"".join(parts))
        at = data_at + size_bytes + 2
        if len(buffer) < at:
            return None
        if buffer[at - 2 : at] != b"\r\n":
            raise NotHttpError(f"no end of a chunk of {size_bytes} bytes")
        parts.append(bytes(buffer[data_at : at - 2]))


def _with_trailer(head: Head, buffer: bytes | bytearray, at: int, body: bytes) -> Message | None:
    """The trailer is lines up to an empty one."""
    while True:
        line_end = buffer.find(b"\r\n", at)
        if line_end < 0:
            return None
        if line_end == at:
            return Message(head, bytes(buffer[: at + 2]), body, _closes(head))
        at = line_end + 2


def _closes(head: Head) -> bool:
    return head.get("connection").lower() == "close"
