"""Clients in Go: franz-go, sarama and kafka-go. Their programs are one Go module, built into the environment.

program  builds and runs them
suite    what they do, as checks

checks/     what every client goes through
franzgo/    franz-go with kadm
saramago/   sarama
segmentio/  segmentio's kafka-go
"""
