"""Entries for spark-submit and the command line: parse, wire, run. No rule lives here.

strata            the command: a subcommand for each tool
broker, cluster   one broker; an embedded cluster
console, mcp      a cluster in a browser; the same questions for agents
console_port      the console beside brokers, as a process of its own
typed_table       a topic as a typed Delta table, and its dead letters
demo/             the demo
topics/, records/, replicas/  one file a tool; its name is the subcommand
completion/, completion_table  completions of shells
command/          flags, words, terminal, .properties files, the cluster's name
text/             what tools print and read, byte for byte Kafka's
"""
