"""Hosts coordinator shards on a broker: fold, decide, append, answer.

runtime            the shards of a broker: requests to the right one, elections, timers
hosted_shard       one shard: its fold, its decisions, its waiting answers
request_sizes      the least that a request adds to the log, for a refusal before the decision
writes             the appends of decisions, and what becomes of them
remote_appends     appends to other partitions of the cluster, such as transaction markers
find_coordinator   FindCoordinator
kinds              which state machine belongs to which internal topic
"""
