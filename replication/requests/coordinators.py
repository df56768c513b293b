"""FindCoordinator: the coordinators of groups and transactional ids, as plain values. Pure.

Names are those of FindCoordinator version 4 and newer, in snake_case. The adapter adds host and port, from `node_id`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from stratalog.replication.internal_topics import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC
from stratalog.storage.errors import StratalogError

NO_NODE = -1


@dataclass(frozen=True, slots=True)
class FindCoordinatorRequest:
    """The coordinators of several keys of one type: group ids, or transactional ids."""

    key_type: CoordinatorType
    coordinator_keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Coordinator:
    """The coordinator of `key` is broker `node_id`; -1 with COORDINATOR_NOT_AVAILABLE (retriable) if there is none."""

    key: str
    node_id: int = NO_NODE
    error: StratalogError | None = None


@dataclass(frozen=True, slots=True)
class FindCoordinatorResponse:
    """One answer for each key, in order."""

    coordinators: tuple[Coordinator, ...]


VisibleNames = Callable[[frozenset[str]], frozenset[str]]
"""Those of some topics' names that the sender of a request may describe: `replication.metadata.acls.VisibleTopics`."""


class CoordinatorType(Enum):
    """Type of a coordinator. `value` is FindCoordinator's key type (KIP-98)."""

    GROUP = 0
    TRANSACTION = 1

    @property
    def topic(self) -> str:
        """The internal topic whose partitions are its shards."""
        return GROUP_METADATA_TOPIC if self is CoordinatorType.GROUP else TRANSACTION_STATE_TOPIC
