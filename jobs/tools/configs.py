"""`kafka-configs` for stratalog: describe and alter the configs of topics and what all brokers share.

I/O: the metadata log, through the admin client; it works beside a running cluster, and takes hold there at once.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Mapping, Sequence

from stratalog.clients.admin.admin import Admin
from stratalog.clients.admin.configs import DYNAMIC, ConfigInForce, cluster_configs, topic_configs
from stratalog.clients.view.cluster_view import ClusterView
from stratalog.jobs.command.arguments import Parser, add_cluster_flags, client_properties, cluster_root, timeout_ms
from stratalog.jobs.command.properties import read_properties
from stratalog.jobs.command.terminal import DONE, UsageError, run
from stratalog.jobs.text.topics import config_table
from stratalog.replication.metadata.configs import CLUSTER_WIDE_CONFIGS
from stratalog.storage.errors import InvalidConfigError

TOPICS, BROKERS = "topics", "brokers"
OTHER_TYPES = ("clients", "users", "broker-loggers", "ips", "client-metrics", "groups")
PURPOSE = "This tool helps to manipulate and describe entity config for a topic or for all brokers."
EPILOG = """examples (ROOT is the metadata root that strata-cluster printed):
  {prog} --root ROOT --describe --topic events --all
  {prog} --root ROOT --alter --topic events --add-config 'retention.ms=3600000,cleanup.policy=[compact,delete]'
  {prog} --root ROOT --alter --topic events --delete-config retention.ms
  {prog} --root ROOT --alter --entity-type brokers --entity-default --add-config num.partitions=6

An altered config of a topic holds from the leader's next append on. What is altered for all brokers ({shared})
holds at once and outlives restarts, until --delete-config gives it back to what the brokers are started with; it
cannot be altered for a single broker.
exit code: 0 when it was done, 1 with a line on standard error when not; a refused request changes nothing

topic configs (name = default unit):
{configs}
"""
_BRACKETED = r"(?=[^\]]*(?:\[|$))"


def parser() -> Parser:
    """All flags of kafka-configs that mean something here."""
    made = Parser("configs", PURPOSE, "")
    made.epilog = EPILOG.format(prog=made.prog, configs=config_table(), shared=", ".join(CLUSTER_WIDE_CONFIGS))
    add_cluster_flags(made)
    action = made.add_argument_group("what to do, exactly one of")
    action.add_argument("--alter", action="store_true", help="Alter the configuration for the entity.")
    action.add_argument("--describe", action="store_true", help="List configs for the given entity.")
    which = made.add_argument_group("of which entity")
    which.add_argument("--entity-type", metavar="TYPE", help="Type of entity (topics/brokers).")
    which.add_argument("--entity-name", metavar="NAME", help="Name of entity (topic name/broker id).")
    which.add_argument("--entity-default", action="store_true", help="All brokers (applies to brokers only).")
    which.add_argument("--topic", metavar="TOPIC", help="The topic's name: --entity-type topics --entity-name TOPIC.")
    which.add_argument("--broker", metavar="ID", help="The broker's id: --entity-type brokers --entity-name ID.")
    which.add_argument("--broker-defaults", action="store_true", help="As --entity-type brokers --entity-default.")
    what = made.add_argument_group("which configs")
    what.add_argument(
        "--add-config", metavar="K1=V1,K2=[V,W]", help="Key value pairs of configs to add. Square brackets can be "
        "used to group values which contain commas.",
    )  # fmt: skip
    what.add_argument("--add-config-file", metavar="FILE", help="Path to a properties file with configs to add.")
    what.add_argument("--delete-config", metavar="K1,K2", help="Config keys to remove.")
    what.add_argument("--all", action="store_true", help="List all configs for the given entity, also defaults.")
    return made


def parse_added(text: str) -> dict[str, str]:
    """`k1=v1,k2=[a,b]` as configs. UsageError in Kafka's words for anything else.

    >>> parse_added("retention.ms=1000,cleanup.policy=[compact,delete]")
    {'retention.ms': '1000', 'cleanup.policy': 'compact,delete'}
    """
    pairs = [re.split(r"\s*=\s*" + _BRACKETED, pair) for pair in re.split("," + _BRACKETED, text)]
    if any(len(pair) != 2 for pair in pairs):
        raise UsageError(
            'requirement failed: Invalid entity config: all configs to be added must be in the format "key=val" or '
            '"key=[val1,val2]" to group values that contain commas.'
        )
    return {name.strip(): value.strip().removeprefix("[").removesuffix("]").strip() for name, value in pairs}


def entity_of(given: argparse.Namespace) -> tuple[str, str | None]:
    """The entity's type, and its name: None for all. UsageError when the flags name none, or several."""
    named = [
        (BROKERS, given.broker) if given.broker is not None else None,
        (TOPICS, given.topic) if given.topic is not None else None,
        (BROKERS, None) if given.broker_defaults else None,
        (given.entity_type, given.entity_name) if given.entity_type is not None else None,
    ]
    found = [each for each in named if each is not None]
    if len(found) != 1:
        raise UsageError(
            "Exactly one entity type must be specified: --entity-type, --topic, --broker, --broker-defaults"
        )
    kind, name = found[0]
    if kind in OTHER_TYPES:
        raise UsageError(f"Entity type '{kind}' has no configs here: it is topics or brokers")
    if kind not in (TOPICS, BROKERS):
        raise UsageError(f"Invalid entity type '{kind}', the entity type must be one of {TOPICS}, {BROKERS}")
    if given.entity_type is None and (given.entity_name is not None or given.entity_default):
        raise UsageError('--entity-name and --entity-default need "[entity-type]"')
    if given.entity_default and (kind == TOPICS or name is not None):
        raise UsageError("--entity-default stands for all brokers and goes with --entity-type brokers alone")
    return kind, name


