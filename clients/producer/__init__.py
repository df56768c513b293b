"""Records in: partitioner, accumulator, sender, transactions."""
