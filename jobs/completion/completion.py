"""`strata completion bash`: a script that completes tools, words and flags. I/O: standard output."""

from __future__ import annotations

import argparse

from stratalog.jobs.command.flags import Flag, Rule
from stratalog.jobs.command.terminal import DONE
from stratalog.jobs.command.tool import Command
from stratalog.jobs.completion.scripts import SCRIPTS
from stratalog.jobs.completion.table import read_table

PURPOSE = "Print a completion script for a shell."
EPILOG = """examples:
  source <({prog} bash)                                          in ~/.bashrc
  {prog} zsh > "${fpath[1]}/_strata"                             once, for zsh
  {prog} fish > ~/.config/fish/completions/strata.fish           once, for fish

The script is static: it asks no cluster, so it does not know the names of topics.
exit code: 0; 1 for another shell
"""
# fmt: off
FLAGS = {"": (
    Flag("shell", "|".join(SCRIPTS), "The shell.", choices=tuple(SCRIPTS), is_positional=True),
)}
# fmt: on


def completion(given: argparse.Namespace) -> int:
    """Print the script; the exit code."""
    print(SCRIPTS[given.shell](read_table()), end="")
    return DONE


main = Command(
    "completion", PURPOSE, EPILOG, FLAGS, completion, Rule.required("shell", message="name a shell: bash, zsh or fish")
)
