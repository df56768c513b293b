"""A topic as a typed Delta table: records become rows, what does not fit is kept and replayed.

config        settings, and the mode that follows from the topic
evolution     new columns and wider types: what a table needs for a schema
predicates    the rows of tables that an erasure means
reading       plans of schemas, and batches read by them in tasks
missing_schemas  what records name and the registry lacks, and when it is asked again
erasure       which erasures are due in a table, and the proof
checkpoint    how far a query is
sessions      sessions of typed tables, classic and of Spark Connect, and the files that they see
delta_table   one Delta table: idempotent writes, evolution, upkeep
json_checks   JSON texts before Spark reads them
values        records as rows, the table grown for them before
batches       a batch in the table and its dead letters, each exactly once
replay        dead letters read again
upkeep        erasures, TTL, OPTIMIZE and VACUUM between batches
typed_table   `TypedTable`: all of it as one streaming query
"""
