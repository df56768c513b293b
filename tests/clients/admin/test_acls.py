"""The admin client's ACLs: committed to the metadata log, so every other view of the cluster folds them."""

from __future__ import annotations

from stratalog.clients.admin.admin import Admin
from stratalog.replication.metadata.acls import AclBinding, AclFilter, Operation, PatternType, Permission, ResourceType
from stratalog.server.view.cluster_view import ClusterView
from tests.clients.memory_cluster import ROOT, MemoryCluster


def test_bindings_are_seen_by_other_clients_until_they_are_deleted() -> None:
    cluster = MemoryCluster()
    made, other = (Admin(ROOT, view=ClusterView(ROOT, stores=cluster.stores)) for _ in range(2))
    bindings = [
        AclBinding(ResourceType.TOPIC, name, PatternType.LITERAL, "User:bob", "*", Operation.READ, Permission.ALLOW)
        for name in ("a", "b")
    ]
    made.create_acls(bindings)
    made.create_acls(bindings[:1])
    assert other.describe_acls() == tuple(bindings)
    assert other.describe_acls(AclFilter(resource_name="b")) == (bindings[1],)
    assert other.delete_acls([AclFilter(resource_name="a")]) == (bindings[0],)
    assert made.describe_acls() == (bindings[1],)
