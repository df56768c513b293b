"""A cluster for the tests of applications: in this process, in memory, with Kafka listeners.

in_memory_cluster  the cluster, and the failures that a test asks it for
pytest_plugin      the fixtures `kafka_cluster` and `kafka_topic`, which pytest finds by itself
"""
