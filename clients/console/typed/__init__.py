"""Typed tables of the cluster's topics: state, dead letters, erasures, replay. Spark is needed for a replay alone.

delta      a Delta table by its folder
known      the tables that the console knows, as far as a user may see them
proof      what tables hold of an erasure
questions  what can be asked
replaying  a replay in a process of its own, which has Spark
pages      the pages
"""
