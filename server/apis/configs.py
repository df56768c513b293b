"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs, ListConfigResources: configs of topics, brokers and groups,
and the levels of this process's loggers.

I/O: the metadata log, for changes; the loggers.

A broker's own configs are its dynamic ones, such as rates of replication; others are altered for all brokers (the
broker resource with an empty name). Metrics of clients are not collected, so that there are no subscriptions to them.
Source: `ConfigHelper`, `ConfigAdminManager`, `ConfigurationControlManager` (KIP-133, KIP-226, KIP-339, KIP-412,
KIP-569, KIP-1000, KIP-1142).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from stratalog.replication.controller import topics
from stratalog.replication.controller.cluster_configs import alter_cluster_configs
from stratalog.replication.controller.topics import check_topic_name
from stratalog.replication.log_configs import DYNAMIC_LOG_CONFIGS
from stratalog.replication.metadata.acls import Operation, ResourceType
from stratalog.replication.metadata.configs import (
    CLUSTER_WIDE_CONFIGS,
    DYNAMIC_BROKER_CONFIGS,
    GROUP_CONFIGS,
    alter_broker_config,
    alter_group_config,
    is_known_broker_config,
    kept_broker_config_key,
)
from stratalog.replication.metadata.image import ClusterImage, Result
from stratalog.replication.metadata.records import DYNAMIC_DEFAULT, group_of, of_broker, of_group
from stratalog.server.admin.configs import (
    ConfigInForce,
    altered_broker_configs,
    broker_configs,
    group_configs,
    topic_configs,
)
from stratalog.server.admin.loggers import check_level, logger_levels, set_level
from stratalog.server.process.broker_properties import BROKER_ID, IDENTITY
from stratalog.server.request.api import SOURCE_CODES, Api, Call, failed, refused_each, repeated
from stratalog.server.request.broker import ApiFamily, attempted
from stratalog.storage import errors
from stratalog.storage.config_def import ConfigKey, spelled
from stratalog.storage.errors import StratalogError
from stratalog.storage.topic_config import TOPIC_CONFIGS, LogConfig
from stratalog.wire.api_keys import ApiKey
from stratalog.wire.messages.values import Values

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
"""Kafka's ConfigResource.Type."""
SET, DELETE, APPEND, SUBTRACT = range(4)
TYPE_CODES = {"BOOLEAN": 1, "STRING": 2, "INT": 3, "SHORT": 4, "LONG": 5, "DOUBLE": 6, "LIST": 7, "PASSWORD": 9}
_ACCESS = {
    TOPIC: ResourceType.TOPIC,
    BROKER: ResourceType.CLUSTER,
    BROKER_LOGGER: ResourceType.CLUSTER,
    CLIENT_METRICS: ResourceType.CLUSTER,
    GROUP: ResourceType.GROUP,
}
_DYNAMIC = frozenset(
    (*CLUSTER_WIDE_CONFIGS, *(key.name for known in (DYNAMIC_BROKER_CONFIGS, DYNAMIC_LOG_CONFIGS) for key in known))
)
_OF_ONE_BROKER = {key.name: key for key in IDENTITY}
_OF_ONE_BROKER["node.id"] = _OF_ONE_BROKER[BROKER_ID]
Changes = Mapping[str, str | None]


