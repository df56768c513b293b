"""A process with an embedded cluster that is to be killed: reads all there is, then produces until it dies.

    python -m tests.lab.real.processes.killed_process <cluster folder> <history file> <name> <thread | spark> <topic>
    <partitions>

It records what it polled before it produces anything, so that the history shows what survived the previous
kill. With `--check` behind it produces a little, reads again and stops in order.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from stratalog.clients.admin.admin import Admin
from stratalog.server.admin.admin import NewTopic
from stratalog.server.cluster import Cluster
from tests.lab.real.harness.history import ACK, History
from tests.lab.real.harness.parties import Reader, Writer
from tests.waiting import wait_until

SETTINGS = {"broker.session.timeout.ms": 2_000, "broker.heartbeat.interval.ms": 300}
CHECK_ACKS = 200
READY = "ready"


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("path", type=Path)
    parser.add_argument("history", type=Path)
    parser.add_argument("name")
    parser.add_argument("fetcher")
    parser.add_argument("topic")
    parser.add_argument("partitions", type=int)
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args(arguments)
    history = History(args.history)
    with Cluster.start(args.path, fetcher=args.fetcher, config=SETTINGS) as cluster:
        create_topic(cluster, args.topic, args.partitions)
        Reader(cluster, args.topic, history, f"{args.name}-first").start().stop()
        print(READY, flush=True)
        with Writer(cluster, args.topic, history, args.name, pause_s=0.01):
            wait_until(lambda: args.check and history.counts[ACK] > CHECK_ACKS, "acknowledgements, or the end", 600)
        Reader(cluster, args.topic, history, f"{args.name}-last").start().stop()


def create_topic(cluster: Cluster, topic: str, partitions: int) -> None:
    """Create the topic, unless the cluster was killed before: then it has it, and its leaders start on their own."""
    admin = Admin(cluster)
    if topic in admin.list_topics():
        admin.await_leaders(topic)
    else:
        admin.create_topics([NewTopic(topic, partitions, 3, {"min.insync.replicas": 2})])


if __name__ == "__main__":
    main(sys.argv[1:])
