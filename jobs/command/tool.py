"""A tool on the command line: its flags and rules with a body, its help. Kafka's rules on Python's argparse.

A tool is one `Command`, which is its `main`. A command line that breaks a rule raises UsageError. I/O: the terminal, in
`Command.__call__` and `one_spelling`; the rest is pure.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from stratalog import __version__
from stratalog.jobs.command.flags import Flag, Rule
from stratalog.jobs.command.terminal import UsageError, complain, run
from stratalog.jobs.command.words import NO_WORDS, Words, nearest, spelled_out
from stratalog.storage.config_def import ConfigKey, spelled

PROGRAM = "strata"
BESIDE_DEFAULT = ("root", "bootstrap-server", "command-config", "output")
"""The flags beside which a tool's default action is meant."""


@dataclass(frozen=True, slots=True)
class Command:
    """A tool on the command line.

    tool     its name behind `strata`
    purpose  what it is for, the first lines of `--help`
    epilog   what follows the flags in `--help`: examples, exit codes, tables. `{prog}` is how the user calls it
    flags    heading in `--help` -> flags
    body     does what the flags ask for (an `argparse.Namespace`), and returns the exit code
    rules    what is refused, in the order in which it is checked
    words    its actions, of which `given.action` is the one given, and what words without dashes mean
    """

    tool: str
    purpose: str
    epilog: str
    flags: Mapping[str, Sequence[Flag]]
    body: Callable[..., int]
    rules: Sequence[Rule] = ()
    words: Words = NO_WORDS

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
        known = {flag.name: flag for group in self.flags.values() for flag in group}
        words = sys.argv[1:] if arguments is None else arguments
        given, unknown = parser.parse_known_args(spelled_out(words, known, self.words, BESIDE_DEFAULT))
        if unknown:
            first = next((word for word in unknown if word.startswith("-")), unknown[0])
            name = first.lstrip("-").partition("=")[0]
            meant = nearest(name, known)
            hint = f"; the nearest one is --{meant}" if meant else ""
            parser.error(f"{name} is not a recognized option{hint}")
        if self.words.actions:
            given.action = next((name for name in self.words.actions if self._is_given(given, name)), None)
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
        return f"{PROGRAM} {self.tool}"

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
