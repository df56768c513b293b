"""Every request that the console answers, made of its own routes, questions and changes, with names that users guess.

A question that is new is asked here by itself. A parameter or a route that is new has to be put into one of the tables
below: until then `unclassified` names it.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from urllib.parse import quote, quote_plus, urlencode

from starlette.applications import Starlette
from starlette.routing import Route

from stratalog.clients.console.application import PAGE_OF
from stratalog.clients.console.catalogue import CHANGES, QUESTIONS
from stratalog.clients.console.question import REQUIRED, Parameter

NAMING = ("topic", "group", "topic_id", "transactional_id", "subject", "table")
"""Parameters that name what a user may not see."""
FREE: Mapping[str, str] = {
    "contains": "",
    "at": "",
    "since": "",
    "until": "",
    "sql": "SELECT topic, partition FROM partitions",
    "key": "k",
    "value": "1",
    "headers": "a: b",
    "configs": "",
    "name": "retention.ms",
    "user": "eve",
    "password": "long enough",
    "principal": "User:eve",
    "resource_name": "kafka-cluster",
    "host": "*",
    "brokers": "1",
    "client_id": "a client",
    "text": '"string"',
    "table": "/lake/absent",
    "reason": "",
}
"""Parameters of text that name nothing hidden -> what is given for those without a default."""
NUMBERS: Mapping[str, str] = {
    "partition": "0",
    "offset": "0",
    "broker": "1",
    "partitions": "9",
    "erase_id": "1",
    "bound": "1000",
    "schema_id": "999",
}
"""What is given for numbers without a default."""
OF_ROUTES: Mapping[str, Mapping[str, str]] = {
    "/download": {"topic": "", "partition": "0", "offset": "0", "part": "value"},
    "/access": {},
    "/api": {},
}
"""Routes with parameters of their own."""
OF_ANYBODY = ("/static/{name}", "/login", "/logout")
"""Routes that answer before a login."""
OF_CATALOGUE = ("/api/{name}", "/ask/{name}", "/change/{name}")
STATEMENTS = (
    "SELECT * FROM `{name}`",
    "SELECT * FROM typed.`{name}` UNION ALL SELECT * FROM typed.`{name}__dlq`",
    (
        "SELECT topic FROM partitions WHERE topic = '{name}' UNION ALL SELECT topic FROM partition_history "
        "WHERE topic = '{name}' UNION ALL SELECT topic FROM leader_epochs WHERE topic = '{name}' UNION ALL "
        "SELECT topic FROM group_lag WHERE topic = '{name}' OR group_id = '{name}'"
    ),
)
"""What a curious user runs."""
_VOLATILE = re.compile(r'(?<="took_ms": )\d+|(?<=in )[\d.,]+\s?m?s|name="csrf" value="[0-9a-f]+"|as orders-value')
"""What differs each time, and an example in the description of a parameter."""


@dataclass(frozen=True, slots=True)
class Reader:
    """A user, with names of its own and names that it must not see; of a guess in `hidden` the one in `absent`, which
    is as long, names nothing."""

    name: str
    own: Mapping[str, str]
    hidden: Mapping[str, tuple[str, ...]]
    secrets: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Probe:
    """A request. `form` is posted; None: the address is fetched."""

    address: str
    form: Mapping[str, str] | None = None
    guess: str = ""

    def renamed(self, absent: str) -> Probe:
        """The same with a name that is nowhere."""
        swap = _Swap(self.guess, absent)
        form = None if self.form is None else {name: swap(value) for name, value in self.form.items()}
        return Probe(swap(self.address), form, absent)


@dataclass(frozen=True, slots=True)
class Asked:
    """A question or a change with its parameters as texts."""

    name: str
    given: Mapping[str, str] = field(default_factory=dict)
    guess: str = ""


def absent_of(guess: str) -> str:
    """A name of the same length and the same letters that nothing has.

    >>> absent_of("orders"), absent_of("orders-value")
    ('sredro', 'sredro-value')
    """
    stem = guess.removesuffix("-value")
    return stem[::-1] + guess[len(stem) :]


def unclassified(application: Starlette) -> list[str]:
    """Routes and parameters that are in no table above."""
    paths = {each.path for each in application.routes if isinstance(each, Route)}
    known = {*PAGE_OF, *OF_ROUTES, *OF_ANYBODY, *OF_CATALOGUE}
    found = [f"route {path}" for path in sorted(paths ^ known)]
    for owner in (*QUESTIONS.values(), *CHANGES.values()):
        for name, each in owner.parameters.items():
            if each.kind is str and not each.choices and name not in FREE and name not in NAMING:
                found.append(f"parameter {name} of {owner.name}")
            elif each.kind is not str and each.default is REQUIRED and name not in NUMBERS:
                found.append(f"number {name} of {owner.name}")
    return found


def _filled(parameters: Mapping[str, Parameter], reader: Reader) -> dict[str, str]:
    """What the parameters without a default need, and the reader's own names."""
    found: dict[str, str] = {}
    for name, each in parameters.items():
        if name in reader.own and (each.default is REQUIRED or name == "topic"):
            found[name] = reader.own[name]
        elif each.default is REQUIRED:
            found[name] = each.choices[0] if each.choices else NUMBERS.get(name) or FREE[name]
    return found


