"""Short forms of command lines, and the nearest name of what was mistyped."""

from __future__ import annotations

import pytest

from stratalog.jobs.command.terminal import UsageError
from stratalog.jobs.records import consume, groups, produce, transactions
from stratalog.jobs.strata import tool_module
from stratalog.jobs.topics import configs, topics

LISTS = [
    (topics.main, "create t -p 3 -r 2 -c a=1 -c b=2",
     "--create --topic t --partitions 3 --replication-factor 2 --config a=1 --config b=2"),
    (topics.main, "describe t", "--describe --topic t"),
    (topics.main, "--root r describe t --exclude-internal", "--describe --topic t --root r --exclude-internal"),
    (topics.main, "list", "--list"),
    (topics.main, "", "--list"),
    (topics.main, "-b h:9092", "--list --bootstrap-server h:9092"),
    (topics.main, "-p3 create t", "--create --topic t --partitions=3"),
    (produce.main, "orders", "--topic orders"),
    (consume.main, "orders -n 5 -o 7 -p 0",
     "--topic orders --max-messages 5 --offset 7 --partition 0"),
    (consume.main, "--offset latest -p 1 orders", "--topic orders --offset latest --partition 1"),
    (groups.main, "", "--list"),
    (groups.main, "describe a b", "--describe --group a --group b"),
    (groups.main, "list --state stable", "--list --state stable"),
    (groups.main, "list --state --type", "--list --state --type"),
    (groups.main, "validate-regex a.* ", "--validate-regex a.*"),
    (configs.main, "describe --topic t", "--describe --topic t"),
    (transactions.main, "list --duration-filter 5", "list --duration-filter 5"),
    (topics.main, "delete --topic 'a|b'", "--delete --topic 'a|b'"),
]  # fmt: skip


@pytest.mark.parametrize(("tool", "short", "long"), LISTS)
def test_a_short_form_is_the_long_one(tool: type[object], short: str, long: str) -> None:
    assert tool.checked(short.split()) == tool.checked(long.split())  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("tool", "given", "message"),
    [
        (topics.main, "lst", "lst is not one of list, describe, create, alter, delete; the nearest is list"),
        (topics.main, "orders", "orders is not one of list"),
        (topics.main, "list --exlude-internal", "exlude-internal is not a recognized option; the nearest one is --ex"),
        (topics.main, "describe a b", "b is one word too many"),
        (topics.main, "list --root a --root b", "arguments for option root, but it takes only one: 'a' and 'b'"),
        (produce.main, "a b", "b is one word too many"),
        (groups.main, "describe", "takes one of these options: [group], [all-groups]"),
    ],
)
def test_what_is_no_short_form_is_refused(tool: type[object], given: str, message: str) -> None:
    with pytest.raises(UsageError) as refused:
        tool.checked(given.split())  # type: ignore[attr-defined]
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("topcs", "topics"), ("kafka-topics", "topics"), ("kafka-console-producer", "produce"),
        ("consumer-groups", "groups"), ("dump_log", "dump-log"),
    ],
)  # fmt: skip
def test_a_wrong_subcommand_names_the_nearest_one(name: str, nearest: str) -> None:
    with pytest.raises(UsageError, match=rf"strata has no tool '{name}'; the nearest one is: strata {nearest}"):
        tool_module(name)


def test_an_unlike_subcommand_names_none() -> None:
    with pytest.raises(UsageError, match=r"strata has no tool 'xyzzy'\nTry 'strata --help'"):
        tool_module("xyzzy")
