"""How records come in and go out. The public names are in `stratalog`, the front door.

config             producer and consumer configs
serialization      what serializers and deserializers are
client_view        what they need to know of a cluster, from storage or from brokers
records            values that clients return: record metadata, consumed records, futures
coordinator_calls  calls to the coordinators of groups and transactions
connected_cluster  what calls brokers for a client that has a metadata root
producer/      records in
consumer/      records out, and a consumer's part in its group
admin/         groups, transactions and replicas, as an administrator asks for them
wire/          a cluster that is known by its brokers' addresses alone
schemas/       schemas of keys and values: wire format, registries, serializers
spark/         `format("stratalog")`: source, sink, committed view
testing/       a cluster in memory for the tests of applications, and pytest's fixtures
console/       a web application over a cluster
typed_tables/  topics with a schema as Delta tables with columns
console/       a web application over a cluster, and its questions for agents
"""
