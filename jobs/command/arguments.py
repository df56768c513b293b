"""Kafka's command line on argparse: long flags, actions as flags, how a cluster is named, topics by expression.

I/O: `client_properties` reads a property file; the rest is pure. What cannot be raises UsageError.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from stratalog import __version__
from stratalog.clients.offset_spec import OffsetSpec
from stratalog.jobs.command.properties import key_values, read_properties
from stratalog.jobs.command.terminal import UsageError, complain
from stratalog.replication.internal_topics import is_internal
from stratalog.storage.errors import InvalidConfigError, StratalogError

METADATA_FOLDER = "metadata"
METADATA_TABLE = "__cluster_metadata-0"
STAYS_UP = ("broker", "cluster", "demo")
"""Programs that run until they are stopped, and the demo: `jobs/` itself holds them, `jobs/tools/` the others."""

NO_ENDPOINT = (
    "--bootstrap-server {server}: the Kafka endpoint does not exist yet. "
    "Name the cluster by its metadata root instead: --root <metadata root> "
    "(strata-cluster prints it when it starts)."
)
ENDPOINT_NOT_USED = "--bootstrap-server {server} is not used: the Kafka endpoint does not exist yet, --root counts."

_OVERWRITTEN = ("bootstrap.servers", "key.serializer", "value.serializer", "key.deserializer", "value.deserializer")
"""What Kafka's console tools set themselves, whatever a property file says."""


class _Help(argparse.RawDescriptionHelpFormatter):
    """Help that shows each flag once, with room for its text."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=34, width=118)


class Parser(argparse.ArgumentParser):
    """A tool's flags. `epilog` follows the flags in `--help`: examples, tables of names."""

    def __init__(self, tool: str, purpose: str, epilog: str) -> None:
        super().__init__(
            prog=program(tool, sys.argv[0]),
            description=purpose,
            epilog=epilog,
            allow_abbrev=False,
            add_help=False,
            formatter_class=_Help,
        )
        self.add_argument("--help", "-h", action="help", help="Print usage information.")
        self.add_argument("--version", action="version", version=f"stratalog {__version__}", help="Print the version.")

    def parse(self, arguments: Sequence[str] | None) -> argparse.Namespace:
        """The flags' values; UsageError in Kafka's words for what is not a flag."""
        known, unknown = self.parse_known_args(arguments)
        if unknown:
            self.error(f"{unknown[0].lstrip('-').partition('=')[0]} is not a recognized option")
        return known

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


def add_cluster_flags(parser: Parser) -> None:
    """`--root`, `--bootstrap-server` and `--command-config`."""
    group = parser.add_argument_group("the cluster")
    group.add_argument(
        "--root",
        metavar="ROOT",
        help="REQUIRED: the cluster's metadata root, a folder or an object store's URL. "
        "`strata-cluster` prints it when it starts.",
    )
    group.add_argument(
        "--bootstrap-server",
        metavar="SERVER",
        help="Kafka's way to name a cluster. There is no Kafka endpoint yet, so --root is needed.",
    )
    group.add_argument(
        "--command-config", metavar="FILE", help="Property file with configs for the client behind this tool."
    )


def cluster_root(given: argparse.Namespace) -> str:
    """The metadata root that the flags name. UsageError without one, saying what to give instead."""
    server = given.bootstrap_server
    if given.root is None:
        raise UsageError(NO_ENDPOINT.format(server=server) if server else 'Missing required argument "[root]"')
    if server:
        complain(ENDPOINT_NOT_USED.format(server=server))
    if "://" in given.root:
        return str(given.root)
    folder = Path(given.root).expanduser()
    if (folder / METADATA_FOLDER / METADATA_TABLE).is_dir():
        raise UsageError(f"{given.root} is a cluster's folder; its metadata root is {folder / METADATA_FOLDER}")
    return str(folder)


def client_properties(config_file: str | None, pairs: Iterable[str] = ()) -> dict[str, str]:
    """A client's configs: the property file's, then those given one by one, without what the tools set themselves."""
    given = (read_properties(config_file) if config_file else {}) | key_values(pairs)
    return {name: value for name, value in given.items() if name not in _OVERWRITTEN}


def one_spelling(given: argparse.Namespace, flag: str, deprecated: str) -> Any:
    """The value of a flag that has an older name, which is taken with a warning. UsageError when both are given."""
    new, old = (getattr(given, name.replace("-", "_").replace(".", "_")) for name in (flag, deprecated))
    if new and old:
        raise UsageError(f"Options --{deprecated} and --{flag} cannot be specified together.")
    if old:
        complain(f"Option --{deprecated} is deprecated and will be removed in a future version. Use --{flag} instead.")
    return old or new


class TopicFilter:
    """Topics by a regular expression over the whole name; a comma means "or", as in Kafka.

    >>> [t for t in ("a", "ab", "b") if TopicFilter("a.*, b").allows(t)]
    ['a', 'ab', 'b']
    """

    def __init__(self, expression: str, *, exclude_internal: bool = False) -> None:
        cleaned = re.sub(r"^[\"']+|[\"']+$", "", expression.strip().replace(",", "|").replace(" ", ""))
        try:
            self._pattern = re.compile(cleaned)
        except re.error as reason:
            raise UsageError(f"{expression} is an invalid regex.") from reason
        self._exclude_internal = exclude_internal

    @property
    def pattern(self) -> re.Pattern[str]:
        """The expression itself, to be matched with whole names."""
        return self._pattern

    def allows(self, topic: str) -> bool:
        if self._exclude_internal and is_internal(topic):
            return False
        return self._pattern.fullmatch(topic) is not None


DEFAULT_TIMEOUT_MS = 60_000


TIMEOUT_KEYS = ("default.api.timeout.ms", "request.timeout.ms")
"""The admin configs that mean something here: how long to wait for the new partitions' leaders."""


def timeout_ms(properties: dict[str, str]) -> int:
    """How long to wait for leaders, from `--command-config`. InvalidConfigError for a name that is not known."""
    for name, value in properties.items():
        if name not in (*TIMEOUT_KEYS, "client.id"):
            raise InvalidConfigError(f"Unknown admin config name: {name}")
        if name in TIMEOUT_KEYS and not value.strip().isdigit():
            raise InvalidConfigError(f"Invalid value {value} for configuration {name}: Not a number of type INT")
    return int(next((properties[name] for name in TIMEOUT_KEYS if name in properties), DEFAULT_TIMEOUT_MS))


PLACES = {
    "latest": OffsetSpec.latest(),
    "earliest": OffsetSpec.earliest(),
    "max-timestamp": OffsetSpec.max_timestamp(),
    "earliest-local": OffsetSpec.earliest(),
    "latest-tiered": None,
    "earliest-pending-upload": None,
}
"""Kafka's names of places. No topic is tiered: all of a log is local, and there is no tiered offset to show (None)."""


_NUMBERED = dict(zip(("-1", "-2", "-3", "-4", "-5", "-6"), PLACES, strict=True))


def offset_spec(time: str) -> OffsetSpec | None:
    """What `--time` asks for; None for a place that no log has. UsageError for what is neither a place nor a time."""
    name = _NUMBERED.get(time, time)
    if name in PLACES:
        return PLACES[name]
    try:
        return OffsetSpec(int(name))
    except (ValueError, StratalogError) as reason:
        raise UsageError(
            f"Malformed time argument {time}. Please use -1 or latest / -2 or earliest / -3 or max-timestamp / "
            "-4 or earliest-local / -5 or latest-tiered / -6 or earliest-pending-upload, "
            "or a specified long format timestamp"
        ) from reason
