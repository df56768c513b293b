"""One replica of one partition as one Delta table. It knows no broker, no leader and no ISR.

errors, clock        the error tree with Kafka's names and codes; time and identifiers as arguments
records              records, batches, partitions, topics as values
topic_config         topic configs with Kafka's names
producers, transactions  producer state and open transactions: what each commit carries along
objects/             an object store: port, local disk, S3 / Azure / GCS, registers, wakeups
files/               one data file: Parquet, row groups, codecs, cache, damage
delta/               one table: port, commit race, Delta's log and checkpoints
log/                 one partition log: append, copy, truncate, read; segments, time index, leader epochs
upkeep/              merges, retention, compaction, erasure, scrub, deletion
"""
