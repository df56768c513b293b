"""Coordinators: state machines that are folds of an internal topic's partition.

shard/            the port between a state machine and its runtime
server_assignors  of modern groups: uniform, range
topic_matches     what regular expressions of their members match, beside the loop
groups/           consumer groups: `__consumer_offsets`
transactions/     transactions: `__transaction_state`
runtime/          hosts shards on a broker: fold, decide, append, answer
"""
