"""Who coordinates a group or a transactional id: Kafka's FindCoordinator as values. Pure.

Names are those of FindCoordinator version 4 and newer, in snake_case. Host and port are the adapter's to add, from
`node_id`.
"""

from __future__ import annotations

from dataclasses import dataclass

from stratalog.replication.coordinator.shard.shard import CoordinatorType
from stratalog.storage.errors import StratalogError

NO_NODE = -1


@dataclass(frozen=True, slots=True)
class FindCoordinatorRequest:
    """Asks for the coordinators of several keys of one kind: group ids, or transactional ids."""

    key_type: CoordinatorType
    coordinator_keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Coordinator:
    """The coordinator of `key` is broker `node_id`; -1 with COORDINATOR_NOT_AVAILABLE while nobody is: ask again."""

    key: str
    node_id: int = NO_NODE
    error: StratalogError | None = None


@dataclass(frozen=True, slots=True)
class FindCoordinatorResponse:
    """One answer for each key, in order."""

    coordinators: tuple[Coordinator, ...]
