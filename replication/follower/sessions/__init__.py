"""How fetch sessions run, one after the other, each in its own thread or micro-batch.

runner         keeps sessions running: in threads, or (`replication/spark/fetch.py`) as micro-batches
fetch_place    where sessions run: on Spark, or in threads while Spark cannot run them
fetch_session  one session: its turns, and how two sessions of a fetcher overlap
heartbeats     how often sessions beat, and look at each other
needed         whether a broker needs sessions
turn_stores    a session's stores: calls to other brokers' roots give up its turn
"""
