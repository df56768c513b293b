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
from stratalog.jobs.text.quota_entities import (
    CLIENTS,
    USERS,
    NamedEntity,
    check_only_quotas,
    matches_of,
    of_quotas,
    quota_changes,
    quota_entity,
    quota_line,
)
from stratalog.jobs.text.scram_users import check_users_names, deletions_of, description_line, upsertions_of
from stratalog.replication.metadata.client_quotas import KEYS
from stratalog.replication.metadata.configs import CLUSTER_WIDE_CONFIGS, GROUP_CONFIGS
from stratalog.replication.metadata.scram import ScramDescription
from stratalog.server.admin.configs import DYNAMIC
from stratalog.storage.errors import InvalidConfigError, ResourceNotFoundError, StratalogError
from stratalog.storage.topic_config import TOPIC_CONFIGS

TOPICS, BROKERS, GROUPS = "topics", "brokers", "groups"
ENTITY_TYPES = (TOPICS, CLIENTS, USERS, BROKERS, GROUPS)
SALT_BYTES = 24
OTHER_TYPES = ("broker-loggers", "ips", "client-metrics")
PURPOSE = (
    "This tool helps to manipulate and describe entity config for a topic, a group, a user, a client or all brokers."
)
EPILOG = """examples (for --root ROOT also --bootstrap-server HOST:PORT):
  {prog} --root ROOT --describe --topic events --all
  {prog} --root ROOT --alter --topic events --add-config 'retention.ms=3600000,cleanup.policy=[compact,delete]'
  {prog} --root ROOT --alter --topic events --delete-config retention.ms
  {prog} --root ROOT --alter --entity-type brokers --entity-default --add-config num.partitions=6
  {prog} --root ROOT --alter --group readers --add-config consumer.session.timeout.ms=60000
  {prog} --root ROOT --alter --entity-type users --entity-name alice --add-config 'SCRAM-SHA-512=[password=secret]'
  {prog} --root ROOT --alter --user alice --client etl --add-config producer_byte_rate=1048576
  {prog} --root ROOT --describe --entity-type users --entity-type clients

An altered config of a topic holds from the leader's next append on. A config that is altered for all brokers ({shared},
and defaults of topics' configs, as log.retention.ms or message.max.bytes) holds at once and outlives restarts,
until --delete-config restores the value that the brokers are started with. It cannot be altered for a single broker.
Configs of a group are for the protocol of KIP-848: they hold at a member's next heartbeat, within the bounds that the
cluster was started with (group.consumer.min.session.timeout.ms and its like).
Configs of a user are what SCRAM checks the password against, by mechanism:
[iterations=<4096 to 16384>,password=<text>]. It works without a running broker, so that a first user can log in.
Quotas of a user, a client id or both hold at once, for each broker: {quotas}.
Of a client the most special one counts; --entity-default is for all that have none of their own.
exit code: 0 when it was done, 1 with a line on standard error when not; a refused request changes nothing
"""
_BRACKETED = r"(?=[^\]]*(?:\[|$))"


