"""What an administrator asks: of the metadata log, which is in `server.admin`, of leaders, groups and replicas.

cluster_admin         what tools ask of a cluster, be it known by its storage or by its brokers
admin                 the public class: topics, configs, ACLs, offsets, elections, deletion of records
record_deletion       requests to delete records, to the leaders
group_description     a group of either protocol as one value
groups                groups: live through coordinators, or as stored
group_lag             how far a group is behind
transactions          transactions and producers as stored
replica_verification  replicas compared with each other
replica_comparison    two reads of one range, row by row
metadata_backup       backup and restore of the metadata log
"""
