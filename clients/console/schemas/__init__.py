"""Schemas as the console knows them: which registry, what of it a user sees, and records read by it.

avro_json   Avro payloads as JSON, bounded
payloads    payloads of any schema as JSON text, bounded
topic       the schemas of a topic, read only
known       the registry of a cluster, and what of it a user sees
decoded     keys and values of records, read by their schemas
pages       the pages
"""
