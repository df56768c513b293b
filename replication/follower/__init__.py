"""One fetch session and the replicas it follows: copy, truncate, repair, quota."""