def check_flags(given: argparse.Namespace) -> None:
    """UsageError, in Kafka's words, when the flags do not go together."""
    if given.alter == given.describe:
        raise UsageError("Command must include exactly one action: --describe, --alter.")
    kind, name = entity_of(given)
    if kind == BROKERS and name is not None and not name.isdecimal():
        raise UsageError(f"The entity name for brokers must be a valid integer broker id, but it is: {name}")
    changes = (given.add_config, given.add_config_file, given.delete_config)
    if given.describe:
        if any(change is not None for change in changes):
            raise UsageError("--add-config, --add-config-file and --delete-config go with --alter only")
        return
    if kind == TOPICS and not name:
        raise UsageError("an entity name must be specified with --alter of topics")
    if kind == BROKERS and not (given.entity_default or given.broker_defaults):
        raise UsageError("Settings are altered for all brokers: --entity-type brokers --entity-default")
    if all(change is None for change in changes):
        raise UsageError(
            "At least one of --add-config, --add-config-file, or --delete-config must be specified with --alter"
        )
    if given.add_config is not None and given.add_config_file is not None:
        raise UsageError("Only one of --add-config or --add-config-file must be specified")


def changes_of(given: argparse.Namespace, altered: Mapping[str, str]) -> dict[str, str | None]:
    """What is to be set, and as None what is to be removed. InvalidConfigError when that is not there."""
    added = parse_added(given.add_config) if given.add_config is not None else {}
    if given.add_config_file is not None:
        added = read_properties(given.add_config_file)
    removed = [name.strip() for name in (given.delete_config or "").split(",") if name.strip()]
    absent = [name for name in removed if name not in altered]
    if absent:
        raise InvalidConfigError(f"Invalid config(s): {','.join(absent)}")
    return {**dict.fromkeys(removed), **added}


def config_lines(configs: Sequence[ConfigInForce], *, with_defaults: bool) -> list[str]:
    """A line for each config, as Kafka prints it."""
    shown = [config for config in configs if with_defaults or config.source in DYNAMIC]
    return [
        f"  {config.name}={config.value} sensitive=false synonyms={{{', '.join(map(str, config.synonyms))}}}"
        for config in shown
    ]


class ConfigCommand:
    """The two actions on one cluster, each printing what Kafka's tool prints."""

    def __init__(self, given: argparse.Namespace, view: ClusterView) -> None:
        self._given = given
        self._view = view
        self._kind, self._name = entity_of(given)

    def describe(self) -> None:
        if self._kind == TOPICS:
            self._describe_topics()
        else:
            self._describe_brokers()

    def _describe_topics(self) -> None:
        known = self._view.topics()
        if self._name is not None and self._name not in known:
            print(f"The topic '{self._name}' doesn't exist and doesn't have dynamic config.")
            return
        for topic in known if self._name is None else [self._name]:
            self._show(f"configs for topic {topic} are:", topic_configs(self._view.image, topic))

    def _describe_brokers(self) -> None:
        known = [str(broker_id) for broker_id in sorted(self._view.image.brokers)]
        if self._name is not None and self._name not in known:
            print(f"The broker '{self._name}' doesn't exist and doesn't have dynamic config.")
            return
        configs = cluster_configs(self._view.image)
        is_default = self._given.entity_default or self._given.broker_defaults
        for broker in [] if is_default else known if self._name is None else [self._name]:
            self._show(f"configs for broker {broker} are:", configs)
        if self._name is None:
            print("Default configs for brokers in the cluster are:")
            print("".join(f"{line}\n" for line in config_lines(configs, with_defaults=self._given.all)), end="")

    def _show(self, what: str, configs: Sequence[ConfigInForce]) -> None:
        print(f"{'All' if self._given.all else 'Dynamic'} {what}")
        print("".join(f"{line}\n" for line in config_lines(configs, with_defaults=self._given.all)), end="")

    def alter(self) -> None:
        admin = Admin(self._view.root, view=self._view)
        if self._kind == TOPICS:
            assert self._name is not None
            changes = changes_of(self._given, dict(self._overrides(self._name)))
            admin.alter_configs(self._name, changes)
            print(f"Completed updating config for topic {self._name}.")
            return
        altered = {c.name: c.value for c in cluster_configs(self._view.image) if c.source in DYNAMIC}
        admin.alter_cluster_configs(changes_of(self._given, altered))
        print("Completed updating default config for brokers in the cluster.")

    def _overrides(self, topic: str) -> Mapping[str, str]:
        self._view.partitions(topic)  # refuses an unknown one
        return self._view.image.topic_config(topic)


def configs(arguments: Sequence[str] | None) -> int:
    """The tool without its terminal: raises what went wrong."""
    given = parser().parse(arguments)
    check_flags(given)
    wait_ms = timeout_ms(client_properties(given.command_config))
    command = ConfigCommand(given, ClusterView(cluster_root(given), timeout_ms=wait_ms))
    if given.alter:
        command.alter()
    else:
        command.describe()
    return DONE


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; its exit code."""
    return run(lambda: configs(arguments))


if __name__ == "__main__":
    sys.exit(main())
