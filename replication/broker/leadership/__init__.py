"""What a broker does before it leads a partition.

leader_and_isr  what a partition's new state asks of a replica: lead, follow, stop
epoch_starts    first commits of leaders that were elected
log_ends        the ends of other replicas' logs, read from their roots before a broker leads alone
longest_log     which replica leads when all members of an ISR lost power at once
domain_returns  replicas in storage domains that were out of reach
"""
