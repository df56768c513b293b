"""A cluster whose storage domain is a mount that becomes read-only for a while; run by test_full_disk in a mount
namespace of its own.

Prints its observations as one line of JSON.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from stratalog.clients.admin.admin import Admin
from stratalog.clients.consumer.consumer import Consumer
from stratalog.clients.producer.producer import Producer
from stratalog.replication.metadata.records import PartitionRecord
from stratalog.server.admin.admin import NewTopic
from stratalog.server.cluster import Cluster
from stratalog.server.view.cluster_view import ClusterView
from stratalog.storage.errors import StratalogError
from stratalog.storage.records import TopicPartition
from tests.waiting import wait_until

TP = TopicPartition("t", 0)
RECORDS = 20


def remounted(place: Path, how: str) -> bool:
    """Whether the mount is so now: it is not while a file there is open for writing."""
    command = ["mount", "-o", f"remount,{how}", str(place)]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def run(path: Path) -> dict[str, object]:
    lake = path / "lake"
    lake.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=100m", "tmpfs", str(lake)], check=True)
    with Cluster.start(path / "cluster", fetcher="thread") as cluster:
        admin, view = Admin(cluster), ClusterView(cluster)
        admin.add_storage_domain("lake", str(lake), durable=True)
        admin.create_topics([NewTopic("t", 1, 3, {"stratalog.storage.domain": "lake"})])

        def state() -> PartitionRecord:
            view.refresh()
            return view.image.partition(TP)

        with Producer(cluster, acks="all", delivery_timeout_ms=240_000) as producer:
            before = [producer.send("t", b"%d" % n, partition=0).result(60).offset for n in range(RECORDS)]
            wait_until(lambda: remounted(lake, "ro"), "read-only")
            waiting = [producer.send("t", b"%d" % n, partition=0) for n in range(RECORDS, 2 * RECORDS)]
            wait_until(lambda: set(state().offline) == {1, 2, 3}, "each has given way", 120)
            answered = sum(each.done() for each in waiting)
            wait_until(lambda: remounted(lake, "rw"), "writable")
            after = [each.result(120).offset for each in waiting]
        wait_until(lambda: len(state().isr) == 3 and not state().offline, "all are back", 60)
        with Consumer(cluster, auto_offset_reset="earliest") as consumer:
            consumer.assign([TP])
            got: list[bytes | None] = []
            wait_until(lambda: bool(got.extend(r.value for r in consumer.poll(100))) or len(got) >= 2 * RECORDS, "read")
        return {
            "answered_meanwhile": answered,
            "offsets": before + after == list(range(2 * RECORDS)),
            "all_read": got == [b"%d" % n for n in range(2 * RECORDS)],
            "lost": list(state().lost),
        }


if __name__ == "__main__":
    try:
        seen = run(Path(sys.argv[1]))
    except StratalogError as error:
        sys.exit(f"{error.name}: {error}")
    print(json.dumps(seen))