# fmt: off
FLAGS = {**CLUSTER, "what to do, exactly one of": (
    switch("alter", "Alter the configuration for the entity."),
    switch("describe", "List configs for the given entity."),
), "of which entity": (
    Flag("entity-type", "TYPE", "Type of entity (topics/clients/users/brokers/groups); users and clients together are "
         "clients of a user.", is_repeated=True),
    Flag("entity-name", "NAME", "Name of entity (topic name/client id/user principal name/broker id/group id).",
         is_repeated=True),
    switch("entity-default", "Default entity name for clients/users/brokers (applies to corresponding entity type).",
           adds_to="entity-name"),
    Flag("topic", "TOPIC", "The topic's name."),
    Flag("client", "CLIENT", "The client's id."),
    switch("client-defaults", "The config defaults for all clients."),
    Flag("user", "USER", "The user's principal name."),
    switch("user-defaults", "The config defaults for all users."),
    Flag("broker", "ID", "The id for a broker."),
    switch("broker-defaults", "The config defaults for all brokers."),
    Flag("group", "GROUP", "The group's id."),
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


def entities_of(given: argparse.Namespace) -> list[NamedEntity]:
    """Entity types with their names: "" stands for the default, None for all. UsageError in Kafka's words for what does
    not go together, and for what cannot be altered."""
    named = [(TOPICS, given.topic), (CLIENTS, given.client), (USERS, given.user), (BROKERS, given.broker)]
    specific = [each for each in [*named, (GROUPS, given.group)] if each[1] is not None]
    defaults = ((CLIENTS, given.client_defaults), (USERS, given.user_defaults), (BROKERS, given.broker_defaults))
    specific += [(kind, "") for kind, is_given in defaults if is_given]
    if specific and (given.entity_type or given.entity_name):
        raise UsageError("--entity-{type,name,default} should not be used in conjunction with specific entity flags")
    kinds = [*given.entity_type, *(kind for kind, _ in specific)]
    names = [*given.entity_name, *(name for _, name in specific)]
    _check_types(kinds)
    if len(names) > len(kinds):
        raise UsageError("More entity names specified than entity types")
    found = list(zip(kinds, [*names, *[None] * (len(kinds) - len(names))], strict=True))
    for kind, name in found:
        _check_name(kind, name, is_altered=given.alter)
    return found


def _check_types(kinds: Sequence[str]) -> None:
    if not kinds:
        raise UsageError("At least one entity type must be specified: --entity-type, --topic, --client, --user, ...")
    for kind in kinds:
        if kind in OTHER_TYPES:
            raise UsageError(f"Entity type '{kind}' has no configs here: it is {', '.join(ENTITY_TYPES)}")
        if kind not in ENTITY_TYPES:
            raise UsageError(f"Invalid entity type {kind}, the entity type must be one of {', '.join(ENTITY_TYPES)}")
    twice = [kind for kind in dict.fromkeys(kinds) if kinds.count(kind) > 1]
    if twice:
        raise UsageError(f"Duplicate entity type(s) specified: {','.join(twice)}")
    if len(kinds) > 1 and set(kinds) != {USERS, CLIENTS}:
        raise UsageError(f"Only '{USERS}' and '{CLIENTS}' entity types may be specified together")


def _check_name(kind: str, name: str | None, *, is_altered: bool) -> None:
    if name == "" and kind in (TOPICS, GROUPS):
        raise UsageError(f"--entity-default stands for clients, users or brokers, not for {kind}")
    if kind == BROKERS and name and not name.isdecimal():
        raise UsageError(f"The entity name for brokers must be a valid integer broker id, but it is: {name}")
    if is_altered and kind == BROKERS and name != "":
        raise UsageError("Settings are altered for all brokers: --entity-type brokers --entity-default")
    if is_altered and name is None:
        raise UsageError(f"an entity-name or default entity must be specified with --alter of {kind}")


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

    def __init__(self, given: argparse.Namespace, entities: Sequence[NamedEntity], admin: ClusterAdmin) -> None:
        self._given = given
        self._entities = entities
        self._kind, self._name = entities[0]
        self._which = "All" if given.all else "Dynamic"
        self._admin = admin

    def describe(self) -> None:
        if self._kind == TOPICS:
            self._describe_topics()
        elif self._kind in (USERS, CLIENTS):
            self._describe_clients()
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

    def _describe_clients(self) -> None:
        """Quotas, and of users alone what their passwords are checked against."""
        for entity, values in self._admin.describe_client_quotas(matches_of(self._entities), is_strict=True).items():
            if self._given.output == JSON:
                print_rows([{"entity": dict(entity), "quotas": dict(values)}])
            else:
                print(quota_line(entity, values))
        if len(self._entities) > 1 or self._kind == CLIENTS or self._name == "":
            return
        users = None if self._name is None else [self._name]
        for each in self._admin.describe_user_scram_credentials(users):
            if not isinstance(each.error, ResourceNotFoundError):  # Kafka's client leaves these out
                self._show_user(each)

    def _describe_brokers(self) -> None:
        known = [str(each.broker_id) for each in self._admin.describe_cluster().brokers]
        if self._name and self._name not in known:
            print(f"The broker '{self._name}' doesn't exist and doesn't have dynamic config.")
            return
        for broker in known if self._name is None else [self._name] if self._name else []:
            own = self._admin.broker_configs(int(broker))
            self._show(f"{self._which} configs for broker {broker} are:", broker, own)
        if not self._name:
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
        if self._kind in (USERS, CLIENTS):
            self._alter_clients()
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

    def _alter_clients(self) -> None:
        """Alter quotas, or what the passwords of one user are checked against."""
        added, removed = added_of(self._given), removed_of(self._given)
        names = [*added, *removed]
        quotas = of_quotas(names)
        if CLIENTS in dict(self._entities):
            check_only_quotas(added, removed)
        if quotas and len(quotas) < len(names):
            check_users_names(added, removed)
            raise UsageError(f"Cannot alter both quota and SCRAM credential configs simultaneously for '{USERS}'")
        if quotas:
            entity = quota_entity(self._entities)
            known = self._admin.describe_client_quotas(matches_of(self._entities), is_strict=True).get(entity, {})
            absent = [name for name in removed if name not in known]
            if absent:
                raise InvalidConfigError(f"Invalid config(s): {','.join(absent)}")
            self._admin.alter_client_quota(entity, quota_changes(added, removed))
        else:
            self._alter_passwords(added, removed)
        kind, name = self._kind.removesuffix("s"), self._name
        print(f"Completed updating config for {kind} {name}." if name else
              f"Completed updating default config for {self._kind} in the cluster.")  # fmt: skip

    def _alter_passwords(self, added: Mapping[str, str], removed: Sequence[str]) -> None:
        user = self._name or ""
        upsertions = upsertions_of(user, added, secrets.token_bytes(SALT_BYTES))
        deletions = deletions_of(user, removed)
        if not user:
            raise UsageError(
                "The use of --entity-default or --user-defaults is not allowed with User SCRAM Credentials"
            )
        for deletion in deletions:  # one request may name a user once
            self._raise(self._admin.alter_user_scram_credentials([deletion])[user])
        for upsertion in upsertions:
            self._raise(self._admin.alter_user_scram_credentials((), [upsertion])[user])

    @staticmethod
    def _raise(error: StratalogError | None) -> None:
        if error is not None:
            raise error


def configs(given: argparse.Namespace) -> int:
    """Do what the flags ask for; the exit code."""
    entities = entities_of(given)
    with open_cluster(given) as opened:
        command = ConfigCommand(given, entities, opened.admin)
        (command.alter if given.alter else command.describe)()
    return DONE


_SHARED, _QUOTAS = ", ".join(CLUSTER_WIDE_CONFIGS), ", ".join(KEYS)
_EPILOG = EPILOG.replace("{shared}", _SHARED).replace("{quotas}", _QUOTAS) + "".join(
    f"\n{what} configs (name = default unit):\n{settings_table(known)}"
    for what, known in (("topic", TOPIC_CONFIGS), ("group", GROUP_CONFIGS))
)
main = Command("configs", PURPOSE, _EPILOG, FLAGS, configs, RULES, Words(("alter", "describe")))
