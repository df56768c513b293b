"""Settings of brokers from files and for `--help`. I/O: `file_settings` reads a file; the rest is pure."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from stratalog.jobs.command.properties import parse_properties
from stratalog.jobs.command.terminal import UsageError
from stratalog.replication.config import flatten_toml
from stratalog.storage.config_def import ConfigKey, spelled


def file_settings(file: str) -> dict[str, object]:
    """What a TOML file (`*.toml`) or one of Java properties says. UsageError naming it when it cannot be read."""
    path = Path(file)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as reason:
        raise UsageError(f"{path} cannot be read: {getattr(reason, 'strerror', None) or reason}") from reason
    return flatten_toml(text) if path.suffix == ".toml" else dict(parse_properties(text))


def settings_table(listed: Iterable[ConfigKey]) -> str:
    """Settings with default, unit and meaning, for `--help`."""
    rows = (f"  {c.name} = {spelled(c.default)}{f' {c.unit}' if c.unit else ''}\n      {c.doc}" for c in listed)
    return "\n".join(rows)


def identity_table(listed: Iterable[ConfigKey]) -> str:
    """Names without defaults and their meaning, for `--help`."""
    return "\n".join(f"  {each.name}\n      {each.doc}" for each in listed)
