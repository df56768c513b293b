"""Frames and messages of Kafka's protocol as bytes.

frames       requests and responses, header and body
layouts      kio's classes as tables of the codec
values       messages as plain values
response     what responses have in common, as dataclasses
schema       the fields of kio's classes, and of dataclasses with those of all versions
error_codes  Kafka's codes of errors
"""
