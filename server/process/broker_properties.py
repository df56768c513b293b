"""The properties of a broker in a process of its own: its identity, its root, the settings of its cluster. Pure.

As Kafka's `server.properties`: the names of `IDENTITY` beside those of `BrokerConfig`, in one file or one by one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from stratalog.replication.config import BrokerConfig, int32
from stratalog.storage.config_def import ConfigKey, invalid_value, non_empty
from stratalog.storage.errors import InvalidConfigError

BROKER_ID, LOG_DIRS, METADATA_ROOT, RACK = "broker.id", "log.dirs", "stratalog.metadata.root", "broker.rack"
IDENTITY = (
    ConfigKey(BROKER_ID, "INT", -1, "", "the broker's number in its cluster; no other broker has it", int32(0)),
    ConfigKey(
        LOG_DIRS, "STRING", "", "", "the broker's root, a folder or an object store's URL, for it alone; every broker "
        "and client reaches it by this name", non_empty,
    ),
    ConfigKey(
        METADATA_ROOT, "STRING", "", "", "where the cluster's metadata lies: the same for all of its brokers", non_empty
    ),
    ConfigKey(
        RACK, "STRING", "", "", "the broker's failure domain; replicas are spread over racks", non_empty
    ),
)  # fmt: skip
"""Settings of one broker; the first three are required."""


@dataclass(frozen=True, slots=True)
class BrokerProperties:
    """`root` and `metadata_root` are absolute paths, or URLs. `rack` is None where there is none."""

    broker_id: int
    root: str
    metadata_root: str
    rack: str | None
    config: BrokerConfig

    @classmethod
    def from_properties(cls, properties: Mapping[str, object]) -> Self:
        """By Kafka's names, as TOML values or text. InvalidConfigError in Kafka's words for an unknown name, a bad
        value, or one of the first three of `IDENTITY` that is missing.

        >>> given = {"broker.id": "2", "log.dirs": "s3://disk-2/kafka", "stratalog.metadata.root": "s3://shared/meta"}
        >>> BrokerProperties.from_properties(given).broker_id
        2
        """
        own = {each.name: each.parse(properties[each.name]) for each in IDENTITY if each.name in properties}
        config = BrokerConfig.from_properties({n: v for n, v in properties.items() if n not in own})
        for each in IDENTITY[:3]:
            if each.name not in own:
                raise InvalidConfigError(f'Missing required configuration "{each.name}" which has no default value.')
        root, metadata_root = str(own[LOG_DIRS]), str(own[METADATA_ROOT])
        if "," in root:
            raise invalid_value(LOG_DIRS, root, "Value must be one directory: a broker has one root")
        places = _absolute(root), _absolute(metadata_root)
        if places[0] == places[1]:
            raise invalid_value(METADATA_ROOT, metadata_root, f"Value must differ from {LOG_DIRS}")
        return cls(int(own[BROKER_ID]), *places, str(own[RACK]) if RACK in own else None, config)


def _absolute(place: str) -> str:
    return place.rstrip("/") if "://" in place else str(Path(place).expanduser().absolute())
