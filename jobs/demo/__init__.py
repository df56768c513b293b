"""The demo: three brokers, a web log, a broker killed in the middle, a verdict.

__main__  the command: the folder, Spark, the cluster
quick     one run without Spark
run       one run of the full demo: feed, kill, fail over, restart, judge
log       the web log's lines
queries   the streaming queries that feed and count
clients   a producer that measures acknowledgements, a consumer
replicas  a comparison of all replicas
verdict   claims as checked lines
chart     hits and latency as a picture
screen    progress and verdict on the terminal
data/     the web log
"""
