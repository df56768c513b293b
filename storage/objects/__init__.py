"""An object store: the port and its implementations.

distance     how far a store is, and what follows from that
port         what each store can do, and what only some can; `ObjectMeta`
memory       a dictionary of this process: `memory://<name>/...`
local        a directory of a local disk or mounted volume
store_settings  endpoint, region and credentials that take precedence over the environment
place_settings  the same by place, from a file that is read again when it changes
opened       the store at a URL or path
remote       S3, Azure Blob, GCS through obstore
probe        whether a store creates an object only if it is absent
registers    a small value that is replaced in place
new_file     files of a local disk that get their name when they are complete
sync         how files of a local disk are made durable
together     calls that wait for a store, made at the same time
wakeup       waiting for a write to a place
"""
