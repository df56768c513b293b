"""What tools print and read, byte for byte as Kafka's tools do.

topics             descriptions, configs and replica assignments
consumer_groups    tables of groups, members and offsets
offset_reset       new offsets of a group: times, plans as CSV, bounds
scram_users        SCRAM credentials as configs of users
quota_entities     quotas of users and clients
reassignment       reassignment files, plans and states
line_reader        lines of the console producer as records
message_formatter  records as lines of the console consumer
dump               lines and names of dump-log
record_decoders    keys and values as dump-log shows them
storage_cost   what the bytes of roots and storage domains cost where they are
"""
