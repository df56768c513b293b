"""Transactions as folds of `__transaction_state`.

shard            the coordinator of one partition: InitProducerId, EndTxn, time-outs, markers
transaction      one transactional id: states and transitions
records          record schemas
add_partitions   partitions and offsets added to a transaction by leaders and group coordinators
held_batches     the order of a producer's batches while the coordinator is asked about them
"""
