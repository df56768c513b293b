"""What belongs to a cluster and is not in it: a registry server of its schemas, typed tables of its topics.

I/O: none of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

from stratalog.clients.schemas.rest_client import SchemaRegistryClient
from stratalog.clients.schemas.schema_folder import SCHEMAS_TOPIC


@dataclass(frozen=True, slots=True)
class Beside:
    """What the one who starts a console names.

    registry       the server with the schemas; None: they are in a topic of the cluster
    schemas_topic  that topic
    typed_tables   paths or URLs of typed tables that have left no note in the cluster
    """

    registry: SchemaRegistryClient | None = None
    schemas_topic: str = SCHEMAS_TOPIC
    typed_tables: tuple[str, ...] = ()


NOTHING = Beside()
