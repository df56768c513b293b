"""What is kept of who did what: events as records of a topic.

events     what an event is, and which requests are events
audit_log  the queue of a broker's events, and the thread that appends them
"""
