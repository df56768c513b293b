"""Questions that storage alone can answer: the past of the cluster, and what its tables hold.

record_way   a record's file, commit, producer, transaction, and each replica's copy
who_led      leaders, ISRs and epochs in time, and failovers
as_of        a topic, a group, the cluster as they were, and what differs now
erasure      requests to erase records, and the proof on every replica
files        live and dead files, commits, store calls
pages        their addresses, and the picture of who led
storage      the cluster's storage, for questions that need it
commits      the commit that brought an offset into a table
past         states of partitions, metadata and lags of the past, read from storage
differences  the cluster as it was, and two states of it compared
timeline     the states of a partition as events
"""
