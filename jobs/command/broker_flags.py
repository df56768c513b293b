"""Settings of brokers from files and for `--help`. I/O: `file_settings` reads a file; the rest is pure."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from stratalog.jobs.command.properties import parse_properties
from stratalog.jobs.command.terminal import UsageError
from stratalog.replication.config import Setting, flatten_toml


def file_settings(file: str) -> dict[str, object]:
    """What a TOML file (`*.toml`) or one of Java properties says. UsageError naming it when it cannot be read."""
    path = Path(file)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as reason:
        raise UsageError(f"{path} cannot be read: {getattr(reason, 'strerror', None) or reason}") from reason
    return flatten_toml(text) if path.suffix == ".toml" else dict(parse_properties(text))


def settings_table(listed: Iterable[Setting]) -> str:
    """Settings with default, unit and meaning, for `--help`."""
    rows = []
    for each in listed:
        default = str(each.default).lower() if isinstance(each.default, bool) else each.default
        rows.append(f"  {each.name} = {default}{f' {each.unit}' if each.unit else ''}\n      {each.doc}")
    return "\n".join(rows)


def identity_table(listed: Iterable[Setting]) -> str:
    """Names without defaults and their meaning, for `--help`."""
    return "\n".join(f"  {each.name}\n      {each.doc}" for each in listed)
