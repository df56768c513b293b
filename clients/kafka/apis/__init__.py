"""One file an API family, named as Kafka's API."""
