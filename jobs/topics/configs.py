"""`kafka-configs` for stratalog: describe and alter configs of topics, groups, users, cluster-wide ones of brokers.

I/O: the metadata log or brokers, through an admin client. Changes hold at once.
"""

from __future__ import annotations

import argparse
import re
import secrets
from collections.abc import Mapping, Sequence

from stratalog import ConfigInForce
from stratalog.clients.admin.cluster_admin import ClusterAdmin
from stratalog.jobs.command.arguments import CLUSTER
from stratalog.jobs.command.flags import Flag, Rule, switch
from stratalog.jobs.command.opened import open_cluster
from stratalog.jobs.command.output import JSON, OUTPUT, print_rows
from stratalog.jobs.command.properties import read_properties
from stratalog.jobs.command.terminal import DONE, UsageError
from stratalog.jobs.command.tool import Command, settings_table
from stratalog.jobs.command.words import Words
from stratalog.jobs.text.scram_users import deletions_of, description_line, upsertions_of
from stratalog.replication.metadata.configs import CLUSTER_WIDE_CONFIGS, GROUP_CONFIGS
from stratalog.replication.metadata.scram import ScramDescription
from stratalog.server.admin.configs import DYNAMIC
from stratalog.storage.errors import InvalidConfigError, StratalogError
from stratalog.storage.topic_config import TOPIC_CONFIGS

TOPICS, BROKERS, USERS, GROUPS = "topics", "brokers", "users", "groups"
SALT_BYTES = 24
OTHER_TYPES = ("clients", "broker-loggers", "ips", "client-metrics")
PURPOSE = "This tool helps to manipulate and describe entity config for a topic, a group, a user or for all brokers."
EPILOG = """examples (for --root ROOT also --bootstrap-server HOST:PORT):
  {prog} --root ROOT --describe --topic events --all
  {prog} --root ROOT --alter --topic events --add-config 'retention.ms=3600000,cleanup.policy=[compact,delete]'
  {prog} --root ROOT --alter --topic events --delete-config retention.ms
  {prog} --root ROOT --alter --entity-type brokers --entity-default --add-config num.partitions=6
  {prog} --root ROOT --alter --group readers --add-config consumer.session.timeout.ms=60000
  {prog} --root ROOT --alter --entity-type users --entity-name alice --add-config 'SCRAM-SHA-512=[password=secret]'

An altered config of a topic holds from the leader's next append on. A config that is altered for all brokers ({shared},
and defaults of topics' configs, as log.retention.ms or message.max.bytes) holds at once and outlives restarts,
until --delete-config restores the value that the brokers are started with. It cannot be altered for a single broker.
Configs of a group are for the protocol of KIP-848: they hold at a member's next heartbeat, within the bounds that the
cluster was started with (group.consumer.min.session.timeout.ms and its like).
Configs of a user are what SCRAM checks the password against, by mechanism:
[iterations=<4096 to 16384>,password=<text>]. It works without a running broker, so that a first user can log in.
exit code: 0 when it was done, 1 with a line on standard error when not; a refused request changes nothing
"""
_BRACKETED = r"(?=[^\]]*(?:\[|$))"


