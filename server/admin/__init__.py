"""What an administrator asks, done on the metadata log and the replicas.

admin            topics, configs, ACLs, offsets, elections
configs          configs in force, with their synonyms
loggers          the loggers of this process and their levels
reassignment     partitions moved between brokers
erasure          what replicas did for an erasure
domains          storage domains tried, claimed and made known
log_dirs         sizes and lags of replicas
who_led          the leader under which an offset was written
"""