class ConfigApis(ApiFamily):
    def apis(self) -> Iterable[Api]:
        refused = refused_each("responses", "resources", _resource_error)
        return [
            Api(ApiKey.DESCRIBE_CONFIGS, self._describe, refused_each("results", "resources", _resource_error)),
            Api(ApiKey.ALTER_CONFIGS, partial(self._alter_all, self._replaced), refused, is_slow=True),
            Api(ApiKey.INCREMENTAL_ALTER_CONFIGS, partial(self._alter_all, self._changed), refused, is_slow=True),
            Api(ApiKey.LIST_CONFIG_RESOURCES, self._list, _list_refused),
        ]

    def _check(self, call: Call, operation: Operation, kind: int, name: str) -> None:
        if kind not in _ACCESS:
            raise errors.InvalidRequestError(f"Unsupported resource type: {kind}")
        self._broker.check(call, operation, _ACCESS[kind], name)
        if kind in (GROUP, CLIENT_METRICS) and not name:
            raise errors.InvalidRequestError("Group name must not be empty" if kind == GROUP else NO_SUBSCRIPTION_NAME)
        if kind == BROKER_LOGGER:
            self._check_is_own(name)

    def _check_is_own(self, name: str) -> None:
        if _broker_id(name) != self._broker.broker_id:
            raise errors.InvalidRequestError(
                f"Unexpected broker id, expected {self._broker.broker_id}, but received {name}"
            )

    # -- DescribeConfigs, ListConfigResources --------------------------------------------------------------------

    def _describe(self, call: Call) -> Values:
        self._broker.image(0)
        return {
            "results": [
                attempted(partial(self._described, call, each), partial(_resource_error, each))
                for each in dict.fromkeys(call.request.resources)
            ]
        }

    def _described(self, call: Call, resource: Any) -> Values:
        kind, name = resource.resource_type, resource.resource_name
        self._check(call, Operation.DESCRIBE_CONFIGS, kind, name)
        found = self._configs(kind, name)
        wanted = resource.configuration_keys  # null or, for some clients, empty: all of them
        configs = [_config_values(call, kind, each) for each in found if not wanted or each.name in wanted]
        return {**failed(None), "resource_type": kind, "resource_name": name, "configs": configs}

    def _configs(self, kind: int, name: str) -> list[ConfigInForce]:
        image, own = self._broker.view.image, self._broker.config.properties()
        if kind == BROKER_LOGGER:
            return logger_levels()
        if kind == GROUP:
            return group_configs(image, name)
        if kind == BROKER and not name:
            return altered_broker_configs(image)
        if kind == BROKER:
            self._check_is_own(name)
            return broker_configs(image, self._broker.broker_id, own)
        if kind == CLIENT_METRICS:
            return []
        check_topic_name(name)
        if name not in image.topic_ids:
            raise errors.UnknownTopicOrPartitionError(f"topic '{name}' does not exist")
        return topic_configs(image, name, self._broker.broker_id)

    def _list(self, call: Call) -> Values:
        """The resources that have configs; version 0 asks for subscriptions to clients' metrics only (KIP-1142)."""
        self._broker.check(call, Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER)
        asked = call.given("resource_types", (CLIENT_METRICS,)) or tuple(_ACCESS)
        unknown = [kind for kind in asked if kind not in _ACCESS]
        if unknown:
            raise errors.UnsupportedVersionError(f"Unsupported resource type: {unknown[0]}")
        image = self._broker.image(0)
        brokers = [str(broker_id) for broker_id in sorted(image.brokers)]
        names = {
            TOPIC: sorted(name for name in list(image.topic_ids) if self._broker.may_describe_topic(call, name)),
            BROKER: brokers,
            BROKER_LOGGER: brokers,
            GROUP: sorted(group for each in list(image.configs) if (group := group_of(each)) is not None),
        }
        listed = [{"resource_name": name, "resource_type": kind} for kind in asked for name in names.get(kind, ())]
        return {"error_code": None, "config_resources": listed}

    # -- AlterConfigs, IncrementalAlterConfigs -------------------------------------------------------------------

    def _alter_all(self, changes: Callable[[Any, ClusterImage], Changes], call: Call) -> Values:
        asked = {(each.resource_type, each.resource_name): each for each in call.request.resources}
        twice = repeated((each.resource_type, each.resource_name) for each in call.request.resources)
        return {
            "responses": [
                attempted(partial(self._altered, call, each, changes, key in twice), partial(_resource_error, each))
                for key, each in asked.items()
            ]
        }

    def _altered(
        self, call: Call, resource: Any, changes: Callable[[Any, ClusterImage], Changes], is_twice: bool
    ) -> Values:
        kind, name = resource.resource_type, resource.resource_name
        if is_twice:
            raise errors.InvalidRequestError("Each resource must appear at most once.")
        _check_operations(resource.configs)
        self._check(call, Operation.ALTER_CONFIGS, kind, name)
        if kind == CLIENT_METRICS:
            raise errors.InvalidRequestError("metrics of clients are not collected here")
        if kind == BROKER and name:
            self._check_is_own(name)
        if kind == BROKER_LOGGER:
            self._set_levels(changes(resource, self._broker.image()), call.request.validate_only)
        else:
            self._commit(lambda image: _alter(kind, name, changes(resource, image), image), call.request.validate_only)
        return {**failed(None), "resource_type": kind, "resource_name": name}

    def _changed(self, resource: Any, image: ClusterImage) -> Changes:
        """What IncrementalAlterConfigs does to single configs."""
        kind, name = resource.resource_type, resource.resource_name
        in_force: Mapping[str, str] = {}
        lists = {key.name for key in (TOPIC_CONFIGS if kind == TOPIC else DYNAMIC_LOG_CONFIGS) if key.type == "LIST"}
        if kind == TOPIC:
            in_force = {each.name: each.text for each in topic_configs(image, name)}
        elif kind == BROKER:
            altered = image.configs.get(_record_topic(kind, name), {})
            in_force = {**{key.name: spelled(key.default) for key in DYNAMIC_LOG_CONFIGS}, **altered}
        return {each.name: _after(each, in_force, is_list=each.name in lists) for each in resource.configs}

    def _replaced(self, resource: Any, image: ClusterImage) -> Changes:
        """What AlterConfigs does: these configs are set, all others that are altered return to their defaults."""
        kind, name = resource.resource_type, resource.resource_name
        if kind == BROKER_LOGGER:
            raise errors.InvalidRequestError("AlterConfigs does not support the resource type BROKER_LOGGER.")
        before = image.configs.get(_record_topic(kind, name), {})
        return {**dict.fromkeys(before), **{each.name: each.value for each in resource.configs}}

    def _set_levels(self, levels: Changes, validate_only: bool) -> None:
        for name, level in levels.items():
            check_level(name, level)
        for name, level in levels.items() if not validate_only else ():
            set_level(name, level)

    def _commit(self, decide: Callable[[ClusterImage], Result[dict[str, str]]], validate_only: bool) -> None:
        if validate_only:
            decide(self._broker.image(0))
        else:
            self._broker.view.propose(decide)


