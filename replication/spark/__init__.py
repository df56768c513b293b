"""Structured Streaming as the scheduler of fetch sessions, and the Spark session they run in.

executors     whether executors have slots for fetch sessions and reach the roots
fetch         the streaming source whose micro-batches are fetch sessions, and the runner that supervises its queries
session       `stratalog_session`: a quiet Spark session with Delta Lake and slots for fetch sessions
worker_error  the Python worker's error in the text of Spark's exception
"""
