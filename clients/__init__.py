"""How records come in and go out. The public names are in `stratalog`, the front door.

config, records, bootstrap, offset_spec, coordinator_calls
view/       the cluster as storage shows it, without a broker
producer/   records in
consumer/   records out, and a consumer's part in its group
admin/      what an administrator asks
history/    what clients did and saw, and what a history must not show
spark/      `format("stratalog")`: source, sink, committed view
kafka/      the Kafka protocol's face of one broker
"""
