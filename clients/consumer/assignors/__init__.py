"""Assignors of the classic protocol: the client decides the assignment, as in Kafka.

assignor       the port, orders and racks
registry       assignors by name
range          range and round robin
sticky         sticky and cooperative sticky
sticky_even    sticky, when all members subscribe to the same topics
sticky_uneven  sticky, when they do not
"""
