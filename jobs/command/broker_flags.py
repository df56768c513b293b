"""The flags of programs that run brokers, and brokers' settings from files and for `--help`.

I/O: `file_settings` reads a file; the rest is pure.
"""

from __future__ import annotations

from collections.abc import Iterable

from stratalog.jobs.command.flags import Flag
from stratalog.jobs.command.properties import parse_properties, read_text
from stratalog.replication.config import Setting, flatten_toml

# fmt: off
FETCHER = Flag("fetcher", "auto|spark|thread", "How followers copy from leaders (auto).", default="auto",
               choices=("auto", "spark", "thread"))
OVERRIDE = Flag("override", "NAME=VALUE", "One setting, before those of the file; may be repeated.", is_repeated=True)
# fmt: on


def file_settings(file: str) -> dict[str, object]:
    """The settings of a TOML file (`*.toml`) or of Java properties. UsageError naming a file that cannot be read."""
    text = read_text(file)
    return flatten_toml(text) if file.endswith(".toml") else dict(parse_properties(text))


def settings_table(listed: Iterable[Setting]) -> str:
    """A line on each setting with default and unit, and one with its meaning, for `--help`."""
    rows = []
    for each in listed:
        default = str(each.default).lower() if isinstance(each.default, bool) else each.default
        rows.append(f"  {each.name} = {default}{f' {each.unit}' if each.unit else ''}\n      {each.doc}")
    return "\n".join(rows)


def identity_table(listed: Iterable[Setting]) -> str:
    """A line on each setting without its default, and one with its meaning, for `--help`."""
    return "\n".join(f"  {each.name}\n      {each.doc}" for each in listed)
