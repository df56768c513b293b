"""How far streaming queries are behind their topics, and followers behind their leaders.

offsets_behind  a query's progress as numbers, by the Kafka connector's names
replica_lag     the largest lag of a follower of some topics
listener        what Spark calls: numbers to the metrics port and to a Delta table
"""
