"""The peer: a real Apache Kafka of three brokers, fetched by Maven, on loopback and below a temporary folder."""
