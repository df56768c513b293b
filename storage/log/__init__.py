"""One partition log on one table.

partition_log       the log of one replica: append, copy, truncate, replace files
append              admission of a group of batches, before the commit
copy                a follower's copy of its leader's log, truncation, and producer state after either
reader              a log to read: its fold, its records, look-ups by offset and time
rows                rows of data files by absolute offset
state               the fold of commits into the log's state
segments            Kafka's segments and their offset index
time_index          Kafka's time index: offsets by timestamp
leader_epochs       Kafka's LeaderEpochFileCache
flush               what `flush.messages` and `flush.ms` sync
cleaner_checkpoint  the log cleaner's position
"""
