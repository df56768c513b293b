"""Frames and messages of Kafka's protocol as bytes.

frames       requests and responses, header and body
layouts      kio's classes as tables of the codec
entities     messages of any version from plain values
values       messages to and from the dataclasses of `replication.requests`
schema       the fields of kio's classes
error_codes  Kafka's codes of errors
"""
