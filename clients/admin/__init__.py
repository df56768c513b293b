"""What an administrator asks.

admin                 the public class: topics, configs, ACLs, offsets, elections
configs               configs in force, with their synonyms
loggers               the loggers of this process and their levels
group_description     a group of either protocol as one value
groups                groups: live through coordinators, or as stored
group_lag             how far a group is behind
transactions          transactions and producers as stored
reassignment          partitions moved between brokers
record_deletion       delete-records requests to leaders
erasure               what replicas did for an erasure
log_dirs              sizes and lags of replicas
replica_verification  replicas compared with each other
replica_comparison    two reads of one range, row by row
who_led               the leader under which an offset was written
metadata_backup       backup and restore of the metadata log
"""
