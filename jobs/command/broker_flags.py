"""The flags of programs that run brokers. I/O: `file_settings` reads a file."""

from __future__ import annotations

from stratalog.jobs.command.flags import Flag
from stratalog.jobs.command.properties import parse_properties, read_text
from stratalog.replication.config import flatten_toml

# fmt: off
FETCHER = Flag("fetcher", "auto|spark|thread", "How followers copy from leaders (auto).", default="auto",
               choices=("auto", "spark", "thread"))
OVERRIDE = Flag("override", "NAME=VALUE", "One setting, before those of the file; may be repeated.", is_repeated=True)
# fmt: on


def file_settings(file: str) -> dict[str, object]:
    """The settings of a TOML file (`*.toml`) or of Java properties. UsageError naming a file that cannot be read."""
    text = read_text(file)
    return flatten_toml(text) if file.endswith(".toml") else dict(parse_properties(text))
