"""A topic as a typed Delta table: records become rows, what does not fit is kept and replayed.

config       settings, and the mode that follows from the topic
layout       what lies in a table's folder
notes        what a table's query leaves beside the cluster's metadata, so that others find the table
rows/        records as rows, and how the table grows for them
predicates   the rows of tables that an erasure means
erasure      which erasures are due in a table, and the proof
checkpoint   how far a query is
sessions     sessions of typed tables, classic and of Spark Connect, and the files that they see
delta_table  one Delta table: idempotent writes, evolution, upkeep
batches      a batch in the table and its dead letters, each exactly once
replay       dead letters read again
upkeep       erasures, TTL, OPTIMIZE and VACUUM between batches
typed_table  `TypedTable`: all of it as one streaming query
"""
