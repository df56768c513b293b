"""A command line as data: what flags become, which rules refuse, and that every tool's tables name what there is."""

from __future__ import annotations

import argparse
import importlib
import re

import pytest

from stratalog.jobs.command.flags import Flag, Rule, switch
from stratalog.jobs.command.terminal import UsageError
from stratalog.jobs.command.tool import Command
from stratalog.jobs.command.words import Words
from stratalog.jobs.strata import modules

TOOLS = tuple(modules())

FLAGS = {
    "what": (switch("list", "List."), switch("grow", "Grow.")),
    "which": (
        Flag("topic", "TOPIC", "The topic.", required_with="grow"),
        Flag("count", "N", "How many.", int, only_with="grow"),
        Flag("state", "STATES", "The states.", bare="", only_with="list"),
        Flag("extra.config", "K=V", "More.", is_repeated=True),
        Flag("level", "LEVEL", "How much.", str.upper, "ALL", choices=("ALL", "SOME")),
    ),
}
ACTIONS = ("list", "grow")
PROG = "strata topics"
AT_MOST_ONE = Rule.at_most_one(("topic", "count"))
NOT_WITH_LIST = Rule.not_with("list", "count state level")
BY_ACTION = Rule.by_action(FLAGS, ACTIONS)


def missing(flag: str) -> str:
    return f'Missing required argument "[{flag}]"'


def not_with(flag: str, other: str) -> str:
    return f'Option "[{flag}]" can\'t be used with option "[{other}]"'


def tool(*rules: Rule) -> Command:
    return Command("topics", "Lists.", "example: {prog} --list", FLAGS, lambda given: 0, rules, Words(ACTIONS))


def command_of(name: str) -> Command:
    command = importlib.import_module(modules()[name]).main
    assert isinstance(command, Command)
    return command


def test_flags_have_kinds_defaults_and_the_one_action() -> None:
    flags = ["--grow", "--count", "0", "--state", "--extra.config", "a=1", "--extra.config=b", "--level", "some"]
    given = tool().parse(flags)
    assert given == argparse.Namespace(
        list=False, grow=True, topic=None, count=0, state="", extra_config=["a=1", "b"], level="SOME", action="grow"
    )
    assert tool().parse([]) == argparse.Namespace(
        list=False, grow=False, topic=None, count=None, state=None, extra_config=[], level="ALL", action=None
    )


def test_repeated_flags_of_two_command_lines_are_apart() -> None:
    made = tool()
    assert made.parse(["--extra.config", "a"]).extra_config == ["a"]
    assert made.parse([]).extra_config == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--count", "many"], "argument --count: invalid int value: 'many'"),
        (["--level", "none"], "argument --level: invalid choice: 'NONE'"),
        (["--topics"], "topics is not a recognized option"),
        (["--top", "t"], "top is not a recognized option"),
        (["--topic"], "argument --topic: expected one argument"),
    ],
)
def test_what_is_not_a_flag_or_a_value_is_refused(arguments: list[str], message: str) -> None:
    with pytest.raises(UsageError) as refused:
        tool().parse(arguments)
    assert message in str(refused.value)
    assert str(refused.value).endswith("--help'.")


@pytest.mark.parametrize(
    ("rules", "arguments", "message"),
    [
        pytest.param(Rule.exactly_one(ACTIONS, "see {prog}"), [], f"see {PROG}", id="none of two"),
        pytest.param(Rule.exactly_one(ACTIONS, "one"), ["--list", "--grow"], "one", id="both of two"),
        pytest.param(Rule.exactly_one(ACTIONS, "one"), ["--list"], None, id="one of two"),
        pytest.param(AT_MOST_ONE, [], None, id="none of at most one"),
        pytest.param(AT_MOST_ONE, ["--count=0", "--topic=t"], not_with("topic", "count"), id="0 is a value"),
        pytest.param(AT_MOST_ONE, ["--count=1", "--topic="], None, id="an empty value is not given"),
        pytest.param(Rule.required("topic"), ["--topic="], missing("topic"), id="an empty value is none"),
        pytest.param(Rule.required("topic count", "grow"), ["--grow", "--topic=t"], missing("count"), id="with it"),
        pytest.param(Rule.required("topic count", "grow"), ["--list"], None, id="without the action"),
        pytest.param(NOT_WITH_LIST, ["--list", "--state"], not_with("state", "list"), id="without its value"),
        pytest.param(NOT_WITH_LIST, ["--list", "--level=all"], None, id="the default is not given"),
        pytest.param(BY_ACTION, ["--grow", "--count=1"], missing("topic"), id="required_with"),
        pytest.param(BY_ACTION, ["--list", "--count=1"], not_with("count", "list"), id="only_with"),
        pytest.param(BY_ACTION, ["--grow", "--topic=t", "--count=1"], None, id="as the flags say"),
    ],
)
def test_rules(rules: list[Rule], arguments: list[str], message: str | None) -> None:
    made = tool(*rules)
    if message is None:
        made.checked(arguments)
        return
    with pytest.raises(UsageError) as refused:
        made.checked(arguments)
    assert str(refused.value) == message


def test_an_action_may_be_written_without_dashes() -> None:
    flags = {"": (Flag("action", "ACTION", "Which.", is_positional=True), Flag("output", "FILE", "Where."))}
    made = Command("topics", "", "", flags, lambda given: 0, Rule.required("output", "backup"))
    assert made.checked(["restore"]).action == "restore"
    with pytest.raises(UsageError, match="output"):
        made.checked(["backup"])


def test_a_body_gets_further_arguments() -> None:
    made = Command("topics", "", "", FLAGS, lambda given, more: given.count + more)
    assert made.call(["--count", "2"], 3) == 5


def test_help_has_headings_flags_and_the_way_it_was_called() -> None:
    shown = tool().help()
    for wanted in ("what:", "which:", "--state [STATES]", "--extra.config K=V", f"example: {PROG} --list"):
        assert wanted in shown


@pytest.mark.parametrize("name", TOOLS)
def test_a_tools_tables_name_its_own_flags_and_actions(name: str) -> None:
    command = command_of(name)
    flags = [flag for group in command.flags.values() for flag in group]
    names = [flag.name for flag in flags]
    assert len(set(names)) == len(names)
    positional = [flag for flag in flags if flag.is_positional]
    known = {*names, *(choice for flag in positional for choice in flag.choices)}
    assert set(command.words.actions) | set(command.words.values) <= set(names)
    assert command.words.default in ("", *command.words.actions)
    assert {word for rule in command.rules for word in f"{rule.given} {rule.lacking}".split()} <= known
    of_actions = {word for flag in flags for word in f"{flag.only_with} {flag.required_with}".split()}
    assert of_actions <= set(command.words.actions)


@pytest.mark.parametrize("name", TOOLS)
def test_a_tools_help_shows_every_flag_and_its_exit_codes(name: str) -> None:
    command = command_of(name)
    shown = command.help()
    flags = [flag for group in command.flags.values() for flag in group if not flag.is_positional]
    assert [flag.name for flag in flags if f"--{flag.name}" not in shown] == []
    assert "exit code" in shown
    assert re.findall(r"\{[a-z]+\}", shown) == []
