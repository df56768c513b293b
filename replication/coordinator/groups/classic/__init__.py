"""Classic groups, in which one of the members assigns the partitions (Kafka: `ClassicGroup`).

group       a group: members, generation, states
membership  JoinGroup, SyncGroup, Heartbeat, LeaveGroup
rebalance   from one generation to the next
"""
