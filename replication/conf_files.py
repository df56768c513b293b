"""conf/cluster.toml and conf/topics.toml as texts: every config with its meaning, unit and default.

    python -m stratalog.replication.conf_files        # make conf

I/O: as a program it writes the two files.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from textwrap import wrap

from stratalog.replication.config import BROKER_CONFIGS, CLUSTER_TOML, TOPICS_TOML
from stratalog.replication.log_configs import UNCLEAN_ELECTION
from stratalog.storage.config_def import ConfigKey
from stratalog.storage.topic_config import TOPIC_CONFIGS

LINE = 120
GROUPED_FROM = 10_000
"""The number from which digits are grouped by three."""

CLUSTER_HEAD = """\
# The settings that all brokers of a cluster share: name = value, as they hold when this file is not changed.
# Names are Kafka's (see "Broker Configs" in Kafka's documentation), but those under stratalog, which it has not.
# Each line above a value: its meaning [unit]. Values are Kafka's defaults unless the line says otherwise.
# Kafka's configs for logs, such as log.retention.hours, hold for topics that do not set them, before conf/topics.toml.
# They are recorded for all brokers and clients when a broker starts: give every broker the same ones.
# A name that is not known, or a value out of its range, is refused when the cluster starts.
"""
TOPICS_HEAD = """\
# What a topic has when it was created without the config in question: name = value, as they hold when this file is
# not changed. Names and defaults are Kafka's (see "Topic Configs" in Kafka's documentation), but segment.files.max
# and those that begin with stratalog., which are ours. Each line above a value: its meaning [unit]. A topic's own
# configs come before these, and so do Kafka's configs of brokers for logs, such as log.retention.hours. What differs
# from Kafka's defaults is recorded in the metadata log when a broker starts, for all brokers and clients: give every
# broker the same file. unclean.leader.election.enable for all topics stands in cluster.toml.
"""


def cluster_toml() -> str:
    """The text of conf/cluster.toml."""
    return settings_text(CLUSTER_HEAD, BROKER_CONFIGS)


def topics_toml() -> str:
    """The text of conf/topics.toml."""
    return settings_text(TOPICS_HEAD, (key for key in TOPIC_CONFIGS if key.name != UNCLEAN_ELECTION))


def settings_text(head: str, keys: Iterable[ConfigKey]) -> str:
    """A TOML file of these configs with their defaults.

    >>> key = ConfigKey("segment.ms", "LONG", 604_800_000, "ms", "time until a roll")
    >>> print(settings_text("# Ours.", [key]), end="")
    # Ours.
    <BLANKLINE>
    # Time until a roll [ms]
    segment.ms = 604_800_000
    """
    parts, listed = [head.rstrip("\n")], list(keys)
    for key in listed:
        unit = f" [{key.unit}]" if key.unit else ""
        meaning = "\n".join(wrap(f"{_sentence(key.doc)}{unit}", LINE, initial_indent="# ", subsequent_indent="# "))
        parts.append(f"{meaning}\n{_toml_name(key.name, listed)} = {toml_value(key)}")
    return "\n\n".join(parts) + "\n"


def _toml_name(name: str, listed: Iterable[ConfigKey]) -> str:
    """Quoted where it is a table for TOML as well: `a.b = 1` and `a.b.c = 2` exclude each other."""
    is_table = any(f"{each.name}.".startswith(f"{name}.") or f"{name}.".startswith(f"{each.name}.")
                   for each in listed if each.name != name)  # fmt: skip
    return f'"{name}"' if is_table else name


def _sentence(doc: str) -> str:
    """It begins with a capital letter, unless with a name that has dots."""
    return doc if "." in doc.split(" ", 1)[0] else doc[:1].upper() + doc[1:]


def toml_value(key: ConfigKey) -> str:
    """A config's default as TOML; a list is one text, as in Kafka's own files.

    >>> toml_value(ConfigKey("cleanup.policy", "LIST", ("compact", "delete"))), toml_value(ConfigKey("a", "INT", 4096))
    ('"compact,delete"', '4096')
    """
    value = key.default
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return f"{value:_}" if abs(value) >= GROUPED_FROM else str(value)
    if isinstance(value, float):
        return str(value)
    return json.dumps(",".join(value) if isinstance(value, tuple) else str(value), ensure_ascii=False)


if __name__ == "__main__":
    CLUSTER_TOML.write_text(cluster_toml(), encoding="utf-8")
    TOPICS_TOML.write_text(topics_toml(), encoding="utf-8")
