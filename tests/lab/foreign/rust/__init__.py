"""Clients in Rust: rskafka and samsa. Their programs are one crate, built into the environment.

program   builds and runs them
suite     what they do, as checks
security  rskafka logs in

src/influx/    rskafka, InfluxDB's client
src/callisto/  samsa, by Callisto Labs

The crate `kafka` (kafka-rust) is not here: its version 0.10.0 sends requests of Kafka 0.8, and Kafka 4 no longer
serves their versions (KIP-896). rust-rdkafka is librdkafka, which confluent-kafka's checks cover.
"""
