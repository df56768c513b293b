"""One broker: its loop, the replicas it hosts, its inbox."""
