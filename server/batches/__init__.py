"""The newest record batches in memory, as bytes that are sent.

tail          the encoded tail: the newest produced batches
read_ahead    batches that were read from storage and not sent yet
batch_memory  the owner of both, and which of it may be given
"""
