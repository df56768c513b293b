"""Requests about transactions.

producers  InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn, TxnOffsetCommit, EndTxn
admin      DescribeProducers, DescribeTransactions, ListTransactions, WriteTxnMarkers
"""
