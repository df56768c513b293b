"""Kafka's `ConfigDef`: the configs of topics, brokers, clients and Spark options, with one parser for all. Pure.

A `ConfigKey` is one config: name, type, default, unit, meaning and validator. A `ConfigDef` is a set of them, made from
a dataclass whose fields are `config_field`s; a field's Kafka name has dots (`linger_ms` is `linger.ms`). Error texts
are Kafka's. Source: `org.apache.kafka.common.config.ConfigDef`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field, fields
from typing import Any, Literal, NamedTuple, Self

from stratalog.storage.errors import InvalidConfigError

ConfigType = Literal["BOOLEAN", "STRING", "INT", "LONG", "DOUBLE", "LIST", "PASSWORD", "CLASS"]
"""Kafka's `ConfigDef.Type`. A LIST is text with commas; its value is a tuple of stripped parts, () for none. A PASSWORD
is text that no error and no answer shows. A CLASS is an object that can be called, such as a serializer."""
HIDDEN = "[hidden]"

Validator = Callable[[Any], Any]
"""A function from a typed value to the value that counts; ValueError with the reason in Kafka's words."""

_INTEGER = re.compile(r"[+-]?[0-9]{1,20}")


class ConfigKey(NamedTuple):
    """One config. `default` is typed; `unit` is "ms", "bytes", … or "" for a pure number or word."""

    name: str
    type: ConfigType
    default: Any
    unit: str = ""
    doc: str = ""
    validator: Validator | None = None

    @property
    def field_name(self) -> str:
        return self.name.replace(".", "_")

    def shown(self, value: str) -> str:
        """A value as Kafka shows it once it is in force; one that does not count, as it is.

        >>> ConfigKey("min.cleanable.dirty.ratio", "DOUBLE", 0.5).shown(" .5")
        '0.5'
        """
        try:
            return spelled(self.parse(value))
        except InvalidConfigError:
            return value

    def parse(self, value: object) -> Any:
        """The typed value of text or of a TOML value.

        Raises InvalidConfigError: "Invalid value 0 for configuration segment.ms: Value must be at least 1".
        """
        try:
            typed = _typed(self.type, value)
            return typed if self.validator is None else self.validator(typed)
        except ValueError as reason:
            raise invalid_value(self.name, HIDDEN if self.type == "PASSWORD" else value, str(reason)) from reason


class ConfigDef:
    """The configs of one thing (`what`: topic, broker, producer …), in the order of their declaration.

    `synonyms` maps further names to the name that counts. Of two names of one config, the later one counts.
    """

    def __init__(self, what: str, keys: Iterable[ConfigKey], synonyms: Mapping[str, str] | None = None) -> None:
        self._what = what
        self._keys = {key.name: key for key in keys}
        self._synonyms = synonyms or {}

    @classmethod
    def of(cls, what: str, config_type: type[Any], synonyms: Mapping[str, str] | None = None) -> Self:
        """The configs that a dataclass declares by `config_field`."""
        declared = [(each.name.replace("_", "."), each.metadata.get("key")) for each in fields(config_type)]
        return cls(what, [key._replace(name=name) for name, key in declared if key is not None], synonyms)

    def __iter__(self) -> Iterator[ConfigKey]:
        return iter(self._keys.values())

    def __contains__(self, name: str) -> bool:
        return self._synonyms.get(name, name) in self._keys

    def key(self, name: str) -> ConfigKey:
        """The config of this name. Raises InvalidConfigError with the nearest known name for an unknown one."""
        found = self._keys.get(self._synonyms.get(name, name))
        if found is None:
            from difflib import get_close_matches  # a Python worker that only reads loads no more than it needs

            nearest = get_close_matches(name.replace("_", "."), self._keys, n=1)
            hint = f" (did you mean {nearest[0]}?)" if nearest else ""
            raise InvalidConfigError(f"Unknown {self._what} config name: {name}{hint}")
        return found

    def parse(self, given: Mapping[str, object]) -> dict[str, Any]:
        """Typed values by field name, of the given names only. Raises InvalidConfigError in Kafka's words."""
        keys = [(self.key(name), value) for name, value in given.items()]
        return {key.field_name: key.parse(value) for key, value in keys}


def config_field(
    type: ConfigType,  # noqa: A002 - Kafka's word, as in ConfigKey
    default: Any,
    unit: str = "",
    doc: str = "",
    validator: Validator | None = None,
) -> Any:
    """A dataclass field that declares a config; `Any` because it stands for a value of the field's own type."""
    key = ConfigKey("", type, default, unit, doc, validator)
    return field(default=default, repr=type != "PASSWORD", metadata={"key": key})


def invalid_value(name: str, value: object, reason: str) -> InvalidConfigError:
    """Kafka's `ConfigException` for one value."""
    return InvalidConfigError(f"Invalid value {value} for configuration {name}: {reason}")


def spelled(value: object) -> str:
    """A value as Kafka writes it.

    >>> spelled(True), spelled(3), spelled(("compact", "delete"))
    ('true', '3', 'compact,delete')
    """
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def at_least(low: float) -> Validator:
    """Kafka's `ConfigDef.Range.atLeast`."""
    return between(low, float("inf"))


def between(low: float, high: float) -> Validator:
    """Kafka's `ConfigDef.Range.between`, both ends included."""

    def validate(value: Any) -> Any:
        if not low <= value:  # also refuses nan
            raise ValueError(f"Value must be at least {low}")
        if value > high:
            raise ValueError(f"Value must be no more than {high}")
        return value

    return validate


def one_of(*words: str) -> Validator:
    """Kafka's `ConfigDef.ValidString.in`."""

    def validate(text: str) -> str:
        if text.strip() not in words:
            raise ValueError(f"String must be one of: {', '.join(words)}")
        return text.strip()

    return validate


def each_of(*words: str) -> Validator:
    """Kafka's `ConfigDef.ValidList.in`; a word that is listed twice counts once."""
    one = one_of(*words)
    return lambda listed: tuple(dict.fromkeys(map(one, listed)))


def non_empty(text: str) -> str:
    """Kafka's `ConfigDef.NonEmptyString`; the text without blanks around it."""
    if not text.strip():
        raise ValueError("String must be non-empty")
    return text.strip()


def _typed(config_type: ConfigType, value: object) -> Any:
    if config_type in ("STRING", "PASSWORD"):
        if not isinstance(value, str):
            raise ValueError("Expected value to be a string")
        return value
    if config_type == "CLASS":
        if not callable(value):
            raise ValueError("Expected an object that can be called, not the name of a class")
        return value
    if config_type != "LIST" and isinstance(value, list | tuple):
        raise ValueError(f"Expected one value of type {config_type}, not a list")
    text = spelled(value).strip()
    if config_type == "LIST":
        return tuple(part.strip() for part in text.split(",")) if text else ()
    if config_type == "BOOLEAN":
        if text.lower() not in ("true", "false"):
            raise ValueError("Expected value to be either true or false")
        return text.lower() == "true"
    return _number(config_type, text)


def _number(config_type: ConfigType, text: str) -> float:
    try:
        if config_type == "DOUBLE":
            return float(text)
        if _INTEGER.fullmatch(text):
            return int(text)
    except ValueError:
        pass
    raise ValueError(f"Not a number of type {config_type}")
