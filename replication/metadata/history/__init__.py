"""The states that partitions had before the metadata log was compacted, in a Delta table of their own.

states   the rows of the table
commits  the table's commits, checkpoints and statistics
table    the table, appended exactly once and read
leaders  the leader under which an offset was written
"""
