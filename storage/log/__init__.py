"""One partition log on one table.

partition_log       the log of one replica: append, copy, truncate, read
append              the checks of an append and the commit that it makes
copy                what a follower copies from its leader, and truncation
reader, rows        reading without writing; rows out of data files
state               the fold of commits into the log's state
segments            Kafka's segments and their offset index
time_index          offsets by timestamp
leader_epochs       Kafka's LeaderEpochFileCache
flush               what `flush.messages` and `flush.ms` sync
cleaner_checkpoint  how far the log cleaner got
"""
