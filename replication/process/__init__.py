"""Brokers as threads and processes: embedded cluster, broker server, metrics port, text logs."""
