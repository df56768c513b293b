"""What leaders and followers both do with a replica.

load           whether there is more urgent work than large merges
upkeep_rounds  upkeep of many replicas, a little at a time
deletions      what brokers delete of topics that there are no more
left_tables    tables in storage domains that partitions have left
removal        seal and delete a replica that is not assigned any more, or whose topic was deleted
"""
