"""`format("stratalog")`: source and sink for Spark, and topics in SQL.

source/       what a query reads: readers, plans of streams, tasks
sink/         what a query writes: rows, files, and their hand-over to leaders
registration  the format in sessions whose workers run another Python
options       options as values, with the Kafka connector's names and errors; `conditions`: its error texts
option_names  every option in one list: taken, refused or ignored
offsets       which partitions a query reads, from where to where
group/        a streaming query in a consumer group
transaction/  a micro-batch as one transaction
sql/          topics and the cluster's state as DataFrames and SQL views
progress/     how far queries are behind, as metrics and as a Delta table
worker        what a Python process of Spark's keeps from call to call
"""
