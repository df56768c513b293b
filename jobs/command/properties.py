"""Java's .properties format, in which Kafka's users keep their settings. Pure, but for `read_text`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import javaproperties

from stratalog.jobs.command.terminal import UsageError
from stratalog.storage.errors import InvalidConfigError


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
    r"""Name and value of each entry; of two with one name the last. UsageError for a wrong \u escape, as Java's.

    >>> parse_properties("# comment\nlinger.ms = 5\nkey.separator=\\t")
    {'linger.ms': '5', 'key.separator': '\t'}
    """
    try:
        return dict(javaproperties.loads(text))
    except javaproperties.InvalidUEscapeError as reason:
        raise UsageError(f"the properties cannot be read: {reason}") from reason


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
