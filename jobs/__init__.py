"""Entries for spark-submit and the command line: parse, wire, run. No rule lives here.

broker, cluster   one broker; an embedded cluster
typed_table       a topic as a typed Delta table, and its dead letters
demo/             the demo
tools/            one file a tool; its name is the user's command
command/          flags, terminal, .properties files
text/             what tools print and read, byte for byte Kafka's
"""
