"""Which cluster is meant: flags before the environment before a file, and never two in one place."""

from __future__ import annotations

from pathlib import Path

import pytest

from stratalog.jobs.command.clusters import NamedCluster, named_cluster
from stratalog.jobs.command.terminal import UsageError

ROOT, SERVERS, CONFIG = "STRATA_ROOT", "STRATA_BOOTSTRAP_SERVERS", "STRATA_COMMAND_CONFIG"
FILE = 'root = "in/file"\ncommand-config = "file.properties"\n'


@pytest.mark.parametrize(
    ("flags", "environment", "root", "servers", "config"),
    [
        pytest.param(("r", None, None), {ROOT: "e"}, "r", "", None, id="a flag before the environment"),
        pytest.param((None, "s:1", None), {ROOT: "e"}, "", "s:1", None, id="of another kind, too"),
        pytest.param((None, "s:1", None), {CONFIG: "e"}, "", "s:1", None, id="a login stays with its cluster"),
        pytest.param((None, None, None), {ROOT: "e", CONFIG: "c"}, "e", "", "c", id="the environment before the file"),
        pytest.param((None, None, "f"), {SERVERS: "s:1", CONFIG: "c"}, "", "s:1", "f", id="the login's flag"),
        pytest.param((None, None, None), {}, "in/file", "", "file.properties", id="the file"),
        pytest.param((None, None, "f"), {ROOT: ""}, "in/file", "", "f", id="an empty variable is none"),
    ],
)
def test_where_a_cluster_is_named(
    tmp_path: Path,
    flags: tuple[str | None, str | None, str | None],
    environment: dict[str, str],
    root: str,
    servers: str,
    config: str | None,
) -> None:
    (tmp_path / "strata.toml").write_text(FILE)
    found = named_cluster(*flags, {"XDG_CONFIG_HOME": str(tmp_path), **environment})
    assert (found.root, found.servers, found.command_config) == (root, servers, config)
    assert (root or servers) in found.named_by


@pytest.mark.parametrize(
    ("flags", "environment", "file", "message"),
    [
        (("r", "s:1", None), {}, "", r"--root r and --bootstrap-server s:1 name two clusters"),
        ((None, None, None), {ROOT: "e", SERVERS: "s:1"}, "", rf"{ROOT}=e and {SERVERS}=s:1 name two clusters"),
        ((None, None, None), {}, 'root = "a"\nbootstrap-servers = "b:1"', r'root = "a" and .*-servers = "b:1"'),
        ((None, None, None), {}, "rot = 1", r"strata\.toml: unknown key rot; known: root, bootstrap-servers"),
        ((None, None, None), {}, "root = 1", r"root is a text in quotes, not 1"),
        ((None, None, None), {}, "root", r"strata\.toml is no TOML"),
        ((None, None, None), {}, "", r"Which cluster\? Give --root ROOT.* or --bootstrap-server .*strata\.toml"),
        ((None, None, None), {"STRATA_CONFIG": "no/such.toml"}, "", r"no/such\.toml cannot be read"),
    ],
)
def test_what_names_two_clusters_or_none_is_refused(
    tmp_path: Path,
    flags: tuple[str | None, str | None, str | None],
    environment: dict[str, str],
    file: str,
    message: str,
) -> None:
    (tmp_path / "strata.toml").write_text(file)
    with pytest.raises(UsageError, match=message):
        named_cluster(*flags, {"XDG_CONFIG_HOME": str(tmp_path), **environment})


def test_a_flag_needs_no_file() -> None:
    assert named_cluster("r", None, None, {"STRATA_CONFIG": "no/such.toml"}) == NamedCluster(
        root="r", named_by="--root r"
    )
