"""Clients that log in: by PLAIN, SCRAM, OAUTHBEARER, or a certificate; what they may do, and what they are refused.

credentials  users, keys, certificates and tokens, and the brokers' settings for them
librdkafka   what librdkafka does with them, by confluent-kafka
java         what Kafka's Java clients do with them, by its tools
go           what Go's clients do with them
suite        all of it, as checks
"""
