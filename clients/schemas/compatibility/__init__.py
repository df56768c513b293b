"""Whether a schema may follow an earlier one.

levels       what a new schema is compared with, and in which direction
avro         whether one Avro schema reads what another wrote
json_schema, json_nodes   the same for JSON schemas, read as nodes of one kind each
protobuf     the same for Protobuf files
"""
