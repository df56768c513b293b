"""A process that appends to a topic, and records in a file what it sent and what was acknowledged.

For a trace of its system calls: python -m tests.lab.real.processes.flushed_appends <cluster folder> <file> <messages>
"""

from __future__ import annotations

import os
import sys

from stratalog.clients.admin.admin import Admin
from stratalog.clients.producer.producer import Producer
from stratalog.server.admin.admin import NewTopic
from stratalog.server.cluster import Cluster

APPENDS = 3


def main(folder: str, record: str, flush_messages: str) -> None:
    descriptor = os.open(record, os.O_WRONLY | os.O_CREAT)
    with Cluster.start(folder, brokers=1, fetcher="thread") as cluster:
        Admin(cluster).create_topics([NewTopic("orders", 1, 1, {"flush.messages": flush_messages})])
        with Producer(cluster, acks="all") as producer:
            producer.send("orders", "its first leader epoch begins").result(20)
            for i in range(APPENDS):
                os.write(descriptor, b"sent %d\n" % i)
                producer.send("orders", f"record {i}").result(20)
                os.write(descriptor, b"acknowledged %d\n" % i)


if __name__ == "__main__":
    main(*sys.argv[1:])
