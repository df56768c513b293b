"""The cluster as storage shows it, without a broker.

cluster_view    topics, leaders, high watermarks, committed records
read_committed  the same under `isolation.level=read_committed`
news            which partitions moved, and waiting for the next write
shared_news     one watcher for many consumers of a process
"""
