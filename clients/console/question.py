"""A question about a cluster: its name, its parameters, and what answers it.

I/O: none of its own.

Pages, JSON and agents ask the same questions. An answer is a frozen dataclass of plain values, lists and dicts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from enum import Enum
from typing import Any

from stratalog.clients.console.asker import Asker
from stratalog.storage.errors import InvalidRequestError

REQUIRED = object()
"""The default of a parameter without one."""
_WORDS_OF_TRUE, _WORDS_OF_FALSE = ("true", "1", "on", "yes"), ("false", "0", "off", "no", "")


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a question.

    kind     `str`, `int`, `float` or `bool`
    doc      what it means, with its unit
    default  its value when it is not given; REQUIRED: it has to be
    choices  the values allowed; none: all
    """

    kind: type[str] | type[int] | type[float] | type[bool]
    doc: str
    default: object = REQUIRED
    choices: tuple[str, ...] = ()

    def value(self, name: str, text: str | None) -> object:
        """The value of a text; None or an empty one: not given. InvalidRequestError names what is wrong.

        >>> Parameter(int, "how many", 10).value("limit", "25"), Parameter(bool, "whether").value("all", "on")
        (25, True)
        """
        if text is None or (text == "" and self.kind is not str) or (text == "" and self.default is not REQUIRED):
            if self.default is REQUIRED:
                raise InvalidRequestError(f"{name} is missing: {self.doc}")
            return self.default
        if self.choices and text not in self.choices:
            raise InvalidRequestError(f"{name} is one of {', '.join(self.choices)}, not {text!r}")
        if self.kind is bool:
            if text.lower() in _WORDS_OF_TRUE:
                return True
            if text.lower() in _WORDS_OF_FALSE:
                return False
            raise InvalidRequestError(f"{name} is true or false, not {text!r}")
        try:
            return self.kind(text)
        except ValueError as reason:
            raise InvalidRequestError(f"{name} is a number, not {text!r}") from reason


@dataclass(frozen=True, slots=True)
class Question:
    """One question.

    name        as in its address, `/api/NAME`
    doc         what it answers, one sentence
    parameters  name -> parameter
    answer      gets the asker and the parameters by name; returns a frozen dataclass. Raises errors of the tree
    """

    name: str
    doc: str
    answer: Callable[..., object]
    parameters: Mapping[str, Parameter] = field(default_factory=dict)

    def ask(self, asker: Asker, given: Mapping[str, str]) -> object:
        """The answer, with parameters as texts. InvalidRequestError for one that is unknown or wrong."""
        for name in given:
            if name not in self.parameters:
                known = ", ".join(self.parameters) or "none"
                raise InvalidRequestError(f"{self.name} has no parameter {name!r}; it has: {known}")
        values = {name: each.value(name, given.get(name)) for name, each in self.parameters.items()}
        return self.answer(asker, **values)


def plain(value: Any) -> Any:
    """An answer as values that JSON has: dataclasses are dicts, bytes text with escapes.

    >>> plain(b"a\\xff")
    'a\\\\xff'
    """
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: plain(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, Mapping):
        return {str(name): plain(each) for name, each in value.items()}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(each) for each in value]
    if value is None or isinstance(value, str | int | float | bool):
        return value
    return str(value)
