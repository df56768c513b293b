"""Structured Streaming as the scheduler of fetch sessions, and the Spark session they run in."""
