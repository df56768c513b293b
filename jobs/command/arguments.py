"""What the flags that many tools share mean: the cluster, its client's properties, how long to wait, a place in a log.

I/O: reads property files. What cannot be raises UsageError.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from stratalog import OffsetSpec, StratalogError
from stratalog.jobs.command.clusters import NamedCluster, named_cluster
from stratalog.jobs.command.flags import Flag
from stratalog.jobs.command.properties import key_values, read_properties
from stratalog.jobs.command.terminal import UsageError
from stratalog.replication.metadata.log import METADATA_FOLDER, METADATA_PARTITION
from stratalog.server.remote.connections.config import CONNECTION_CONFIGS
from stratalog.storage.errors import InvalidConfigError

# fmt: off
ROOT = Flag("root", "ROOT", "The cluster's metadata root, a folder or an object store's URL. `strata cluster` prints "
            "it when it starts. STRATA_ROOT if not given.")
SERVERS = Flag("bootstrap-server", "SERVER", "Addresses of brokers, host:port with commas between. "
               "STRATA_BOOTSTRAP_SERVERS if not given.", letter="b")
CLUSTER = {"the cluster": (
    ROOT,
    SERVERS,
    Flag("command-config", "FILE", "Property file with configs for the client behind this tool."),
)}
"""The flags of a tool that works with a cluster."""
# fmt: on

ON_STORAGE = "{named_by}: {what} on storage alone, which no broker shows. Name the cluster by its metadata root: --root"

DEFAULT_TIMEOUT_MS = 60_000
TIMEOUT_KEYS = ("default.api.timeout.ms", "request.timeout.ms")
"""The admin configs that mean something here: how long to wait for leaders."""

_CONNECTION = tuple(
    key.name for key in CONNECTION_CONFIGS if key.name.startswith(("security.", "sasl.", "ssl.", "stratalog."))
)
_OLD_CONFIG_FLAGS = ("consumer_config", "producer_config")
"""Older names of `--command-config`."""
_OVERWRITTEN = ("bootstrap.servers", "key.serializer", "value.serializer", "key.deserializer", "value.deserializer")
"""What Kafka's console tools set themselves, whatever a property file contains."""


def cluster_of(given: argparse.Namespace) -> NamedCluster:
    """The cluster that the flags name, or else the environment or a file. UsageError without one.

    `given.command_config` is that cluster's from then on.
    """
    configs = [getattr(given, name, None) for name in ("command_config", *_OLD_CONFIG_FLAGS)]
    flag = next((config for config in configs if config), None)
    found = named_cluster(given.root, getattr(given, "bootstrap_server", None), flag, os.environ)
    if flag is None:
        given.command_config = found.command_config
    return found


def cluster_root(given: argparse.Namespace, what: str = "what this tool works with is") -> str:
    """The metadata root of a tool that needs one. UsageError for brokers' addresses, saying `what` is not there."""
    found = cluster_of(given)
    if not found.root:
        raise UsageError(ON_STORAGE.format(named_by=found.named_by, what=what))
    if "://" in found.root:
        return found.root
    folder = Path(found.root).expanduser()
    if (folder / METADATA_FOLDER / str(METADATA_PARTITION)).is_dir():
        raise UsageError(f"{found.root} is a cluster's folder; its metadata root is {folder / METADATA_FOLDER}")
    return str(folder)


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
