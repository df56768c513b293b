"""What the flags that many tools share mean: the cluster, its client's properties, how long to wait, a place in a log.

I/O: reads property files and, for a `ClusterView`, the metadata log. What cannot be raises UsageError.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping
from pathlib import Path

from stratalog import Admin, ClusterView, OffsetSpec, StratalogError
from stratalog.jobs.command.flags import MISSING, Flag
from stratalog.jobs.command.properties import key_values, read_properties
from stratalog.jobs.command.terminal import UsageError, complain
from stratalog.replication.metadata.log import METADATA_FOLDER, METADATA_PARTITION
from stratalog.server.remote.connections.config import CONNECTION_CONFIGS
from stratalog.storage.errors import InvalidConfigError

# fmt: off
CLUSTER = {"the cluster": (
    Flag("root", "ROOT", "REQUIRED: the cluster's metadata root, a folder or an object store's URL. `strata-cluster` "
         "prints it when it starts."),
    Flag("bootstrap-server", "SERVER", "Kafka's way to name a cluster; here --root is needed. Kafka's own tools work "
         "there."),
    Flag("command-config", "FILE", "Property file with configs for the client behind this tool."),
)}
"""The flags of a tool that works with a cluster."""
# fmt: on

NO_ROOT = (
    "--bootstrap-server {server}: this tool reads the cluster's storage. "
    "Name the cluster by its metadata root: --root <metadata root> (strata-cluster prints it when it starts). "
    "With a bootstrap server Kafka's own tool works."
)
SERVER_NOT_USED = "--bootstrap-server {server} is not used: brokers' addresses are in the metadata, --root counts."

DEFAULT_TIMEOUT_MS = 60_000
TIMEOUT_KEYS = ("default.api.timeout.ms", "request.timeout.ms")
"""The admin configs that mean something here: how long to wait for leaders."""

_CONNECTION = tuple(
    key.name for key in CONNECTION_CONFIGS if key.name.startswith(("security.", "sasl.", "ssl.", "stratalog."))
)
_OVERWRITTEN = ("bootstrap.servers", "key.serializer", "value.serializer", "key.deserializer", "value.deserializer")
"""What Kafka's console tools set themselves, whatever a property file contains."""


def cluster_root(given: argparse.Namespace) -> str:
    """The metadata root that the flags name. UsageError without one, naming what to give instead."""
    server = getattr(given, "bootstrap_server", None)  # not every tool has the flag
    if given.root is None:
        raise UsageError(NO_ROOT.format(server=server) if server else MISSING.format("root"))
    if server:
        complain(SERVER_NOT_USED.format(server=server))
    if "://" in given.root:
        return str(given.root)
    folder = Path(given.root).expanduser()
    if (folder / METADATA_FOLDER / str(METADATA_PARTITION)).is_dir():
        raise UsageError(f"{given.root} is a cluster's folder; its metadata root is {folder / METADATA_FOLDER}")
    return str(folder)


def open_view(given: argparse.Namespace) -> ClusterView:
    """The cluster that the flags name, and the timeout of `--command-config`."""
    return ClusterView(cluster_root(given), timeout_ms=given_timeout_ms(given))


def open_admin(given: argparse.Namespace) -> Admin:
    """The admin client of the cluster that the flags name, with the timeout and the connections of
    `--command-config`."""
    root, called = cluster_root(given), connection_settings(given.command_config)
    return Admin(root, timeout_ms=given_timeout_ms(given), connection=called)


def client_properties(config_file: str | None, pairs: Iterable[str] = ()) -> dict[str, str]:
    """A client's configs: the property file's, then those given one by one, without what the tools set themselves,
    and without those of `connection_settings`."""
    given = _given(config_file, pairs)
    return {name: value for name, value in given.items() if name not in (*_OVERWRITTEN, *_CONNECTION)}


def connection_settings(config_file: str | None, pairs: Iterable[str] = ()) -> dict[str, str]:
    """How brokers are called: `security.protocol`, `sasl.*`, `ssl.*`, `stratalog.transport` of the same file and pairs.

    A tool that calls no broker has no use for them.
    """
    given = _given(config_file, pairs)
    return {name: value for name, value in given.items() if name in _CONNECTION}


def _given(config_file: str | None, pairs: Iterable[str]) -> dict[str, str]:
    return (read_properties(config_file) if config_file else {}) | key_values(pairs)


def given_timeout_ms(given: argparse.Namespace) -> int:
    """`timeout_ms` of the `--command-config`."""
    return timeout_ms(client_properties(given.command_config))


def timeout_ms(properties: Mapping[str, str]) -> int:
    """How long to wait for leaders, by an admin client's configs. InvalidConfigError for a name that is not known."""
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
    """The place that `--time` names; None for one that no log has. UsageError for what is no place and no time."""
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
