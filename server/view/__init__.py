"""The cluster as storage shows it, without a broker.

cluster_view     topics, and parts for what else is asked
image_topology   topics, partitions, leaders of an image, wherever it comes from
topology         topics, partitions, leaders, configs: the newest metadata image
watermarks       the readable bounds of partitions, as published
marks            the readable bounds of one partition
domain_tables    those of partitions in storage domains, by their tables
records          committed records
offsets          first and last offsets, and those of timestamps
progress_changes  what moved since a reader last asked, and waiting for more
read_committed   the same under `isolation.level=read_committed`
committed_table  committed records as an Arrow stream, for other engines
shared_read      one read for all threads that want it
leader_progress  what leaders published
partition_logs   the replicas' logs of each partition
change_wait      which partitions moved, and waiting for the next write
"""
