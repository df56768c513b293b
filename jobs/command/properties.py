"""Java's .properties format, in which Kafka's users keep their settings. Pure, but for `read_text`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from stratalog.jobs.command.terminal import UsageError
from stratalog.storage.errors import InvalidConfigError

_ENTRY = re.compile(r"((?:\\.|[^\\=: \t\f])*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_ESCAPED = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def read_text(file: str) -> str:
    """The text of a file. UsageError naming the file when it cannot be read."""
    try:
        return Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as reason:
        raise UsageError(f"{file} cannot be read: {getattr(reason, 'strerror', None) or reason}") from reason


def read_properties(file: str) -> dict[str, str]:
    """The properties of a file. UsageError naming the file when it cannot be read."""
    return parse_properties(read_text(file))


def parse_properties(text: str) -> dict[str, str]:
    r"""Name and value of each entry; of two with one name the last.

    >>> parse_properties("# comment\nlinger.ms = 5\nkey.separator=\\t")
    {'linger.ms': '5', 'key.separator': '\t'}
    """
    entries = (_ENTRY.fullmatch(line) for line in _logical_lines(text))
    return {_unescaped(entry[1]): _unescaped(entry[2]) for entry in entries if entry}


def key_values(pairs: Iterable[str]) -> dict[str, str]:
    """`name=value` arguments; as in Kafka's tools a missing value is the empty string.

    >>> key_values(["parse.key=true", "key.separator=="])
    {'parse.key': 'true', 'key.separator': '='}
    """
    found: dict[str, str] = {}
    for pair in pairs:
        name, _, value = pair.partition("=")
        if not name.strip():
            raise UsageError(f"Invalid property '{pair}': it must be in the format key=value")
        found[name.strip()] = value
    return found


def typed_fields(properties: Mapping[str, str], kinds: Mapping[str, Callable[[str], Any]], what: str) -> dict[str, Any]:
    """Properties as a dataclass's fields: `key.separator` is `key_separator`. InvalidConfigError for an unknown one."""
    for name in properties:
        if name not in kinds:
            raise InvalidConfigError(f"Unknown {what} property name: {name}; known: {', '.join(kinds)}")
    return {name.replace(".", "_"): kinds[name](text) for name, text in properties.items()}


def truth(text: str) -> bool:
    """Java's Boolean.parseBoolean."""
    return text.strip().lower() == "true"


def _logical_lines(text: str) -> Iterator[str]:
    """Lines without blank ones and comments; one that ends in an odd number of backslashes is joined to the next."""
    begun = ""
    for line in text.splitlines():
        stripped = line.lstrip(" \t\f")
        if not begun and (not stripped or stripped[0] in "#!"):
            continue
        backslashes = len(stripped) - len(stripped.rstrip("\\"))
        if backslashes % 2:
            begun += stripped[:-1]
            continue
        yield begun + stripped
        begun = ""
    if begun:
        yield begun


def _unescaped(text: str) -> str:
    def plain(escape: re.Match[str]) -> str:
        what = escape[1]
        return chr(int(what[1:], 16)) if len(what) > 1 else _ESCAPED.get(what, what)

    return _ESCAPE.sub(plain, text)
