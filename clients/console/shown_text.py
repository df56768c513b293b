"""Bytes of others as text that can be shown: escaped, cut, never obeyed. Pure.

Markup is escaped where a page is made. What is left are characters that a browser or a terminal obeys: control
characters, and those that turn the direction of the text around them (Unicode's UAX 9) or are not seen at all.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

CUT_BYTES = 4_096
"""Number of bytes of a key, a value or a header that a page shows."""
HEX_BYTES = 256
"""Number of bytes of a binary value that a page shows, as hexadecimal digits."""

_OBEYED = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e"
    "\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\uffff\ud800-\udfff\U000e0000-\U000e0fff]"
)


@dataclass(frozen=True, slots=True)
class ShownBytes:
    """A key, value or header.

    text        what to show: of text its beginning, of other bytes hexadecimal digits
    size_bytes  of all of it; -1 for null
    is_binary   it is no UTF-8
    is_cut      more follows, which a download has
    """

    text: str
    size_bytes: int
    is_binary: bool = False
    is_cut: bool = False

    @property
    def is_null(self) -> bool:
        """Whether there is none, as the value of a deletion in a compacted topic."""
        return self.size_bytes < 0


NULL = ShownBytes("", -1)


def visible(text: str) -> str:
    """Text in which each character that would be obeyed stands as its number.

    >>> visible("a\\u202eb\\x1b[0m")
    'a⟨U+202E⟩b⟨U+001B⟩[0m'
    """
    return _OBEYED.sub(lambda found: f"⟨U+{ord(found[0]):04X}⟩", text)


def shown(data: bytes | None, cut_bytes: int = CUT_BYTES) -> ShownBytes:
    """Bytes as they are shown. No more than `cut_bytes` of them are decoded, and a character is not cut in two.

    >>> shown(b"caf\\xc3\\xa9"), shown(b"\\xff\\x00").text
    (ShownBytes(text='café', size_bytes=5, is_binary=False, is_cut=False), 'ff 00')
    """
    if data is None:
        return NULL
    part = data[:cut_bytes]
    is_cut = len(data) > cut_bytes
    try:
        text = part.decode()
    except UnicodeDecodeError as reason:
        ends_in_character = is_cut and reason.start > len(part) - 4 and reason.reason == "unexpected end of data"
        if not ends_in_character:
            return ShownBytes(data[:HEX_BYTES].hex(" "), len(data), is_binary=True, is_cut=len(data) > HEX_BYTES)
        text = part[: reason.start].decode()
    if "\x00" in text:
        return ShownBytes(data[:HEX_BYTES].hex(" "), len(data), is_binary=True, is_cut=len(data) > HEX_BYTES)
    return ShownBytes(visible(text), len(data), is_cut=is_cut)
