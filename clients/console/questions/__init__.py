"""What can be asked about a cluster. Each module has a tuple `QUESTIONS`; `clients.console.catalogue` joins them.

overview      the cluster in numbers
record_way    the way of a record, and each replica's copy
"""