# fmt: off
FLAGS = {**CLUSTER, "what to do, exactly one of": (
    switch("alter", "Alter the configuration for the entity."),
    switch("describe", "List configs for the given entity."),
), "of which entity": (
    Flag("entity-type", "TYPE", "Type of entity (topics/brokers/users/groups)."),
    Flag("entity-name", "NAME", "Name of entity (topic name/broker id/user/group id)."),
    switch("entity-default", "All brokers (applies to brokers only)."),
    Flag("topic", "TOPIC", "The topic's name: --entity-type topics --entity-name TOPIC."),
    Flag("user", "USER", "The user's name: --entity-type users --entity-name USER."),
    Flag("group", "GROUP", "The group's id: --entity-type groups --entity-name GROUP."),
    Flag("broker", "ID", "The broker's id: --entity-type brokers --entity-name ID."),
    switch("broker-defaults", "As --entity-type brokers --entity-default."),
), "which configs": (
    Flag("add-config", "K1=V1,K2=[V,W]", "Key value pairs of configs to add. Square brackets can be used to group "
         "values which contain commas."),
    Flag("add-config-file", "FILE", "Path to a properties file with configs to add."),
    Flag("delete-config", "K1,K2", "Config keys to remove."),
    OUTPUT,
    switch("all", "List all configs for the given entity, also defaults."),
)}
RULES = (
    *Rule.exactly_one(("alter", "describe"), "Command must include exactly one action: --describe, --alter."),
    *Rule.exactly_one(("entity-type", "topic", "user", "group", "broker", "broker-defaults"), "Exactly one entity type "
                      "must be specified: --entity-type, --topic, --user, --group, --broker, --broker-defaults"),
    *(Rule('--entity-name and --entity-default need "[entity-type]"', name, "entity-type")
      for name in ("entity-name", "entity-default")),
    *(Rule("--add-config, --add-config-file and --delete-config go with --alter only", f"describe {name}")
      for name in ("add-config", "add-config-file", "delete-config")),
    Rule("At least one of --add-config, --add-config-file, or --delete-config must be specified with --alter", "alter",
         "add-config add-config-file delete-config"),
    Rule("Only one of --add-config or --add-config-file must be specified", "add-config add-config-file"),
)
# fmt: on


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
    """The entity's type, and its name: None for all. UsageError for one that is not known or not alterable."""
    if given.entity_type is not None:
        kind, name = given.entity_type, given.entity_name
    else:
        named = ((TOPICS, given.topic), (USERS, given.user), (GROUPS, given.group))
        kind, name = next((each for each in named if each[1] is not None), (BROKERS, given.broker))
    if kind in OTHER_TYPES:
        raise UsageError(f"Entity type '{kind}' has no configs here: it is topics, brokers, users or groups")
    if kind not in (TOPICS, BROKERS, USERS, GROUPS):
        known = f"{TOPICS}, {BROKERS}, {USERS}, {GROUPS}"
        raise UsageError(f"Invalid entity type '{kind}', the entity type must be one of {known}")
    if given.entity_default and (kind != BROKERS or name is not None):
        raise UsageError("--entity-default stands for all brokers and goes with --entity-type brokers alone")
    if kind == BROKERS and name is not None and not name.isdecimal():
        raise UsageError(f"The entity name for brokers must be a valid integer broker id, but it is: {name}")
    if given.alter and kind != BROKERS and not name:
        raise UsageError(f"an entity name must be specified with --alter of {kind}")
    if given.alter and kind == BROKERS and not (given.entity_default or given.broker_defaults):
        raise UsageError("Settings are altered for all brokers: --entity-type brokers --entity-default")
    return kind, name


def added_of(given: argparse.Namespace) -> dict[str, str]:
    """The configs to add, from the command line or the file."""
    if given.add_config_file is not None:
        return read_properties(given.add_config_file)
    return parse_added(given.add_config) if given.add_config is not None else {}


def removed_of(given: argparse.Namespace) -> list[str]:
    """The names of the configs to remove."""
    return [name.strip() for name in (given.delete_config or "").split(",") if name.strip()]


def changes_of(given: argparse.Namespace, altered: Mapping[str, str]) -> dict[str, str | None]:
    """Name -> new value, None to remove it. InvalidConfigError for one to remove that is not set."""
    removed = removed_of(given)
    absent = [name for name in removed if name not in altered]
    if absent:
        raise InvalidConfigError(f"Invalid config(s): {','.join(absent)}")
    return {**dict.fromkeys(removed), **added_of(given)}


def shown_configs(configs: Sequence[ConfigInForce], *, with_defaults: bool) -> list[ConfigInForce]:
    """Those that are altered, or all."""
    return [config for config in configs if with_defaults or config.source in DYNAMIC]


def config_values(config: ConfigInForce) -> dict[str, object]:
    """One config for `--output json`."""
    value = None if config.is_sensitive else config.value
    return {"name": config.name, "value": value, "source": config.source, "sensitive": config.is_sensitive}


def config_lines(configs: Sequence[ConfigInForce], *, with_defaults: bool) -> list[str]:
    """A line for each config, as Kafka prints it."""
    lines = []
    for config in shown_configs(configs, with_defaults=with_defaults):
        value, synonyms = config.text, ", ".join(map(str, config.synonyms))
        if config.is_sensitive:
            value, synonyms = "null", ", ".join(f"{each.source}:{each.name}=null" for each in config.synonyms)
        is_sensitive = str(config.is_sensitive).lower()
        lines.append(f"  {config.name}={value} sensitive={is_sensitive} synonyms={{{synonyms}}}")
    return lines


