"""One request on its way, and the broker that it is sent to.

api           connection, call, API; parts of requests and answers
request_log   the parts of a request's time, and the log of requests
endpoint      where brokers are reached
broker        the broker as all families of APIs see it
fair_threads  threads in which clients take turns, and the line of a connection's Produce requests
quick_calls   calls that never wait, and the metadata that they need
coordinators  requests that a coordinator on the broker answers
limits        how much a request may hold, by API
offset_commits  OffsetCommit in pieces
large_requests  large requests under way, and their memory
"""
