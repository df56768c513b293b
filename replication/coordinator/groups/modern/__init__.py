"""Modern groups, in which the coordinator assigns the partitions, heartbeat by heartbeat (KIP-848).

records          record schemas
group            a group, folded: members, epochs, target assignment
member           a member, and its steps towards its target
requests         ConsumerGroupHeartbeat and ConsumerGroupDescribe
heartbeat        one heartbeat: checks, and the records that it makes
sessions         sessions and time-outs of members, and their removal
classic_members  members of the classic protocol in a modern group
topics           topic ids, regular expressions, a hash of the subscribed topics
"""
