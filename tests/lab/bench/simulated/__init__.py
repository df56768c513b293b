"""Latency, requests and dollars of a cluster whose roots lie in one simulated bucket."""
