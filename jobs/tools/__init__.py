"""One file a tool: `strata-topics` is `stratalog.jobs.tools.topics`.

topics                   create, delete, describe, list and grow topics
configs                  describe and alter configs of topics and brokers
console_producer         lines of standard input as records
console_consumer         records as lines of standard output
consumer_groups          list, describe, reset and delete groups
transactions             list and describe transactions and producers, find hanging ones
acls                     add, remove and list ACLs
get_offsets              offsets of partitions by place or time
delete_records           delete records before an offset
delete_where             erase the records that match, and prove it
leader_election          preferred and unclean elections
reassign_partitions      move partitions between brokers
log_dirs                 contents of the brokers' log directories
dump_log                 batches and records of a replica's log
replica_verification     compare the replicas of topics
state_change_log_merger  several state-change logs as one
who_led                  the leader under which an offset was written
metadata_backup          back up and restore the metadata log
"""
