"""One fetch session and the replicas it follows: copy, truncate, repair, quota.

sessions/      how sessions run: their turns, on Spark or in threads
partitions     what a fetcher follows, folded; it outlives its sessions
plan           what is copied next: from which leader, which partitions, how much, and what not now
followed_metadata  when a fetcher reads the metadata log
leader_fetcher  what is fetched from one leader, and by whom; a copy, and what became of it
held_records   which replicas are known to hold records, should the log of one be absent
replica        one followed replica: truncation check, copy, commit
repair         damage: copy again, or report to the leader
quota          KIP-73's rates for replicas that are out of sync
metrics        how long copies take, and why a broker fetches in threads
"""
