"""The numbers of ACLs in Kafka's messages. Pure. Source: Kafka's `ResourceType`, `PatternType`, `AclOperation`."""

from __future__ import annotations

from collections.abc import Mapping

from stratalog.replication.metadata.acls import OPERATION_CODES, Operation, PatternType, Permission, ResourceType

UNKNOWN, ANY = 0, 1
"""Codes of every field; what follows are values, in which a code without a name is UNKNOWN to Kafka, too."""
MATCH = 2
RESOURCE_TYPES: Mapping[int, ResourceType] = dict(enumerate(ResourceType, start=2))
PATTERN_TYPES: Mapping[int, PatternType] = dict(enumerate(PatternType, start=3))
PERMISSIONS: Mapping[int, Permission] = {2: Permission.DENY, 3: Permission.ALLOW}
OPERATIONS: Mapping[int, Operation] = {code: operation for operation, code in OPERATION_CODES.items()}
