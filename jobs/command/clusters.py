"""Which cluster a tool works with: by its flags, else by the environment, else by a file. I/O: reads that file.

A cluster is named by its metadata root, or by brokers' addresses. Whoever names one in a place names it alone there: a
tool never chooses between two. A login (`command-config`) goes with the cluster of the same place, so that no password
is sent to another one; the flag counts everywhere.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from stratalog.jobs.command.properties import read_text
from stratalog.jobs.command.terminal import UsageError

ROOT_VARIABLE, SERVERS_VARIABLE = "STRATA_ROOT", "STRATA_BOOTSTRAP_SERVERS"
COMMAND_CONFIG_VARIABLE = "STRATA_COMMAND_CONFIG"
CONFIG_VARIABLE = "STRATA_CONFIG"
CONFIG_FILE = "strata.toml"
"""Below $XDG_CONFIG_HOME, which is ~/.config where it is not set."""
FILE_KEYS = ("root", "bootstrap-servers", "command-config")

NO_CLUSTER = (
    "Which cluster? Give --root ROOT, the metadata root that `strata cluster` prints, or --bootstrap-server HOST:PORT. "
    f"{ROOT_VARIABLE} or {SERVERS_VARIABLE} in the environment, or {{file}}, saves repeating it."
)


@dataclass(frozen=True, slots=True)
class NamedCluster:
    """A cluster, and where it was named. One of `root` and `servers` is empty.

    root            the metadata root
    servers         addresses of brokers, `host:port` with commas between
    command_config  the property file with the client's configs
    named_by        the flag, variable or file key with its value, for messages
    """

    root: str = ""
    servers: str = ""
    command_config: str | None = None
    named_by: str = ""


def config_file(environment: Mapping[str, str]) -> Path:
    """The file that names a cluster where neither flags nor variables do.

    >>> str(config_file({"XDG_CONFIG_HOME": "/c"})), str(config_file({"STRATA_CONFIG": "s.toml"}))
    ('/c/strata.toml', 's.toml')
    """
    named = environment.get(CONFIG_VARIABLE)
    if named:
        return Path(named).expanduser()
    return Path(environment.get("XDG_CONFIG_HOME") or "~/.config").expanduser() / CONFIG_FILE


def named_cluster(
    root: str | None, servers: str | None, command_config: str | None, environment: Mapping[str, str]
) -> NamedCluster:
    """The cluster that flags (None: not given), variables or the file name, in this order.

    UsageError when nothing names one, when one place names two, and for a file that is wrong.

    >>> found = named_cluster(None, None, None, {"STRATA_ROOT": "data/metadata"})
    >>> found.root, found.named_by
    ('data/metadata', 'STRATA_ROOT=data/metadata')
    """
    flags = _one("--root {}", root, "--bootstrap-server {}", servers, command_config)
    if flags is not None:
        return flags
    variable = environment.get
    own_config = variable(COMMAND_CONFIG_VARIABLE) if command_config is None else command_config
    found = _one(
        f"{ROOT_VARIABLE}={{}}", variable(ROOT_VARIABLE), f"{SERVERS_VARIABLE}={{}}", variable(SERVERS_VARIABLE),
        own_config or None,
    )  # fmt: skip
    if found is not None:
        return found
    file = config_file(environment)
    named = _read(file) if file.is_file() or environment.get(CONFIG_VARIABLE) else {}
    own_config = named.get("command-config") if command_config is None else command_config
    what = f'{file}: {{key}} = "{{}}"'
    by_root, by_servers = (what.replace("{key}", key) for key in ("root", "bootstrap-servers"))
    found = _one(by_root, named.get("root"), by_servers, named.get("bootstrap-servers"), own_config)
    if found is None:
        raise UsageError(NO_CLUSTER.format(file=file))
    return found


def _one(
    by_root: str, root: str | None, by_servers: str, servers: str | None, command_config: str | None
) -> NamedCluster | None:
    """What one place names; None for nothing. UsageError for two."""
    if root and servers:
        two = f"{by_root.format(root)} and {by_servers.format(servers)}"
        raise UsageError(f"{two} name two clusters: give one of them")
    if root:
        return NamedCluster(root=root, command_config=command_config, named_by=by_root.format(root))
    if servers:
        return NamedCluster(servers=servers, command_config=command_config, named_by=by_servers.format(servers))
    return None


def _read(file: Path) -> dict[str, str]:
    try:
        found = tomllib.loads(read_text(str(file)))
    except tomllib.TOMLDecodeError as reason:
        raise UsageError(f"{file} is no TOML: {reason}") from reason
    for name, value in found.items():
        if name not in FILE_KEYS:
            raise UsageError(f"{file}: unknown key {name}; known: {', '.join(FILE_KEYS)}")
        if not isinstance(value, str):
            raise UsageError(f"{file}: {name} is a text in quotes, not {value}")
    return found
