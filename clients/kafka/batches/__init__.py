"""Kafka's record batches (magic 2) as bytes and as columns."""
