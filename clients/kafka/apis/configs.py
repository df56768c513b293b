"""DescribeConfigs and IncrementalAlterConfigs for topics and brokers. I/O: the metadata log, for changes.

Settings are altered for all brokers (the broker resource with an empty name), never for one.
Source: `ConfigHelper`, `ConfigurationControlManager.incrementalAlterConfigs` (KIP-133, KIP-226, KIP-339, KIP-569).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from stratalog.clients.admin.configs import (
    DEFAULT_CONFIG,
    STATIC_BROKER_CONFIG,
    ConfigInForce,
    ConfigSynonym,
    cluster_configs,
    topic_configs,
)
from stratalog.clients.kafka.protocol.entities import Values
from stratalog.clients.kafka.request.api import SOURCE_CODES, Api, Call, failed, refused_each, repeated
from stratalog.clients.kafka.request.broker import ApiFamily, attempted
from stratalog.replication.config import BROKER_CONFIGS
from stratalog.replication.controller import topics
from stratalog.replication.controller.topics import check_topic_name
from stratalog.replication.metadata.acls import Operation, ResourceType
from stratalog.replication.metadata.configs import CLUSTER_WIDE_CONFIGS, alter_cluster_config
from stratalog.replication.metadata.image import ClusterImage, Result
from stratalog.replication.metadata.records import DYNAMIC_DEFAULT
from stratalog.storage.config_def import spelled
from stratalog.storage.errors import (
    InvalidConfigError,
    InvalidRequestError,
    StratalogError,
    UnknownTopicOrPartitionError,
)
from stratalog.storage.topic_config import TOPIC_CONFIGS, LogConfig

DESCRIBE_CONFIGS, INCREMENTAL_ALTER_CONFIGS = 32, 44
TOPIC, BROKER = 2, 4
"""Kafka's ConfigResource.Type."""
SET, DELETE, APPEND, SUBTRACT = range(4)
TYPE_CODES = {"BOOLEAN": 1, "STRING": 2, "INT": 3, "SHORT": 4, "LONG": 5, "DOUBLE": 6, "LIST": 7, "PASSWORD": 9}


class ConfigApis(ApiFamily):
    def apis(self) -> Iterable[Api]:
        alteration_refused = refused_each("responses", "resources", _resource_error)
        return [
            Api(DESCRIBE_CONFIGS, self._describe, refused_each("results", "resources", _resource_error)),
            Api(INCREMENTAL_ALTER_CONFIGS, self._alter_all, alteration_refused, is_slow=True),
        ]

    # -- DescribeConfigs ---------------------------------------------------------------------------------------

    def _describe(self, call: Call) -> Values:
        return {
            "results": [
                attempted(partial(self._described, call, each), partial(_resource_error, each))
                for each in call.request.resources
            ]
        }

    def _described(self, call: Call, resource: Any) -> Values:
        kind, name = resource.resource_type, resource.resource_name
        if kind == TOPIC:
            self._broker.check(call, Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, name)
            found = self._topic_configs(name)
        elif kind == BROKER:
            self._broker.check(call, Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER)
            found = self._broker_configs(name)
        else:
            raise InvalidRequestError(f"Unsupported resource type: {kind}")
        wanted = resource.configuration_keys  # null or, for some clients, empty: all of them
        configs = [_config_values(call, kind, each) for each in found if not wanted or each.name in wanted]
        return {**failed(None), "resource_type": kind, "resource_name": name, "configs": configs}

    def _topic_configs(self, name: str) -> list[ConfigInForce]:
        check_topic_name(name)
        image = self._broker.image(0)
        if name not in image.topic_ids:
            raise UnknownTopicOrPartitionError(f"topic '{name}' does not exist")
        return topic_configs(image, name)

    def _broker_configs(self, name: str) -> list[ConfigInForce]:
        """All settings of this broker; with an empty name those that were altered for all brokers."""
        image = self._broker.image(0)
        cluster_wide = {each.name: each for each in cluster_configs(image)}
        if not name:
            altered = image.configs.get(DYNAMIC_DEFAULT, {})
            return [each for each in cluster_wide.values() if each.name in altered]
        if name != str(self._broker.broker_id):
            raise InvalidRequestError(
                f"Unexpected broker id, expected {self._broker.broker_id} or empty string, but received {name}"
            )
        return [cluster_wide.get(each, static) for each, static in self._static_configs().items()]

    def _static_configs(self) -> dict[str, ConfigInForce]:
        values = self._broker.config.properties()
        found = {}
        for known in BROKER_CONFIGS:
            default = ConfigSynonym(DEFAULT_CONFIG, known.name, spelled(known.default))
            own = ConfigSynonym(STATIC_BROKER_CONFIG, known.name, spelled(values[known.name]))
            found[known.name] = ConfigInForce(known.name, (default,) if own.value == default.value else (own, default))
        return found

    # -- IncrementalAlterConfigs ---------------------------------------------------------------------------------

    def _alter_all(self, call: Call) -> Values:
        asked = {(each.resource_type, each.resource_name): each for each in call.request.resources}
        twice = repeated((each.resource_type, each.resource_name) for each in call.request.resources)
        return {
            "responses": [
                attempted(partial(self._altered, call, each, key in twice), partial(_resource_error, each))
                for key, each in asked.items()
            ]
        }

    def _altered(self, call: Call, resource: Any, is_twice: bool) -> Values:
        kind, name = resource.resource_type, resource.resource_name
        if is_twice:
            raise InvalidRequestError("Each resource must appear at most once.")
        _check_operations(resource.configs)
        if kind == TOPIC:
            self._broker.check(call, Operation.ALTER_CONFIGS, ResourceType.TOPIC, name)
            self._commit(partial(_alter_topic, name, resource.configs), call.request.validate_only)
        elif kind == BROKER:
            self._broker.check(call, Operation.ALTER_CONFIGS, ResourceType.CLUSTER)
            if name:
                raise InvalidRequestError(f"settings are altered for all brokers, with an empty name, not for {name}")
            self._commit(partial(_alter_brokers, resource.configs), call.request.validate_only)
        else:
            raise InvalidRequestError(f"Unexpected resource type {kind}.")
        return {**failed(None), "resource_type": kind, "resource_name": name}

    def _commit(self, decide: Any, validate_only: bool) -> None:
        if validate_only:
            decide(self._broker.image(0))
        else:
            self._broker.view.propose(decide)