NO_SUBSCRIPTION_NAME = "Client metrics subscription name must not be empty"


def _record_topic(kind: int, name: str) -> str:
    """The `ConfigRecord.topic` of a resource."""
    if kind == BROKER:
        return of_broker(_broker_id(name)) if name else DYNAMIC_DEFAULT
    return of_group(name) if kind == GROUP else name


def _alter(kind: int, name: str, changes: Changes, image: ClusterImage) -> Result[dict[str, str]]:
    if kind == BROKER:
        try:
            if name:
                return alter_broker_config(image, _broker_id(name), changes, keeps_unknown=True)
            return alter_cluster_configs(image, changes, keeps_unknown=True)
        except errors.InvalidConfigError as reason:
            raise errors.InvalidRequestError(str(reason)) from reason  # Kafka's code for brokers (KAFKA-13609)
    if kind == GROUP:
        return alter_group_config(image, name, changes)
    if not name:
        raise errors.InvalidRequestError("Default topic resources are not allowed.")
    check_topic_name(name)
    return topics.alter_config(image, name, changes, check_configs=LogConfig.validated)


def _broker_id(name: str) -> int:
    """As `Integer.parseInt` reads it, so that `01` is broker 1. InvalidRequestError."""
    if not re.fullmatch("[+-]?[0-9]{1,10}", name):
        raise errors.InvalidRequestError(f"Broker id must be an integer, but it is: {name}")
    return int(name)


def _config_values(call: Call, kind: int, config: ConfigInForce) -> Values:
    key = _key(kind, config.name)
    synonyms = config.synonyms if call.request.include_synonyms and key is not None else ()
    doc = None if key is None else f"{key.doc} [{key.unit}]" if key.unit else key.doc
    return {
        "name": config.name,
        "value": None if config.is_sensitive else config.value,
        "read_only": kind == BROKER and config.name not in _DYNAMIC,
        "config_source": SOURCE_CODES[config.source],
        "is_sensitive": config.is_sensitive,
        "synonyms": [
            {"name": s.name, "value": None if config.is_sensitive else s.value, "source": SOURCE_CODES[s.source]}
            for s in synonyms
        ],
        "config_type": _type_code(kind, key),
        "documentation": doc if call.given("include_documentation", False) else None,
    }


def _key(kind: int, name: str) -> ConfigKey | None:
    """What is known of a config; None of a logger."""
    if kind == BROKER_LOGGER:
        return None
    if kind == BROKER:
        return _OF_ONE_BROKER.get(name) or kept_broker_config_key(name)
    return (GROUP_CONFIGS if kind == GROUP else TOPIC_CONFIGS).key(name)


def _type_code(kind: int, key: ConfigKey | None) -> int:
    if key is None or (kind == BROKER and key.name not in _OF_ONE_BROKER and not is_known_broker_config(key.name)):
        return 0
    return TYPE_CODES[key.type]


def _check_operations(configs: Sequence[Any]) -> None:
    twice = repeated(each.name for each in configs)
    if twice:
        raise errors.InvalidRequestError(f"Error due to duplicate config keys: {','.join(sorted(twice))}")
    for each in configs:
        operation = getattr(each, "config_operation", SET)
        if operation not in (SET, DELETE, APPEND, SUBTRACT):
            raise errors.InvalidRequestError(f"Unknown operation type {operation}")
        if each.value is None and operation != DELETE:
            raise errors.InvalidRequestError(f"Null value not supported for : {each.name}")


def _after(config: Any, in_force: Mapping[str, str], *, is_list: bool) -> str | None:
    """The value of a config after its operation; None removes the override.

    APPEND of `compact` to `delete` gives `delete,compact`, SUBTRACT of `delete` from that `compact`.
    """
    if config.config_operation == DELETE:
        return None
    value = str(config.value)
    if config.config_operation == SET:
        return value
    if not is_list:
        word = "APPEND" if config.config_operation == APPEND else "SUBTRACT"
        raise errors.InvalidConfigError(f"Can't {word} to key {config.name} because its type is not LIST.")
    before = [each for each in in_force.get(config.name, "").split(",") if each]
    named = [each.strip() for each in value.split(",")]  # "" is one, which no list may have
    if config.config_operation == APPEND:
        return ",".join(dict.fromkeys([*before, *named]))
    return ",".join(each for each in before if each not in named)


def _resource_error(resource: Any, error: StratalogError) -> Values:
    named = {"resource_type": resource.resource_type, "resource_name": resource.resource_name}
    return {**failed(error), **named}


def _list_refused(_call: Call, error: StratalogError) -> Values:
    return {"error_code": error, "config_resources": ()}
