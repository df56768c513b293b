"""One Delta table: the port, the commit race, Delta's log and checkpoints.

table             the port: what a partition log needs of a table
delta_table       the table on an object store
commit_race       the decision of one commit attempt: committed or conflict
commits           `_delta_log` of one table on storage
newest            where a fold begins, and what the checkpoint pointer names
commit_json       one commit as Delta's JSON lines
snapshot          the fold of commits into a snapshot
tail_recovery     what is cut off after a power loss
shared_tail       the same of a table that several brokers share
checkpoint        Delta's checkpoints
plain_log         the log of a table of rows by day, beside the partitions
removed           objects that left the log, until they are deleted
"""
