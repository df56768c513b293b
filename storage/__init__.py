"""One replica of one partition as one Delta table. Nothing here knows of brokers, leaders or the ISR.

errors        the error tree with Kafka's names and codes
clock         time and identifiers as arguments
cadence       pauses and bounds: how they are computed, and the table of this room's
config_def    what a config is: type, range, default, documentation (Kafka: `ConfigDef`)
log_lines     loggers whose records are one line each
step_times    how long each step of something took, for a line of the log
extras        packages that only an extra brings
records       records and batches, and the schema of a data file
topic_config  topic configs with Kafka's names
layered_map   an immutable mapping with versions that cost little
producers     producer state: epochs, sequences, sinks; each commit carries its changes
transactions  open and aborted transactions: a part of producer state
metering/     calls to stores by purpose, prices, costs
objects/      an object store: port, local disk, S3 / Azure / GCS, registers, wakeups
files/        one data file: Parquet, row groups, codecs, cache, damage
delta/        one table: port, commit race, Delta's log and checkpoints
log/          one partition log: append, copy, truncate, read; segments, time index, leader epochs
upkeep/       merges, retention, compaction, erasure, scrub, deletion
"""
