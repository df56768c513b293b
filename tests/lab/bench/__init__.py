"""Side by side with Apache Kafka: `make bench` measures both in one run and writes docs/BENCHMARKS.md."""
