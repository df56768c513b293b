"""Schemas of keys and values: Confluent's wire format, registries, serializers.

wire_format     the bytes and headers that name a record's schema
errors          what registries refuse, with Confluent's codes
schema          a schema, its identity, and the interface of registries
rest_client     a client of registry servers
compatibility/  whether a schema may follow an earlier one
registry_state  the fold of a schema topic, and the records of a change
folded_schemas  look-ups in that fold
schema_folder   a registry without a server, in a topic of the cluster
avro_binary/    Avro's binary form: bytes as values, values before they are bytes
avro_values, protobuf_messages, json_patterns   values and messages of a schema; its regular expressions
serde           what serializers share: configs, subjects, ids on records
avro, json_schema, protobuf   serializers and deserializers
columns/        whole columns of a DataFrame, by Arrow
"""
