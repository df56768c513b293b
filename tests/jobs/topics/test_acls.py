"""kafka-acls: what flags stand for, Kafka's lines, what does not go together."""

from __future__ import annotations

import io

import pytest

from stratalog.clients.admin.admin import Admin
from stratalog.jobs.command.terminal import FAILED, UsageError
from stratalog.jobs.topics.acls import main, perform
from stratalog.server.view.cluster_view import ClusterView
from tests.clients.memory_cluster import ROOT, MemoryCluster

TOPIC = "ResourcePattern(resourceType=TOPIC, name=t, patternType=LITERAL)"
GROUP = "ResourcePattern(resourceType=GROUP, name=g, patternType=LITERAL)"


class Tool:
    """The tool over a cluster in memory."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._admin = Admin(ROOT, view=ClusterView(ROOT, stores=MemoryCluster().stores))
        self._capsys = capsys

    def run(self, *flags: str, code: int = 0) -> str:
        assert perform(main.checked(["--root", ROOT, *flags]), self._admin) == code
        return self._capsys.readouterr().out

    def listed(self) -> list[str]:
        return [line.strip() for line in self.run("--list").splitlines() if line]


def entry(operation: str, principal: str = "User:bob", permission: str = "ALLOW", host: str = "*") -> str:
    return f"(principal={principal}, host={host}, operation={operation}, permissionType={permission})"


@pytest.fixture
def tool(capsys: pytest.CaptureFixture[str]) -> Tool:
    return Tool(capsys)


def test_what_is_added_is_listed_once_and_said_to_exist_the_second_time(tool: Tool) -> None:
    flags = ["--add", "--allow-principal", "User:bob", "--operation", "Read", "--operation", "write", "--topic", "t"]
    added = f"Adding ACLs for resource `{TOPIC}`: \n \t{entry('READ')}\n\t{entry('WRITE')}\n\n"
    assert tool.run(*flags) == added
    assert tool.run(*flags) == "".join(
        f"Acl (pattern={TOPIC}, entry={entry(name)}) already exists.\n" for name in ("READ", "WRITE")
    )
    assert tool.run("--list") == f"Current ACLs for resource `{TOPIC}`:\n\t{entry('READ')}\n\t{entry('WRITE')}\n\n"


def test_roles_stand_for_operations(tool: Tool) -> None:
    tool.run("--add", "--allow-principal", "User:bob", "--consumer", "--topic", "t", "--group", "g")
    assert tool.listed() == [
        f"Current ACLs for resource `{GROUP}`:", entry("READ"),
        f"Current ACLs for resource `{TOPIC}`:", entry("DESCRIBE"), entry("READ"),
    ]  # fmt: skip
    both = Tool(tool._capsys)
    both.run(
        "--add", "--allow-principal", "User:bob", "--producer", "--idempotent", "--consumer", "--topic", "t", "--group",
        "g", "--transactional-id", "x",
    )  # fmt: skip
    assert [line for line in both.listed() if line.startswith("(")] == [
        entry("IDEMPOTENT_WRITE"), entry("READ"), *map(entry, ("CREATE", "DESCRIBE", "READ", "WRITE")),
        *map(entry, ("DESCRIBE", "WRITE")),
    ]  # fmt: skip


def test_denied_hosts_and_prefixes_are_listed_by_principal_and_by_match(tool: Tool) -> None:
    tool.run("--add", "--deny-principal", "User:eve", "--deny-host", "10.0.0.1", "--topic", "or", "--operation", "All",
             "--resource-pattern-type", "prefixed")  # fmt: skip
    tool.run("--add", "--allow-principal", "User:*", "--topic", "orders")
    eve, everyone = entry("ALL", "User:eve", "DENY", "10.0.0.1"), entry("ALL", "User:*")
    matching = tool.run("--list", "--topic", "orders", "--resource-pattern-type", "match")
    assert (eve in matching, everyone in matching) == (True, True)
    assert eve not in tool.run("--list", "--topic", "orders")
    assert tool.run("--list", "--principal", "User:eve") == (
        "ACLs for principal `User:eve`\nCurrent ACLs for resource "
        f"`ResourcePattern(resourceType=TOPIC, name=or, patternType=PREFIXED)`:\n\t{eve}\n\n"
    )


@pytest.mark.parametrize(("answer", "left"), [("y", 1), ("n", 3)])
def test_entries_are_removed_after_a_question(
    tool: Tool, monkeypatch: pytest.MonkeyPatch, answer: str, left: int
) -> None:
    tool.run("--add", "--allow-principal", "User:bob", "--operation", "Read", "--operation", "Write", "--topic", "t")
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{answer}\n"))
    asked = tool.run("--remove", "--allow-principal", "User:bob", "--operation", "Read", "--topic", "t")
    assert asked == (
        f"Are you sure you want to remove ACLs: \n \t{entry('READ')}\n from resource filter `{TOPIC}`? (y/n)\n"
    )
    assert len(tool.listed()) == left if answer == "n" else tool.listed()[1:] == [entry("WRITE")]
    assert tool.run("--remove", "--topic", "t", "--force") == ""
    assert tool.listed() == []


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--topic", "t"], "exactly one action"),
        (["--add", "--list"], "exactly one action"),
        (["--list", "--allow-principal", "User:b"], r'"\[list\]" can\'t be used with option "\[allow-principal\]"'),
        (["--add", "--producer", "--topic", "t", "--operation", "Read"], r'"\[producer\]" can\'t be used'),
        (["--add", "--principal", "User:b"], "only available if --list is set"),
        (["--add", "--producer"], "With --producer you must specify a --topic"),
        (["--add", "--idempotent", "--topic", "t"], "only available if --producer is set"),
        (["--add", "--consumer", "--topic", "t"], "With --consumer you must specify a --topic and a --group"),
        (["--add", "--allow-principal", "User:b"], "at least one resource"),
        (["--add", "--topic", "t"], "You must specify one of: --allow-principal, --deny-principal"),
        (["--add", "--topic", "t", "--resource-pattern-type", "any"], "'ANY' is not valid when adding acls"),
        (["--add", "--allow-principal", "User:b", "--topic", "t", "--operation", "ClusterAction"], "only supports"),
        (["--add", "--allow-principal", "User:b", "--topic", "t", "--operation", "Fly"], "Unknown operation: Fly"),
    ],
)
def test_what_does_not_go_together_is_refused_in_kafkas_words(tool: Tool, flags: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        tool.run(*flags)


def test_a_principal_without_a_type_is_an_error_of_the_command(tool: Tool) -> None:
    printed = tool.run("--add", "--allow-principal", "bob", "--topic", "t", code=FAILED)
    assert printed.startswith("Error while executing ACL command: ")


def test_the_cluster_has_to_be_named() -> None:
    with pytest.raises(UsageError, match="root"):
        main.call(["--list"])
