"""One file an API family, named as Kafka's API.

api_versions      ApiVersions
metadata          Metadata, DescribeTopicPartitions, DescribeCluster, DescribeQuorum
produce           Produce
produced_batches  the batches of Produce, within bounds
fetch/            Fetch: one partition, sessions (KIP-227), waiting
list_offsets      ListOffsets, OffsetForLeaderEpoch
topics            CreateTopics, DeleteTopics, CreatePartitions
new_topics        the topics that CreateTopics and Metadata make
awaited_topics    new topics, until their leaders lead
delete_records    DeleteRecords
log_dirs          DescribeLogDirs, AlterReplicaLogDirs
features          UpdateFeatures
configs           DescribeConfigs, AlterConfigs, IncrementalAlterConfigs, ListConfigResources
reassignments     AlterPartitionReassignments, ListPartitionReassignments, UnregisterBroker
elections         ElectLeaders, BrokerHeartbeat
groups/           coordinators of groups, members, committed offsets
transactions/     producers, and administration of transactions
access/           ACLs, SCRAM credentials, SASL
"""
