"""A broker that follows a leader again, after it had nothing to fetch from it for a while."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from stratalog.clients.admin.admin import Admin
from stratalog.clients.producer.producer import Producer
from stratalog.replication import cadence
from stratalog.server.cluster import Cluster
from tests.waiting import wait_until

NEVER_MS = 10**9


def test_a_leader_whose_only_topic_was_deleted_wakes_followers_of_the_next_topic(
    cluster_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No follower leaves the ISR here and none looks by itself: the records are committed once a write wakes it."""
    monkeypatch.setattr(cadence, "RESCAN", replace(cadence.RESCAN, watched_ms=NEVER_MS))
    settings = {"replica.lag.time.max.ms": NEVER_MS}
    with Cluster.start(cluster_root, brokers=2, fetcher="thread", config=settings) as cluster:
        admin = Admin(cluster)
        for topic in ("first", "second", "third"):
            admin.create_topic(topic, 2, 2)
            with Producer(cluster, acks="all") as producer:
                for partition in (0, 1):
                    for number in range(3):
                        producer.send(topic, f"{number}", partition=partition).result(10)
            admin.delete_topics([topic])
            wait_until(lambda gone=topic: gone not in admin.list_topics(), f"{topic} is deleted")
