"""One Delta table: the port, the commit race, Delta's log and checkpoints.

table          the port: what a partition log needs of a table
delta_table    the table on an object store
memory_table   the same in memory, for rules and simulation
commit_race    the decision of one commit attempt: committed or conflict
commits        the commits of a table as they lie on storage
commit_json    one commit as Delta's JSON lines
commit_json_fast  the twin of it for most commits
snapshot       the fold of commits into what the table holds
checkpoint     Delta's checkpoints
removed        files that commits removed, until they are deleted
"""
