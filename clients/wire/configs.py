"""Configs as DescribeConfigs answers them, and changes for IncrementalAlterConfigs. Pure.

Source: Kafka's `ConfigResource`, `DescribeConfigsResponse` (KIP-133, KIP-226, KIP-339).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from stratalog.replication.log_configs import DYNAMIC_LOG_CONFIGS
from stratalog.replication.metadata.configs import CLUSTER_WIDE_CONFIGS, DYNAMIC_BROKER_CONFIGS
from stratalog.server.admin.configs import DYNAMIC, DYNAMIC_BROKER_CONFIG, ConfigInForce, ConfigSynonym
from stratalog.server.request.api import SOURCE_CODES
from stratalog.wire.api_keys import ApiKey
from stratalog.wire.messages.frames import Message
from stratalog.wire.messages.schema import Entity

TOPIC, BROKER, GROUP = 2, 4, 32
"""Kafka's ConfigResource.Type."""
SET, DELETE = 0, 1
DESCRIBE_CONFIGS_VERSION, ALTER_CONFIGS_VERSION, LIST_RESOURCES_VERSION = 4, 1, 1
_SOURCE_OF = {code: source for source, code in SOURCE_CODES.items()}
_OF_ALL_BROKERS = frozenset(
    (*CLUSTER_WIDE_CONFIGS, *(key.name for known in (DYNAMIC_LOG_CONFIGS, DYNAMIC_BROKER_CONFIGS) for key in known))
)
"""Configs that the metadata of a cluster has: a broker answers with its identity and its own settings, too."""


def describe_message(kind: int, names: Sequence[str], configs: Sequence[str] | None = None) -> Message:
    """A request for configs of resources of one kind, with their synonyms; without `configs` for all."""
    keys = None if configs is None else list(configs)
    resources = [{"resource_type": kind, "resource_name": name, "configuration_keys": keys} for name in names]
    return Message(
        {"resources": resources, "include_synonyms": True}, ApiKey.DESCRIBE_CONFIGS, DESCRIBE_CONFIGS_VERSION
    )


def alter_message(kind: int, name: str, changes: Mapping[str, str | None]) -> Message:
    """A request to set configs of one resource, or to remove those that are None."""
    configs = [
        {"name": key, "config_operation": DELETE if value is None else SET, "value": value}
        for key, value in changes.items()
    ]
    resource = {"resource_type": kind, "resource_name": name, "configs": configs}
    return Message({"resources": [resource]}, ApiKey.INCREMENTAL_ALTER_CONFIGS, ALTER_CONFIGS_VERSION)


def list_groups_message() -> Message:
    """A request for the groups that have configs (KIP-1142)."""
    return Message({"resource_types": [GROUP]}, ApiKey.LIST_CONFIG_RESOURCES, LIST_RESOURCES_VERSION)


def configs_of(result: Entity) -> list[ConfigInForce]:
    """The configs of one resource, in the order of the answer."""
    return [_config(each) for each in result.configs]


def _config(config: Entity) -> ConfigInForce:
    synonyms = tuple(ConfigSynonym(_SOURCE_OF[each.source], each.name, each.value) for each in config.synonyms)
    own = ConfigSynonym(_SOURCE_OF[config.config_source], config.name, config.value)
    return ConfigInForce(config.name, config.value, synonyms or (own,), config.is_sensitive)


def of_all_brokers(configs: Sequence[ConfigInForce], *, with_own: bool) -> list[ConfigInForce]:
    """Of a broker's configs those that a cluster has; `with_own`: with what was altered for this broker alone."""
    found = [each for each in configs if each.name in _OF_ALL_BROKERS or each.source in DYNAMIC]
    return found if with_own else [shared for each in found if (shared := _shared(each)) is not None]


def _shared(config: ConfigInForce) -> ConfigInForce | None:
    """The config without its value for one broker alone; None for one that has no other."""
    synonyms = tuple(each for each in config.synonyms if each.source != DYNAMIC_BROKER_CONFIG)
    if len(synonyms) == len(config.synonyms):
        return config
    return ConfigInForce(config.name, synonyms[0].value, synonyms, config.is_sensitive) if synonyms else None
