"""Topics, their configs and partitions: one file a tool, `strata topics` is `stratalog.jobs.topics.topics`.

topics               create, delete, describe, list and grow topics
configs              describe and alter configs of topics, groups, users and brokers
acls                 add, remove and list ACLs
get_offsets          offsets of partitions by place or time
delete_records       delete records before an offset
delete_where         erase the records that match, and prove it
leader_election      preferred and unclean elections
reassign_partitions  move partitions between brokers
"""
