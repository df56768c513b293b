"""What can be asked about a cluster. Each module has a tuple `QUESTIONS`; `clients.console.catalogue` joins them.

overview      the cluster in numbers
topics        topics, their partitions and configs
records       records by place, time and text
groups        groups, their members and lag
transactions  open transactions and what they hold back
access        ACLs, users, quotas
schemas       subjects, versions, what differs, what would fit
brokers       brokers, and partitions that move between them
"""
