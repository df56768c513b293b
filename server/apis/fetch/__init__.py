"""Fetch: the one API of consumers that waits for records.

sessions          incremental fetch sessions (KIP-227)
partition_read    the record batches of one partition
stored_batches    record batches as they lie on storage
reading_process   the process that reads these for a broker, so that old records do not hold up new ones
waiting_fetches   fetches that wait, by partition and by deadline
delayed_fetches   the thread that waits for them
memory            what a client's last fetch found nothing in
family            requests and answers
"""
