"""Kafka's requests and responses as plain values.

produce            records to a leader
hand_over          data files to a leader through its inbox
inbox_frames       Kafka's frames as objects, to a broker's inbox and back
groups             classic groups and committed offsets
group_errors       an error as the response of each group request
consumer_groups    modern groups (KIP-848)
coordinators       FindCoordinator
transactions       producers' and coordinators' requests of transactions
"""
