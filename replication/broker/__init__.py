"""One broker: its loop, the replicas it hosts, its inbox.

broker           the loop: follows the metadata log, and has its parts do a turn
loop_state       what these parts share
turn             what is to be done in a turn (etcd's `Ready`)
registration     registrations of the broker
session          how it shows that it lives: an object, and beats to the others
polls            when the loop reads again, and how long it waits
appends          appends, publications, answers
isr_changes      progress of followers, and proposals of ISRs (AlterPartition)
calls            the broker's entrance for clients of its process
hosted_replicas  its replicas, brought to their partitions' states (Kafka: `ReplicaManager`)
own_tables       the tables of its root, and what its start finds there (Kafka: `LogManager`)
removals         replicas that left: sealed, then deleted
leadership/      what a broker does before it leads a partition
own_root         whether the broker's own root answers writes
inbox            requests of other processes, as objects below the broker's root
"""
