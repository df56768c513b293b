"""Kafka's requests and responses.

produce            records to a leader
delete_records     DeleteRecords to a leader
hand_over          data files to a leader through its inbox
inbox_bell         wakes the reader of an inbox on an object store
inbox_frames       Kafka's frames as objects, to a broker's inbox and back
groups             classic groups and committed offsets
consumer_groups    modern groups (KIP-848)
coordinators       FindCoordinator
messages           the API, the response and the refusal of each request to a coordinator
transactions       producers' and coordinators' requests of transactions
"""
