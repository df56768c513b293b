"""Kafka's own clients and tools in Java, as Maven has them.

ToolServer.java     runs mains of tools one after the other in one JVM
jvm                 that JVM
Clients.java        what the clients do: `Clients what bootstrap topic ...`
clients             that, as checks
topics              kafka-topics, -configs, -log-dirs, -reassign-partitions, -leader-election
records             kafka-console-*, -verifiable-*, -get-offsets, -delete-records, -*-perf-test, -e2e-latency
groups              kafka-consumer-groups, -groups
cluster             kafka-acls, -transactions, -features, -metadata-quorum, -broker-api-versions, -cluster
WordCount.java, streams  Kafka Streams
connect             Kafka Connect
programs            JVMs that run beside each other and are killed
suite               all of it, as checks
"""
