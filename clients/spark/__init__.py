"""`format("stratalog")`: source and sink for Spark, and topics in SQL.

source, sink    what Spark finds under the format's name: readers and writers
registration    the format in sessions whose workers run another Python
options         options as values, with the Kafka connector's names and errors; `conditions`: its error texts
option_names    every option in one list: taken, refused or ignored
offsets, plan   which partitions, from where to where; rate limits and input ranges; `planned_files`: their files
filters         what of a WHERE narrows a batch read
stream_reader   where each micro-batch ends; `batch_reader`: batch reads, and the tasks of both
read            what a task reads; `gaps`: which offsets may be missing
sink_rows       rows as records of partitions; `sink_task`: as data files in the leaders' roots
hand_over       files become records: requests to the leaders, until acknowledged
group/          a streaming query in a consumer group
sql/            topics and the cluster's state as DataFrames and SQL views
progress/       how far queries are behind, as metrics and as a Delta table
worker          what a Python process of Spark's keeps from call to call
"""
