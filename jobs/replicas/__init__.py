"""What lies on storage: one file a tool, `strata log-dirs` is `stratalog.jobs.replicas.log_dirs`.

log_dirs                 contents of the brokers' log directories
dump_log                 batches and records of a replica's log
replica_verification     compare the replicas of topics
state_change_log_merger  several state-change logs as one
who_led                  the leader under which an offset was written
metadata                 back up and restore the metadata log, keep storage domains
"""
