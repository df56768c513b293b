"""Brokers as threads and processes: the embedded cluster, one broker's process, what brokers of a process share.

cluster            the embedded cluster: `Cluster.start`
broker_server      a broker in a process of its own; `broker_properties`: what it is started with
broker_host        what the brokers of one process share
fetch_choice       whether fetch sessions run on Spark or in threads
running_broker     one broker's two threads
joined_cluster     the metadata root as brokers find it when they start
text_logs          state-change.log
"""
