"""Kafka's requests and responses as plain values."""
