"""Completions: the table is that of the tools, and what bash offers at a place in a command line."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from stratalog.jobs.completion.completion import main
from stratalog.jobs.completion.scripts import SCRIPTS
from stratalog.jobs.completion.table import TABLE, from_json, read_table, to_json
from stratalog.jobs.completion_table import table
from stratalog.jobs.strata import modules

OFFERED = """
source "$1"
COMP_WORDS=("${@:2}"); COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
_strata
printf '%s\\n' "${COMPREPLY[@]}"
"""


def test_the_table_is_that_of_the_tools() -> None:
    assert TABLE.read_text(encoding="utf-8") == table(), "make completions"
    assert to_json(from_json(table())) == table()


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("completion") / "strata.bash"
    file.write_text(SCRIPTS["bash"](read_table()))
    return file


@pytest.mark.parametrize(
    ("words", "some", "none"),
    [
        (["strata", ""], {"topics", "lag", "--help"}, {"--topic"}),
        (["strata", "gro"], {"groups"}, {"topics"}),
        (["strata", "topics", ""], {"list", "create", "--topic", "--bootstrap-server"}, {"--group"}),
        (["strata", "topics", "--repl"], {"--replication-factor", "--replica-assignment"}, {"--topic"}),
        (["strata", "topics", "--output", ""], {"text", "json"}, {"--topic"}),
        (["strata", "consume", "--isolation-level", "read_c"], {"read_committed"}, {"read_uncommitted"}),
        (["strata", "transactions", "d"], {"describe", "describe-producers"}, {"list"}),
        (["strata", "topics", "--topic", ""], set(), {"--help", "list"}),
        (["strata", "completion", ""], {"bash", "zsh", "fish"}, set()),
    ],
)
def test_what_bash_offers(script: Path, words: list[str], some: set[str], none: set[str]) -> None:
    done = subprocess.run(
        ["bash", "-c", OFFERED, "bash", str(script), *words], capture_output=True, text=True, timeout=60, check=True
    )
    offered = set(done.stdout.split())
    assert some <= offered
    assert none & offered == set()
    assert bool(offered) is bool(some)


def test_files_are_offered_where_a_flag_takes_one(script: Path, tmp_path: Path) -> None:
    (tmp_path / "client.properties").touch()
    done = subprocess.run(
        ["bash", "-c", OFFERED, "bash", str(script), "strata", "topics", "--command-config", f"{tmp_path}/cl"],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert done.stdout.split() == [f"{tmp_path}/client.properties"]


@pytest.mark.parametrize("shell", SCRIPTS)
def test_a_script_names_every_tool_and_is_printed(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([shell]) == 0
    shown = capsys.readouterr().out
    assert shown == SCRIPTS[shell](read_table())
    assert [name for name in modules() if name not in shown] == []


def test_an_unknown_shell_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert (main(["tcsh"]), main([])) == (1, 1)
    assert "name a shell: bash, zsh or fish" in capsys.readouterr().err
