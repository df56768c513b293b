"""What makes Spark's Python processes start faster on a local master. The product works without this package.

environment    what the JVM's environment has beyond Spark's own; the setting `spark.stratalog.fast.start` turns it off
linked_home    a home for Spark whose workers import pyspark compiled
planners       a launcher that has planners of streaming queries forked
planner_forks  the process that they are forked from
"""
