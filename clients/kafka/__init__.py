"""The Kafka protocol's face of one broker.

protocol/  frames and messages as bytes
batches/   Kafka's record batches as bytes and columns
request/   one request on its way, and the broker it is sent to
apis/      one file an API family
quotas/    how much clients may use, and how long they wait
handler    from a request frame to its response frame
"""
