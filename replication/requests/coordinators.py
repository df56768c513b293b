"""FindCoordinator: the coordinators of groups and transactional ids. Pure.

Names are those of Kafka's message JSON in snake_case. The broker that is asked adds host and port, from `node_id`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

from stratalog.replication.internal_topics import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC
from stratalog.storage.errors import StratalogError
from stratalog.wire.messages.response import ErrorWithText, Response

NO_NODE = -1


@dataclass(frozen=True, slots=True)
class FindCoordinatorRequest:
    """The coordinators of several keys of one type: group ids, or transactional ids.

    key_type  of a client, any number
    key       below version 4, which has no `coordinator_keys`
    """

    key_type: int = 0
    coordinator_keys: tuple[str, ...] = ()
    key: str = ""


@dataclass(frozen=True, slots=True)
class Coordinator(ErrorWithText):
    """The coordinator of `key` is broker `node_id`; -1 with COORDINATOR_NOT_AVAILABLE (retriable) if there is none."""

    key: str
    node_id: int = NO_NODE
    host: str = ""
    port: int = -1
    error: StratalogError | None = None


@dataclass(frozen=True, slots=True)
class FindCoordinatorResponse(Response, ErrorWithText):
    """One answer for each key, in order. Below version 4 there are the fields of one answer instead."""

    coordinators: tuple[Coordinator, ...] = ()
    node_id: int = NO_NODE
    host: str = ""
    port: int = -1
    error: StratalogError | None = None


VisibleNames = Callable[[frozenset[str]], frozenset[str]]
"""Those of some topics' names that the sender of a request may describe: `replication.metadata.acls.VisibleTopics`."""


class CoordinatorType(IntEnum):
    """Type of a coordinator. `value` is FindCoordinator's key type (KIP-98)."""

    GROUP = 0
    TRANSACTION = 1

    @property
    def topic(self) -> str:
        """The internal topic whose partitions are its shards."""
        return GROUP_METADATA_TOPIC if self is CoordinatorType.GROUP else TRANSACTION_STATE_TOPIC
