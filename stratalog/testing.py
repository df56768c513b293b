"""What tests of applications use: a cluster in this process, and pytest's fixtures `kafka_cluster` and `kafka_topic`.

    >>> from stratalog.testing import InMemoryCluster
    >>> with InMemoryCluster.start_new(brokers=1) as cluster:  # doctest: +SKIP
    ...     connect(cluster.bootstrap_servers)

The fixtures come with `pip install stratalog`, in a project that has pytest. See docs/testing.md.
"""

from stratalog.clients.testing.in_memory_cluster import SETTINGS, InMemoryCluster

__all__ = ["SETTINGS", "InMemoryCluster"]
