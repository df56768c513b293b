"""How records come in and go out. The public names are in `stratalog`, the front door.

config             producer and consumer configs
serialization      what serializers and deserializers are
records            values that clients return: record metadata, consumed records, futures
bootstrap          a client's cluster: a running one, or the place of its metadata
offset_spec        earliest, latest, by time: the offset to look up
coordinator_calls  calls to the coordinators of groups and transactions
connected_cluster  what calls brokers for a client that has a metadata root
view/       the cluster as storage shows it, without a broker
producer/   records in
consumer/   records out, and a consumer's part in its group
admin/      what an administrator asks
schemas/    schemas of keys and values: wire format, registries, serializers
history/    what clients did and saw, and what a history must not show
spark/      `format("stratalog")`: source, sink, committed view
kafka/      the Kafka protocol's face of one broker
endpoint/   sockets and inboxes in front of it
remote/     brokers of other processes, called at their sockets or through their inboxes
cluster            the embedded cluster with its listeners
"""
