"""Schemas of keys and values: Confluent's wire format, registries, serializers.

wire_format    the bytes and headers that name a record's schema
"""
