"""`strata`: one command, with a subcommand for each tool. A tool's module is imported when its name is given.

I/O: the terminal. `python -m stratalog` is the same.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from types import MappingProxyType

from stratalog import __version__
from stratalog.jobs.command.terminal import DONE, UsageError, run
from stratalog.jobs.command.words import nearest

# fmt: off
TOOLS: Mapping[str, Mapping[str, tuple[str, str]]] = MappingProxyType({
    "clusters": {
        "cluster": ("cluster", "run a cluster in this process"),
        "broker": ("broker", "run one broker"),
        "console": ("console", "a cluster in a browser"),
        "mcp": ("mcp", "a cluster's state for agents"),
        "demo": ("demo.__main__", "a cluster at work, a broker killed, a verdict"),
        "metadata": ("replicas.metadata", "back up and restore the metadata log"),
    },
    "records": {
        "produce": ("records.produce", "lines of standard input as records"),
        "consume": ("records.consume", "records as lines of standard output"),
        "groups": ("records.groups", "list, describe, reset and delete groups"),
        "lag": ("records.lag", "how far groups are behind"),
        "transactions": ("records.transactions", "list, describe and abort transactions"),
        "typed-table": ("typed_table", "a topic as a typed Delta table"),
    },
    "topics": {
        "topics": ("topics.topics", "create, delete, describe, list and grow topics"),
        "configs": ("topics.configs", "configs of topics, groups, users, clients, brokers"),
        "acls": ("topics.acls", "add, remove and list ACLs"),
        "get-offsets": ("topics.get_offsets", "offsets of partitions by place or time"),
        "delete-records": ("topics.delete_records", "delete records before an offset"),
        "delete-where": ("topics.delete_where", "erase the records that match, and prove it"),
        "leader-election": ("topics.leader_election", "preferred and unclean elections"),
        "reassign-partitions": ("topics.reassign_partitions", "move partitions between brokers"),
    },
    "replicas": {
        "log-dirs": ("replicas.log_dirs", "contents of the brokers' log directories"),
        "dump-log": ("replicas.dump_log", "batches and records of a replica's log"),
        "replica-verification": ("replicas.replica_verification", "compare the replicas of topics"),
        "state-change-log-merger": ("replicas.state_change_log_merger", "several state-change logs as one"),
        "who-led": ("replicas.who_led", "the leader under which an offset was written"),
    },
    "this command": {
        "completion": ("completion.completion", "completions for bash, zsh and fish"),
    },
})
# fmt: on
"""Heading -> subcommand -> its module below `stratalog.jobs`, and what it is for."""

KAFKAS_NAMES = {"console-producer": "produce", "console-consumer": "consume", "consumer-groups": "groups"}
"""Kafka's names of tools that have another one here."""

USAGE = """usage: strata TOOL ...

Tools have Kafka's flags and output; `strata TOOL --help` shows them with examples.
"""


def modules() -> dict[str, str]:
    """Subcommand -> its module.

    >>> modules()["topics"]
    'stratalog.jobs.topics.topics'
    """
    return {name: f"stratalog.jobs.{module}" for tools in TOOLS.values() for name, (module, _) in tools.items()}


def overview() -> str:
    """What `strata --help` prints."""
    width = max(map(len, modules()))
    lines = [USAGE]
    for heading, tools in TOOLS.items():
        lines += [f"{heading}:", *(f"  {name:<{width}}  {purpose}" for name, (_, purpose) in tools.items()), ""]
    return "\n".join(lines)


def tool_module(name: str) -> str:
    """The module of a subcommand. UsageError for an unknown one, naming the nearest."""
    known = modules()
    if name in known:
        return known[name]
    meant = KAFKAS_NAMES.get(name.removeprefix("kafka-")) or nearest(name.removeprefix("kafka-"), known)
    hint = f"; the nearest one is: strata {meant}" if meant else ""
    raise UsageError(f"strata has no tool '{name}'{hint}\nTry 'strata --help'.")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the tool that the first word names; the exit code."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    if not words or words[0] in ("--help", "-h", "help"):
        print(overview(), end="")
        return DONE
    if words[0] == "--version":
        print(f"stratalog {__version__}")
        return DONE
    found: list[str] = []

    def look() -> int:
        found.append(tool_module(words[0]))
        return DONE

    code = run(look)
    return int(import_module(found[0]).main(words[1:])) if found else code


if __name__ == "__main__":
    sys.exit(main())
