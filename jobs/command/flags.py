"""A tool's flags, and the rules between them, as data. Pure."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

MISSING = 'Missing required argument "[{}]"'
NOT_TOGETHER = 'Option "[{}]" can\'t be used with option "[{}]"'


@dataclass(frozen=True, slots=True)
class Flag:
    """One flag.

    name           without its dashes
    metavar        the value's name in `--help`; empty: a switch, which is True when it is given
    help           its line in `--help`
    kind           makes the value from its text
    default        the value when the flag is not given
    bare           the value when the flag is given without one; None: it needs a value
    choices        the values allowed; none: all
    is_repeated    may be given several times: the value is the list of all
    is_positional  is given without its name
    only_with      the actions with which the flag is allowed, blanks between; empty: all
    required_with  the actions that need the flag
    letter         its short form, one letter; empty: it has none
    adds_to        a repeated flag, to whose values a switch adds an empty text, in the order of the command line
    """

    name: str
    metavar: str
    help: str
    kind: Callable[[str], Any] = str
    default: Any = None
    bare: str | None = None
    choices: Sequence[str] = ()
    is_repeated: bool = False
    is_positional: bool = False
    only_with: str = ""
    required_with: str = ""
    letter: str = ""
    adds_to: str = ""

    @property
    def attribute(self) -> str:
        """The name in the namespace of values.

        >>> Flag("producer.config", "FILE", "").attribute, Flag("topic-id", "ID", "").attribute
        ('producer_config', 'topic_id')
        """
        return self.name.replace("-", "_").replace(".", "_")

    @property
    def spellings(self) -> list[str]:
        """How the flag is written.

        >>> Flag("topic", "TOPIC", "", letter="t").spellings
        ['--topic', '-t']
        """
        return [f"--{self.name}", *([f"-{self.letter}"] if self.letter else [])]

    @property
    def unset(self) -> Any:
        """The value when the flag is not given."""
        return [] if self.is_repeated else self.default if self.metavar else False

    def add_to(self, group: argparse._ActionsContainer) -> None:
        """Make it known to argparse."""
        options: dict[str, Any] = {"help": self.help, "default": self.unset}
        if self.metavar:
            options |= {"metavar": self.metavar, "type": self.kind}
            options |= {"choices": self.choices} if self.choices else {}
            options |= {"nargs": "?", "const": self.bare} if self.bare is not None or self.is_positional else {}
        if not self.is_positional:
            options["dest"] = self.attribute
            options["action"] = "append" if self.is_repeated else "store" if self.metavar else "store_true"
        if self.adds_to:
            options |= {"action": _AddedEmpty, "nargs": 0, "const": self.adds_to.replace("-", "_")}
        group.add_argument(*([self.attribute] if self.is_positional else self.spellings), **options)


class _AddedEmpty(argparse.Action):
    """Sets a switch, and adds an empty text to the values of another flag: its attribute is `const`."""

    def __call__(self, _parser: object, namespace: argparse.Namespace, *_values: object) -> None:
        setattr(namespace, self.dest, True)
        setattr(namespace, self.const, [*getattr(namespace, self.const), ""])


def switch(name: str, text: str, only_with: str = "", adds_to: str = "") -> Flag:
    """A flag without a value."""
    return Flag(name, "", text, only_with=only_with, adds_to=adds_to)


@dataclass(frozen=True, slots=True)
class Rule:
    """Refuses a command line that has every flag of `given`, and a value for none of `lacking`.

    Names have blanks between; the name of an action may be among them.
    """

    message: str
    given: str = ""
    lacking: str = ""

    @staticmethod
    def exactly_one(names: Sequence[str], message: str) -> list[Rule]:
        """One of these is needed, and two are refused."""
        two = [replace(rule, message=message) for rule in Rule.at_most_one(names)]
        return [Rule(message, lacking=" ".join(names)), *two]

    @staticmethod
    def at_most_one(names: Iterable[str], message: str = NOT_TOGETHER) -> list[Rule]:
        """Two of these are refused; the message may name both."""
        return [Rule(message.format(*pair), given=" ".join(pair)) for pair in combinations(names, 2)]

    @staticmethod
    def not_with(name: str, others: str, message: str = NOT_TOGETHER) -> list[Rule]:
        """Each of `others` is refused beside `name`; the message may name the other one and `name`."""
        return [Rule(message.format(other, name), given=f"{name} {other}") for other in others.split()]

    @staticmethod
    def required(names: str, when: str = "", message: str = MISSING) -> list[Rule]:
        """Each of these is needed when all of `when` are given; the message may name it."""
        return [Rule(message.format(name), when, name) for name in names.split()]

    @staticmethod
    def by_action(
        groups: Mapping[str, Sequence[Flag]], actions: Iterable[str], message: str = NOT_TOGETHER
    ) -> list[Rule]:
        """The flags' `required_with` and `only_with`, action by action. `message`: of a flag and an action."""
        flags, rules = [flag for group in groups.values() for flag in group], list[Rule]()
        for action in actions:
            needed = [flag.name for flag in flags if action in flag.required_with.split()]
            stray = [flag.name for flag in flags if flag.only_with and action not in flag.only_with.split()]
            rules += Rule.required(" ".join(needed), action)
            rules += Rule.not_with(action, " ".join(stray), message)
        return rules
