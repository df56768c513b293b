"""A tool's command line as data: its flags, the rules between them, its help. Kafka's rules on Python's argparse.

A tool is one `Command`, which is its `main`. A command line that breaks a rule raises UsageError. I/O: the terminal, in
`Command.__call__` and `one_spelling`; the rest is pure.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any, NoReturn

from stratalog import __version__
from stratalog.jobs.command.terminal import UsageError, complain, run
from stratalog.storage.config_def import ConfigKey, spelled

STAYS_UP = ("broker", "cluster", "demo", "typed_table")
"""Programs that run until they are stopped, and the demo: `jobs/` itself holds them, `jobs/tools/` the others."""

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

    @property
    def attribute(self) -> str:
        """The name in the namespace of values.

        >>> Flag("producer.config", "FILE", "").attribute, Flag("topic-id", "ID", "").attribute
        ('producer_config', 'topic_id')
        """
        return self.name.replace("-", "_").replace(".", "_")

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
        group.add_argument(self.attribute if self.is_positional else f"--{self.name}", **options)


def switch(name: str, text: str, only_with: str = "") -> Flag:
    """A flag without a value."""
    return Flag(name, "", text, only_with=only_with)


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


@dataclass(frozen=True, slots=True)
class Command:
    """A tool on the command line.

    tool     its module's name
    purpose  what it is for, the first lines of `--help`
    epilog   what follows the flags in `--help`: examples, exit codes, tables. `{prog}` is how the user calls it
    flags    heading in `--help` -> flags
    body     does what the flags ask for (an `argparse.Namespace`), and returns the exit code
    rules    what is refused, in the order in which it is checked
    actions  flags that each ask for one action; `given.action` is the name of the one given
    """

    tool: str
    purpose: str
    epilog: str
    flags: Mapping[str, Sequence[Flag]]
    body: Callable[..., int]
    rules: Sequence[Rule] = ()
    actions: Sequence[str] = ()

    def __call__(self, arguments: Sequence[str] | None = None) -> int:
        """Run the tool on its terminal; the exit code."""
        return run(lambda: self.call(arguments))

    def call(self, arguments: Sequence[str] | None = None, *resources: object) -> int:
        """The tool without its terminal: raises what went wrong. `resources` are the body's further arguments."""
        return self.body(self.checked(arguments), *resources)

    def checked(self, arguments: Sequence[str] | None = None) -> argparse.Namespace:
        """The flags' values, which break no rule."""
        given = self.parse(arguments)
        self.check(given)
        return given

    def parse(self, arguments: Sequence[str] | None = None) -> argparse.Namespace:
        """The flags' values. UsageError in Kafka's words for what is not a flag."""
        parser = self.parser()
        given, unknown = parser.parse_known_args(arguments)
        if unknown:
            parser.error(f"{unknown[0].lstrip('-').partition('=')[0]} is not a recognized option")
        if self.actions:
            given.action = next((name for name in self.actions if self._is_given(given, name)), None)
        return given

    def check(self, given: argparse.Namespace) -> None:
        """UsageError with the message of the first rule that the values break."""
        for rule in self.rules:
            lacks_all = not any(self._is_given(given, name, or_empty=False) for name in rule.lacking.split())
            if lacks_all and all(self._is_given(given, name) for name in rule.given.split()):
                raise UsageError(rule.message.replace("{prog}", self.prog))

    def _is_given(self, given: argparse.Namespace, name: str, *, or_empty: bool = True) -> bool:
        flag = next((flag for group in self.flags.values() for flag in group if flag.name == name), None)
        if flag is None:  # an action that is written without dashes
            return bool(given.action == name)
        value = getattr(given, flag.attribute)
        return bool(value != flag.unset and (value != "" or (or_empty and flag.bare == "")))

    @property
    def prog(self) -> str:
        """How the user calls the tool."""
        return program(self.tool, sys.argv[0])

    def help(self) -> str:
        """What `--help` prints."""
        return self.parser().format_help()

    def parser(self) -> argparse.ArgumentParser:
        """argparse's form of the flags."""
        parser = _Parser(
            prog=self.prog,
            description=self.purpose,
            epilog=self.epilog.replace("{prog}", self.prog),
            allow_abbrev=False,
            add_help=False,
            formatter_class=_Help,
        )
        version = f"stratalog {__version__}"
        parser.add_argument("--help", "-h", action="help", help="Print usage information.")
        parser.add_argument("--version", action="version", version=version, help="Print the version.")
        for heading, flags in self.flags.items():
            group = parser.add_argument_group(heading) if heading else parser
            for flag in flags:
                flag.add_to(group)
        return parser


class _Help(argparse.RawDescriptionHelpFormatter):
    """Help that shows each flag once, with room for its text."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=34, width=118)


class _Parser(argparse.ArgumentParser):
    """Raises UsageError instead of ending the process."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}\nTry '{self.prog} --help'.")


def program(tool: str, called_as: str) -> str:
    """How the user calls the tool.

    >>> program("topics", "/opt/venv/bin/strata-topics"), program("topics", "jobs/tools/topics.py")
    ('strata-topics', 'python -m stratalog.jobs.tools.topics')
    """
    name = Path(called_as).name
    return f"strata-{tool.replace('_', '-')}" if name.startswith("strata-") else f"python -m {module_of(tool)}"


def module_of(tool: str) -> str:
    """The module that `python -m` runs.

    >>> module_of("topics"), module_of("broker")
    ('stratalog.jobs.tools.topics', 'stratalog.jobs.broker')
    """
    return f"stratalog.jobs.{tool}" if tool in STAYS_UP else f"stratalog.jobs.tools.{tool}"


def settings_table(listed: Iterable[ConfigKey]) -> str:
    """A line on each setting with default and unit, and one with its meaning, for `--help`."""
    rows = (f"  {c.name} = {spelled(c.default)}{f' {c.unit}' if c.unit else ''}\n      {c.doc}" for c in listed)
    return "\n".join(rows)


def identity_table(listed: Iterable[ConfigKey]) -> str:
    """A line on each setting without its default, and one with its meaning, for `--help`."""
    return "\n".join(f"  {each.name}\n      {each.doc}" for each in listed)


def one_spelling(given: argparse.Namespace, flag: str, deprecated: str) -> Any:
    """The value of a flag that has an older name, which is accepted with a warning. UsageError when both are given."""
    new, old = (getattr(given, name.replace("-", "_").replace(".", "_")) for name in (flag, deprecated))
    if new and old:
        raise UsageError(f"Options --{deprecated} and --{flag} cannot be specified together.")
    if old:
        complain(f"Option --{deprecated} is deprecated and will be removed in a future version. Use --{flag} instead.")
    return old or new
