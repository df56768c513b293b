"""One broker: its loop, the replicas it hosts, its inbox.

broker           the loop: follows the metadata log, appends, publishes, answers
turn             one turn of the loop as a value (etcd's `Ready`)
calls            the broker's entrance for clients of its process
hosted_replicas  its replicas, brought to their partitions' states (Kafka: `ReplicaManager`)
longest_log      which replica leads when all members of an ISR lost power at once
log_ends         the ends of other replicas' logs, read from their roots for that
leader_and_isr   what a partition's new state asks of a replica: lead, follow, stop
own_root         whether the broker's own root answers writes
inbox            requests of other processes, as objects below the broker's root
"""