def _config_values(call: Call, kind: int, config: ConfigInForce) -> Values:
    is_topic = kind == TOPIC
    synonyms = config.synonyms if call.request.include_synonyms else ()
    key = (TOPIC_CONFIGS if is_topic else BROKER_CONFIGS).key(config.name)
    doc = f"{key.doc} [{key.unit}]" if key.unit else key.doc
    is_sensitive = key.type == "PASSWORD"
    return {
        "name": config.name,
        "value": None if is_sensitive else config.value,
        "read_only": not is_topic and config.name not in CLUSTER_WIDE_CONFIGS,
        "config_source": SOURCE_CODES[config.source],
        "is_sensitive": is_sensitive,
        "synonyms": [
            {"name": s.name, "value": None if is_sensitive else s.value, "source": SOURCE_CODES[s.source]}
            for s in synonyms
        ],
        "config_type": TYPE_CODES[key.type],
        "documentation": doc if call.given("include_documentation", False) else None,
    }


def _check_operations(configs: Sequence[Any]) -> None:
    twice = repeated(each.name for each in configs)
    if twice:
        raise InvalidRequestError(f"Error due to duplicate config keys: {','.join(sorted(twice))}")
    for each in configs:
        if each.config_operation not in (SET, DELETE, APPEND, SUBTRACT):
            raise InvalidRequestError(f"Unknown operation type {each.config_operation}")
        if each.value is None and each.config_operation != DELETE:
            raise InvalidRequestError(f"Null value not supported for : {each.name}")


def _alter_topic(name: str, configs: Sequence[Any], image: ClusterImage) -> Result[dict[str, str]]:
    check_topic_name(name)
    in_force = {each.name: each.value for each in topic_configs(image, name)}
    lists = {key.name for key in TOPIC_CONFIGS if key.type == "LIST"}
    changes = {each.name: _changed(each, in_force, each.name in lists) for each in configs}
    return topics.alter_config(image, name, changes, check_configs=LogConfig.from_properties)


def _alter_brokers(configs: Sequence[Any], image: ClusterImage) -> Result[dict[str, str]]:
    changes = {each.name: _changed(each, {}, is_list=False) for each in configs}
    return alter_cluster_config(image, changes)


def _changed(config: Any, in_force: dict[str, str], is_list: bool) -> str | None:
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
        raise InvalidConfigError(f"Can't {word} to key {config.name} because its type is not LIST.")
    before = [each for each in in_force.get(config.name, "").split(",") if each]
    named = [each.strip() for each in value.split(",") if each.strip()]
    if config.config_operation == APPEND:
        return ",".join(dict.fromkeys([*before, *named]))
    return ",".join(each for each in before if each not in named)


def _resource_error(resource: Any, error: StratalogError) -> Values:
    named = {"resource_type": resource.resource_type, "resource_name": resource.resource_name}
    return {**failed(error), **named}
