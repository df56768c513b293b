"""One broker: its loop, the replicas it hosts, its inbox.

broker           the loop: follows the metadata log, and has its parts do a turn
loop_state       what these parts share
turn             what is to be done in a turn (etcd's `Ready`)
registration     registrations of the broker, and its session
polls            when the loop looks again, and how long it waits
appends          appends, publications, answers
epoch_starts     first commits of leaders that were elected
isr_changes      progress of followers, and proposals of ISRs (AlterPartition)
calls            the broker's entrance for clients of its process
hosted_replicas  its replicas, brought to their partitions' states (Kafka: `ReplicaManager`)
longest_log      which replica leads when all members of an ISR lost power at once
log_ends         the ends of other replicas' logs, read from their roots for that
leader_and_isr   what a partition's new state asks of a replica: lead, follow, stop
own_root         whether the broker's own root answers writes
inbox            requests of other processes, as objects below the broker's root
"""
