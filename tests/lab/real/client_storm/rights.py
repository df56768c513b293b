"""ACLs under the storm: brokers that call each other by ClusterAction alone, and clients that may use what they need.

I/O: the metadata log. There are no super users. Clients come as User:ANONYMOUS to the listener without a login; brokers
log in to each other at one of their own.
"""

from __future__ import annotations

from collections.abc import Mapping

from stratalog.clients.admin.admin import Admin
from stratalog.replication.metadata.acls import (
    ANONYMOUS,
    CLUSTER_NAME,
    AclBinding,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)

BETWEEN_BROKERS: Mapping[str, str] = {"BROKERS": "SASL_PLAINTEXT"}
"""The further listener, and its protocol."""
_LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SETTINGS: Mapping[str, object] = {
    "inter.broker.listener.name": "BROKERS",
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "sasl.jaas.config": f'{_LOGIN} username="broker" password="brokers secret" user_broker="brokers secret";',
    "authorizer.class.name": "StandardAuthorizer",
}
_OF_CLIENTS = (
    (ResourceType.TOPIC, Operation.READ),
    (ResourceType.TOPIC, Operation.WRITE),
    (ResourceType.GROUP, Operation.READ),
    (ResourceType.TRANSACTIONAL_ID, Operation.WRITE),
)


def give_rights(metadata_root: str) -> None:
    """The ACLs of brokers and clients."""
    clients = [_allow(kind, "*", ANONYMOUS, operation) for kind, operation in _OF_CLIENTS]
    brokers = _allow(ResourceType.CLUSTER, CLUSTER_NAME, "User:broker", Operation.CLUSTER_ACTION)
    Admin(metadata_root).create_acls([brokers, *clients])


def _allow(kind: ResourceType, name: str, who: str, operation: Operation) -> AclBinding:
    return AclBinding(kind, name, PatternType.LITERAL, who, "*", operation, Permission.ALLOW)
