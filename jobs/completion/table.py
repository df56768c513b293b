"""The tools' flags as data: `flags.json` beside this file, so that a shell's start imports no tool.

I/O: reads that file. `python -m stratalog.jobs.completion_table` writes it, a test compares it with the tools.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stratalog.jobs.command.flags import Flag
from stratalog.jobs.command.tool import Command

TABLE = Path(__file__).with_name("flags.json")
FILES = {"FILE", "FOLDER", "DIR", "FILE1,FILE2", "NAMES"}
"""Metavars of values that are files."""


@dataclass(frozen=True, slots=True)
class CompletedFlag:
    """One flag: its name and letter, whether it takes a value, which values there are, and whether these are files."""

    name: str
    letter: str
    has_value: bool
    choices: tuple[str, ...]
    is_file: bool

    @classmethod
    def of(cls, flag: Flag) -> CompletedFlag:
        """As a tool declares it."""
        return cls(flag.name, flag.letter, bool(flag.metavar), tuple(flag.choices), flag.metavar in FILES)

    @property
    def spellings(self) -> list[str]:
        """How it is written."""
        return [f"--{self.name}", *([f"-{self.letter}"] if self.letter else [])]


@dataclass(frozen=True, slots=True)
class CompletedTool:
    """One tool: what it is for, the words that may stand behind its name, its flags."""

    name: str
    purpose: str
    words: tuple[str, ...]
    flags: tuple[CompletedFlag, ...]

    @classmethod
    def of(cls, command: Command, purpose: str) -> CompletedTool:
        """A tool as it is."""
        flags = [flag for group in command.flags.values() for flag in group]
        named = tuple(choice for flag in flags if flag.is_positional for choice in flag.choices)
        shown = tuple(CompletedFlag.of(flag) for flag in flags if not flag.is_positional)
        return cls(command.tool, purpose, (*command.words.actions, *named), shown)


def to_json(tools: Sequence[CompletedTool]) -> str:
    """The content of the file: a line for each tool."""
    return "[\n" + ",\n".join(json.dumps(_values(tool), separators=(",", ":")) for tool in tools) + "\n]\n"


def _values(tool: CompletedTool) -> Mapping[str, object]:
    flags = [[f.name, f.letter, f.has_value, list(f.choices), f.is_file] for f in tool.flags]
    return {"name": tool.name, "purpose": tool.purpose, "words": tool.words, "flags": flags}


def from_json(text: str) -> list[CompletedTool]:
    """The tools of a file's content."""
    rows: list[dict[str, Any]] = json.loads(text)
    return [
        CompletedTool(
            row["name"],
            row["purpose"],
            tuple(row["words"]),
            tuple(
                CompletedFlag(name, letter, value, tuple(each), file)
                for name, letter, value, each, file in row["flags"]
            ),
        )
        for row in rows
    ]


def read_table() -> list[CompletedTool]:
    """The tools of the file."""
    return from_json(TABLE.read_text(encoding="utf-8"))