class ConfigCommand:
    """The two actions on one cluster, each printing what Kafka's tool prints."""

    def __init__(self, given: argparse.Namespace, entity: tuple[str, str | None], admin: ClusterAdmin) -> None:
        self._given = given
        self._kind, self._name = entity
        self._which = "All" if given.all else "Dynamic"
        self._admin = admin

    def describe(self) -> None:
        if self._kind == TOPICS:
            self._describe_topics()
        elif self._kind == USERS:
            users = None if self._name is None else [self._name]
            for each in self._admin.describe_user_scram_credentials(users):
                self._show_user(each)
        elif self._kind == GROUPS:
            for group_id in self._admin.groups_with_configs() if self._name is None else [self._name]:
                configs = self._admin.describe_group_configs(group_id)
                self._show(f"{self._which} configs for group {group_id} are:", group_id, configs)
        else:
            self._describe_brokers()

    def _describe_topics(self) -> None:
        known = self._admin.list_topics()
        if self._name is not None and self._name not in known:
            print(f"The topic '{self._name}' doesn't exist and doesn't have dynamic config.")
            return
        for topic in known if self._name is None else [self._name]:
            self._show(f"{self._which} configs for topic {topic} are:", topic, self._admin.topic_configs(topic))

    def _describe_brokers(self) -> None:
        known = [str(each.broker_id) for each in self._admin.describe_cluster().brokers]
        if self._name is not None and self._name not in known:
            print(f"The broker '{self._name}' doesn't exist and doesn't have dynamic config.")
            return
        is_default = self._given.entity_default or self._given.broker_defaults
        for broker in [] if is_default else known if self._name is None else [self._name]:
            own = self._admin.broker_configs(int(broker))
            self._show(f"{self._which} configs for broker {broker} are:", broker, own)
        if self._name is None:
            shared = self._admin.describe_cluster_configs()
            self._show("Default configs for brokers in the cluster are:", "", shared)

    def _show(self, heading: str, name: str, configs: Sequence[ConfigInForce]) -> None:
        if self._given.output == JSON:
            entity = {"entityType": self._kind, "entityName": name}
            rows = (config_values(each) for each in shown_configs(configs, with_defaults=self._given.all))
            print_rows({**entity, **row} for row in rows)
        else:
            print("\n".join([heading, *config_lines(configs, with_defaults=self._given.all)]))

    def _show_user(self, described: ScramDescription) -> None:
        if self._given.output == JSON:
            counts = {mechanism.value: iterations for mechanism, iterations in described.credentials}
            print_rows([{"entityType": USERS, "entityName": described.user, "iterations": counts}])
        else:
            print(description_line(described))

    def alter(self) -> None:
        admin = self._admin
        if self._kind == USERS:
            self._alter_user(self._name or "")
            return
        if self._kind == TOPICS:
            assert self._name is not None
            changes = changes_of(self._given, admin.topic_overrides(self._name))
            admin.alter_configs(self._name, changes)
            print(f"Completed updating config for topic {self._name}.")
            return
        if self._kind == GROUPS:
            assert self._name is not None
            configs = admin.describe_group_configs(self._name)
            changes = changes_of(self._given, {each.name: each.text for each in configs if each.source in DYNAMIC})
            admin.alter_group_configs(self._name, changes)
            print(f"Completed updating config for group {self._name}.")
            return
        altered = {c.name: c.text for c in admin.describe_cluster_configs() if c.source in DYNAMIC}
        admin.alter_cluster_configs(changes_of(self._given, altered))
        print("Completed updating default config for brokers in the cluster.")

    def _alter_user(self, user: str) -> None:
        upsertions = upsertions_of(user, added_of(self._given), secrets.token_bytes(SALT_BYTES))
        deletions = deletions_of(user, removed_of(self._given))
        for deletion in deletions:  # one request may name a user once
            self._raise(self._admin.alter_user_scram_credentials([deletion])[user])
        for upsertion in upsertions:
            self._raise(self._admin.alter_user_scram_credentials((), [upsertion])[user])
        print(f"Completed updating config for user {user}.")

    @staticmethod
    def _raise(error: StratalogError | None) -> None:
        if error is not None:
            raise error


def configs(given: argparse.Namespace) -> int:
    """Do what the flags ask for; the exit code."""
    entity = entity_of(given)
    with open_cluster(given) as opened:
        command = ConfigCommand(given, entity, opened.admin)
        (command.alter if given.alter else command.describe)()
    return DONE


_EPILOG = EPILOG.replace("{shared}", ", ".join(CLUSTER_WIDE_CONFIGS)) + "".join(
    f"\n{what} configs (name = default unit):\n{settings_table(known)}"
    for what, known in (("topic", TOPIC_CONFIGS), ("group", GROUP_CONFIGS))
)
main = Command("configs", PURPOSE, _EPILOG, FLAGS, configs, RULES, Words(("alter", "describe")))
