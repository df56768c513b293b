"""What the console changes where `--allow-changes` was given. Each module has a tuple `CHANGES`.

change        a change with its form and its preview
topics        topics, their partitions and configs; records that are produced
groups        offsets of groups
access        ACLs and users
partitions    moves of partitions, preferred leaders
settings      configs of all brokers, quotas
typed_tables  dead letters that are put back, tables that are forgotten
"""
