"""What keeps a log small and sound.

upkeep, chore, chores   the turns of one log's chores; the chores that need no file of their own
merge_plan, merging     small files become large ones
retention               `retention.ms`, `retention.bytes`, delete-records
cleaner, compaction     Kafka's LogCleaner: the last record of each key
cleaned_transactions    control batches and aborted records under compaction
erase, erasure          removal of records that match a predicate
append_pause            how long appends wait when upkeep is behind
"""
