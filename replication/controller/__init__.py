"""The controller: pure decisions on the image, and the one loop that commits them.

controller          the loop: broker sessions, leader elections, failover, balance of leaders
controller_counts   what it counts for its metrics
sessions            expiry of broker sessions
brokers             registration, fencing, shutdown, ISR changes
election/           who leads a partition next, and who may
placement           assignment of replicas to brokers
cluster_configs     cluster-wide configs altered, and what follows for eligible leaders
topics              topics created, grown, configured, deleted
domains/            places that replicas share: which there are, and how topics move
topic_deletion      the deletion of a removed topic's replicas, broker by broker
tombstones          ends records of the metadata log that mean nothing any more
history_writer      appends partition states to the history before compaction removes them
reassignment        replicas move to other brokers
producer_id_blocks  producer ids, in blocks
unregistration      a broker that was stopped for good is forgotten
"""
