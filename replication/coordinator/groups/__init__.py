"""Consumer groups as folds of `__consumer_offsets`, for the classic protocol and the modern one (KIP-848).

shard                    the coordinator of one partition: dispatch of requests, records and timers; expiry of offsets
table                    what both protocols share: the port of a group, the table of groups, the builder of a decision
committed_offsets        offsets: committed, and in open transactions
records                  record schemas: offsets and classic groups
classic_group            a classic group: members, generation, states
classic_membership       JoinGroup, SyncGroup, Heartbeat, LeaveGroup
classic_rebalance        from one generation to the next
migration                a group with members changes its protocol
modern_records           record schemas: modern groups
modern_group             a modern group, folded: members, epochs, target assignment
modern_member            a member, and its steps towards its target
modern_requests          ConsumerGroupHeartbeat and ConsumerGroupDescribe
modern_heartbeat         one heartbeat: checks, and the records that it makes
modern_sessions          sessions and time-outs of members, and their removal
modern_classic_members   members of the classic protocol in a modern group
modern_topics            topic ids, regular expressions, a hash of the subscribed topics
"""
