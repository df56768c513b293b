"""What leaders and followers both do with a replica.

load           whether there is more urgent work than large merges
upkeep_rounds  upkeep of many replicas, a little at a time
removal        seal and delete a replica that is not assigned any more, or whose topic was deleted
"""
