"""Consumer groups as folds of `__consumer_offsets`, for the classic protocol and the modern one (KIP-848).

shard              the coordinator of one partition: dispatch of requests, records and timers; expiry of offsets
table              what both protocols share: the port of a group, the table of groups, the builder of a decision
committed_offsets  offsets: committed, and in open transactions
records            record schemas: offsets and classic groups
classic/           groups whose leader among the members assigns
modern/            groups whose coordinator assigns (KIP-848)
migration          a group with members changes its protocol
"""
