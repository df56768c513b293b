"""Records, and who reads and writes them: one file a tool, `strata produce` is `stratalog.jobs.records.produce`.

produce       lines of standard input as records
consume       records as lines of standard output
groups        list, describe, reset and delete groups
lag           how far groups are behind
transactions  list and describe transactions and producers, find hanging ones
"""
