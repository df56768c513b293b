"""Brokers as processes, and how they are called: Kafka's APIs, listeners, inboxes, other brokers.

bootstrap       a cluster as those who call it know it: a running one, or the place of its metadata
offset_spec     earliest, latest, by time: the offset to look up, and what is found
http_redirects  which redirects of HTTP are followed
view/      the cluster as storage shows it, without a broker
metrics/   what a broker shows over HTTP: metrics, health
lag/       how far groups are behind
admin/     what an administrator asks, done: by the admin client and by the APIs
batches/   the newest record batches in memory
audit/     who did what, as records of a topic
request/   one request on its way, and the broker it is sent to
quotas/    how much clients may use, and how long they wait
apis/      one file an API family
handler         from a request frame to its response frame
endpoint/  sockets and inboxes in front of it
remote/    brokers of other processes, called at their sockets or through their inboxes
process/   brokers as threads and processes
cluster         the embedded cluster with its listeners
"""
