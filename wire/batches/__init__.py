"""Kafka's record batches (magic 2) as bytes and as columns.

headers         headers, bounds and checksums of batches
compression     gzip, snappy, lz4, zstd
columns         the records of batches as columns
record_batches  batches to and from stratalog's values: produced batches, rows of a log
"""
