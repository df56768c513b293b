"""Clients that others wrote, unchanged, against clusters in processes of their own: `make clients`, docs/CLIENTS.md.

served    a cluster for them, as three broker processes or as one process
checks    one thing that a client does, and its outcome
report    outcomes as docs/CLIENTS.md and docs/clients.json
run       `python -m tests.lab.foreign.run`: every check against both forms
python/   clients in Python
security/ clients that log in
java/     Kafka's clients and tools in Java, Kafka Streams, Kafka Connect
go/       clients in Go
node/     clients in JavaScript
rust/     clients in Rust
spark/    Spark's own Kafka source and sink
"""
