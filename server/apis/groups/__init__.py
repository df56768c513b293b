"""Requests about consumer groups.

find_coordinator  FindCoordinator
classic           members of classic groups, administration of all groups
modern            ConsumerGroupHeartbeat, ConsumerGroupDescribe (KIP-848)
offsets           OffsetCommit, OffsetFetch, OffsetDelete
"""
