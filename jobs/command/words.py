"""Short forms of a command line: words without dashes, as people type them, become flags. Pure.

`strata topics create orders -p 3` is `strata topics --create --topic orders --partitions 3`. The first word is the
tool's action, where it has actions; the words behind it are values of the flags that the tool names.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from stratalog.jobs.command.flags import Flag
from stratalog.jobs.command.terminal import UsageError

LIKENESS_MIN = 0.6
"""How alike two names are, from 0 to 1, of which one is meant (difflib's measure)."""


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The name most like this one; None when none is alike.

    >>> nearest("tpoic", ["topic", "topic-id", "partitions"]), nearest("xyz", ["topic"])
    ('topic', None)
    """
    return next(iter(get_close_matches(name, sorted(known), 1, LIKENESS_MIN)), None)


@dataclass(frozen=True, slots=True)
class Words:
    """How a tool's words become flags.

    actions   flags that each ask for one action, which may be written as the first word
    default   the action when the command line names none, nor anything else but the cluster; empty: there is none
    values    the flags that take the words behind the action, in order; the last one takes all that are left if it may
              be repeated
    """

    actions: Sequence[str] = ()
    default: str = ""
    values: Sequence[str] = ()


NO_WORDS = Words()
"""A tool with flags alone."""


@dataclass(slots=True)
class _Split:
    """A command line: its words, the rest in order, and the values of its flags by name.

    has_unknown  a flag is not the tool's: what stands behind it may be its value
    """

    words: list[str]
    rest: list[str]
    values: dict[str, list[str]]
    has_unknown: bool = False


def spelled_out(
    arguments: Sequence[str], flags: Mapping[str, Flag], words: Words, of_cluster: Iterable[str]
) -> list[str]:
    """The command line with flags alone; what it does not know it leaves as it is.

    flags       by name
    of_cluster  names of flags beside which the default action is meant
    UsageError for a flag that is given twice and has one value, a word that is no action, or one too many.

    >>> known = {name: Flag(name, "X", "") for name in ("topic", "partitions")} | {"create": Flag("create", "", "")}
    >>> spelled_out(["create", "orders", "--partitions", "3"], known, Words(("create",), "", ("topic",)), ())
    ['--create', '--topic', 'orders', '--partitions', '3']
    """
    split = _split(arguments, flags)
    if split.has_unknown:
        return list(arguments)
    for name, values in split.values.items():
        if len(values) > 1 and name in flags and flags[name].metavar and not flags[name].is_repeated:
            found = " and ".join(map(repr, values))
            raise UsageError(f"Found multiple arguments for option {name}, but it takes only one: {found}")
    if any(flag.is_positional for flag in flags.values()):
        kept, named = split.words[:1], split.words[1:]
    else:
        kept, named = [], split.words
    action, named = _action(named, split, words, flags, set(of_cluster))
    return [*kept, *action, *_values(named, flags, words), *split.rest]


def _split(arguments: Sequence[str], flags: Mapping[str, Flag]) -> _Split:
    by_spelling = {spelling: flag for flag in flags.values() for spelling in flag.spellings}
    found = _Split([], [], {})
    left = list(reversed(arguments))
    while left:
        argument = left.pop()
        if not argument.startswith("-") or argument == "-":
            found.words.append(argument)
            continue
        found.rest.append(argument)
        name, equals, value = argument.partition("=")
        flag = by_spelling.get(name) or by_spelling.get(name[:2])
        if flag is None:
            found.has_unknown |= name not in ("--help", "-h", "--version")
            continue
        if name not in by_spelling:  # a letter with its value, as in -p3
            found.values.setdefault(flag.name, []).append(argument[2:])
            continue
        values = found.values.setdefault(flag.name, [])
        if equals:
            values.append(value)
        elif left and _takes(flag, left[-1]):
            values.append(left[-1])
            found.rest.append(left.pop())
    return found


def _takes(flag: Flag, following: str) -> bool:
    """Whether what follows a flag is its value. One that may be bare takes what is no flag."""
    return bool(flag.metavar) and (flag.bare is None or not following.startswith("-"))


def _action(
    named: list[str], split: _Split, words: Words, flags: Mapping[str, Flag], of_cluster: set[str]
) -> tuple[list[str], list[str]]:
    """The action as a flag, if it is a word or the default, and the words behind it."""
    if not words.actions or any(name in split.values for name in words.actions):
        return [], named
    if named and named[0] in words.actions:
        count = 2 if flags[named[0]].metavar else 1
        return [f"--{named[0]}", *named[1:count]], named[count:]
    if named:
        meant = nearest(named[0], words.actions)
        hint = f"; the nearest is {meant}" if meant else ""
        raise UsageError(f"{named[0]} is not one of {', '.join(words.actions)}{hint}")
    if words.default and split.values.keys() <= of_cluster:
        return [f"--{words.default}"], named
    return [], named


def _values(named: Sequence[str], flags: Mapping[str, Flag], words: Words) -> Iterator[str]:
    names = list(words.values)
    for word in named:
        if not names:
            raise UsageError(f"{word} is one word too many: write values behind their flags")
        yield f"--{names[0]}"
        yield word
        if not (len(names) == 1 and flags[names[0]].is_repeated):
            names.pop(0)
