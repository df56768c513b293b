"""The command line itself.

flags             a tool's flags and their rules as tables, with one interpreter for all tools
arguments         shared flags: the cluster, its client's properties, timeouts, a place in a log
partition_filter  topics by regular expression, partitions by pattern
properties        Java's .properties files and `name=value` arguments
broker_flags      flags and settings of the programs that run brokers
terminal          exit codes, errors, logging, signals
"""
