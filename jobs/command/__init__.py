"""The command line itself.

flags             a tool's flags and their rules as tables
words             short forms: words without dashes, and the nearest name
tool              a tool: flags, rules, help and body, with one interpreter for all
clusters          which cluster is meant: flag, environment, file
arguments         shared flags: the cluster, its client's properties, timeouts, a place in a log
listen_at         where browsers and agents reach a tool
opened            a cluster as tools use it, by its storage or by its brokers
output            tables as JSON
progress          a bar for what takes long
partition_filter  topics by regular expression, partitions by pattern
properties        Java's .properties files and `name=value` arguments
broker_flags      flags and settings of the programs that run brokers
terminal          exit codes, errors, logging, signals
"""
