"""An object store: the port and its implementations.

port         what a store can do; `ObjectMeta`
local        a folder of a local or network disk
remote       S3, Azure Blob, GCS through obstore
memory       a dictionary, for rules and simulation
registers    a small value that is replaced in place
new_file     files of a local disk that get their name when they are complete
sync         how files of a local disk are made durable
wakeup       waiting for a write to a place
"""
