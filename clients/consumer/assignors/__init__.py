"""Assignors of the classic protocol: the client decides the assignment, as in Kafka."""
