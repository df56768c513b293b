"""Upkeep keeps a log small and sound.

upkeep                one log's chores, one bounded piece of work at a time
chore                 a chore's interface, and what it decides on
chores                small chores: flush, checkpoints, deletion, vacuum, scrub
merge_plan            which small files are merged into one
merging               the chore that merges them, or copies the leader's merges
retention             the chore that removes expired segments
retention_rules       Kafka's rules of retention: which segments expire
compaction            Kafka's rules of compaction: which records stay
cleaned_transactions  the same for aborted records and markers
cleaner               Kafka's LogCleaner: the chore that compacts
erase                 requests to erase records, and their predicates
erasure               the chore that erases
append_pause          how long an append waits when upkeep is overdue
"""
