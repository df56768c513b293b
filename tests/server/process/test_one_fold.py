"""One process, one fold: brokers, controller candidates, fetch sessions and views of a process hold the same image."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from stratalog.clients.admin.admin import Admin
from stratalog.replication.metadata import log
from stratalog.replication.progress.progress import leader_progress_path
from stratalog.server.cluster import Cluster
from stratalog.storage.objects.opened import open_store
from tests.waiting import wait_until

BROKERS, TOPICS, PARTITIONS = 3, 4, 10
READERS = 4 * BROKERS
"""Of the metadata log: a loop, a controller candidate, a fetch session and a view of each broker."""


def test_brokers_of_one_process_decode_a_metadata_record_once_and_hold_one_image(
    cluster_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded: Counter[str] = Counter()
    decode = log._records_of

    def counted(rows: Any) -> Any:
        records = decode(rows)
        decoded.update(record.key for record in records)
        return records

    monkeypatch.setattr(log, "_records_of", counted)
    settings = {"listeners": "PLAINTEXT://localhost:0"}
    with Cluster.start(cluster_root, brokers=BROKERS, fetcher="thread", config=settings) as cluster:
        admin = Admin(cluster)
        for number in range(TOPICS):
            admin.create_topic(f"t{number}", PARTITIONS, BROKERS)
        running = cluster._host.running.values()
        parts = [part.metadata for each in running for part in (each.broker, each.controller)]
        wait_until(lambda: len({id(part.image) for part in parts}) == 1, "brokers and controllers hold one image")
        admin.list_topics()
        wait_until(lambda: admin._view.refresh() or admin._view.image is parts[0].image, "and so does a view")
        assert len(admin._view.image.partitions) == TOPICS * PARTITIONS
        once = admin._view.metadata.log.log_end_offset
        assert once <= sum(decoded.values()) < READERS * once // 3, "some parts decode what others do at that moment"


def test_a_view_of_this_process_has_what_a_broker_published_without_a_read(cluster_root: Path) -> None:
    with Cluster.start(cluster_root, brokers=1, fetcher="thread") as cluster:
        Admin(cluster).create_topic("t", 1, 1)
        broker = cluster.broker(1)
        path = leader_progress_path(broker.broker_epoch)
        store = open_store(broker.root)
        wait_until(lambda: cluster.own_registers.get(broker.root, path) == store.get_register(path), "both are there")
        assert store.get_register(path)
