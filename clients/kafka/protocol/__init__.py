"""Frames and messages of Kafka's protocol as bytes."""
