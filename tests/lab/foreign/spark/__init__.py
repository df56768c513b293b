"""Spark's own Kafka source and sink, the connector spark-sql-kafka-0-10.

session      a Spark session with the connector
round_trips  batches and streams, written and read
suite        all of it, as checks
"""
