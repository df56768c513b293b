"""The cluster as storage shows it, without a broker.

cluster_view     topics, leaders, high watermarks, committed records
read_committed   the same under `isolation.level=read_committed`
committed_table  committed records as an Arrow stream, for other engines
shared_read      one read for all threads that want it
leader_progress  what leaders published
partition_logs   the replicas' logs of each partition
news             which partitions moved, and waiting for the next write
shared_news      one watcher for many consumers of a process
"""
