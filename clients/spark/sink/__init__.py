"""The Spark sink.

sink       what Spark finds under the format's name to write with
batches    what becomes of a batch that Spark runs, again or for the first time
rows       rows as records of partitions
task       rows as data files in the leaders' roots
hand_over  files become records: requests to the leaders, until acknowledged
"""