def asked(parameters: Mapping[str, Parameter], name: str, reader: Reader) -> Iterator[Asked]:
    """A question or a change with the reader's own names, then with each guess in place of one."""
    own = _filled(parameters, reader)
    yield Asked(name, own)
    without = {key: value for key, value in own.items() if parameters[key].default is REQUIRED}
    if without != own:
        yield Asked(name, without)
    for parameter in NAMING:
        if parameter in parameters:
            for guess in reader.hidden.get(parameter, ()):
                yield Asked(name, {**own, parameter: guess}, guess)
                if without != own:
                    yield Asked(name, {**without, parameter: guess}, guess)
    if "sql" in parameters:
        for guess in reader.hidden.get("topic", ())[:1]:
            yield from (Asked(name, {"sql": each.format(name=guess)}, guess) for each in STATEMENTS)
        for guess in reader.hidden.get("table", ()):
            yield Asked(name, {"sql": f"SELECT count(*) FROM delta.`{guess}`"}, guess)
        for own_table in filter(None, (reader.own.get("table"),)):
            yield Asked(name, {"sql": f"SELECT t.*, '{own_table}' FROM delta.`{own_table}` t"})


def all_questions(reader: Reader) -> Iterator[Asked]:
    """Every question, as `asked`."""
    for name, each in QUESTIONS.items():
        yield from asked(each.parameters, name, reader)


def all_changes(reader: Reader) -> Iterator[Asked]:
    """Every change, as `asked`."""
    for name, each in CHANGES.items():
        yield from asked(each.parameters, name, reader)


def probes(reader: Reader) -> Iterator[Probe]:
    """Every request of the reader."""
    pages = {question: path for path, (question, _) in PAGE_OF.items()}
    for one in all_questions(reader):
        given = urlencode(one.given)
        shown = [f"/api/{one.name}?{given}"]
        if one.name not in ("sql", "sql_tables"):  # a statement is a process
            shown.append(f"/ask/{one.name}?{given}")
        if one.name != "sql" or one.given.get("sql") in (FREE["sql"], STATEMENTS[0].format(name=one.guess)):
            shown += [f"{path}?{given}" for path, (question, _) in PAGE_OF.items() if question == one.name]
        yield from (Probe(each, None, one.guess) for each in shown)
    assert set(pages) <= set(QUESTIONS)
    for one in all_changes(reader):
        yield Probe(f"/change/{one.name}?{urlencode(one.given)}", None, one.guess)
        if one.guess:
            yield Probe(f"/change/{one.name}", {**one.given, "step": "preview"}, one.guess)
            yield Probe(f"/change/{one.name}", one.given, one.guess)
    for path, given_there in OF_ROUTES.items():
        yield Probe(f"{path}?{urlencode({**given_there, **{k: v for k, v in reader.own.items() if k in given_there}})}")
        for name in NAMING:
            if name in given_there:
                for guess in reader.hidden.get(name, ()):
                    yield Probe(f"{path}?{urlencode({**given_there, name: guess})}", None, guess)


def without_name(text: str, name: str) -> str:
    """A text without the name that was asked for, however it is written there, and without what differs each time."""
    text = _VOLATILE.sub("", text)
    for written in _written(name):
        text = text.replace(written, "NAME")
    return text


def _written(name: str) -> list[str]:
    found = {name, quote(name), quote_plus(name), html.escape(name), json.dumps(name)[1:-1]} if name else set()
    return sorted(found, key=len, reverse=True)


class _Swap:
    """Puts one name in place of another, as it is written in addresses, too."""

    def __init__(self, before: str, after: str) -> None:
        self._pairs = ((before, after), (quote_plus(before), quote_plus(after)))

    def __call__(self, text: str) -> str:
        for before, after in self._pairs:
            text = text.replace(before, after)
        return text
