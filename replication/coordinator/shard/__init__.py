"""The port between a coordinator's state machine and its runtime.

shard    requests, decisions, records, effects
timers   timers of a shard by key
metrics  what coordinators count
"""
