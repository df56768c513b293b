"""Topics and the cluster's state as DataFrames and SQL views.

read_topic      a batch read with a fixed end, and that end as the start of a stream
registry_columns   keys and values as typed columns, by the schemas of a registry
committed_view  the committed records of a topic
cluster_tables  brokers, partitions, leaders in time and group lag as Arrow tables, without Spark
cluster_views   these as DataFrames and temporary views
"""
