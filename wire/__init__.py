"""Kafka's bytes: types, messages, frames, record batches. Pure; no broker is known here.

api_keys           the numbers of the APIs
kafka_types        the codec: tables of fields, for frames, coordinator records and the consumer protocol
consumer_protocol  subscriptions and assignments inside JoinGroup and SyncGroup
java_strings       how Java orders and hashes strings
messages/  requests and responses, header and body
batches/   record batches as bytes and columns
"""
