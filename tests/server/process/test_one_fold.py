"""One process, one fold: brokers, controller candidates, fetch sessions and views of a process hold the same image."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from stratalog.clients.admin.admin import Admin
from stratalog.replication.metadata import log
from stratalog.replication.metadata.records import MetadataRecord
from stratalog.replication.progress.progress import leader_progress_path
from stratalog.server.cluster import Cluster
from stratalog.server.view.cluster_view import ClusterView
from stratalog.storage.objects.opened import open_store
from tests.waiting import wait_until

BROKERS, TOPICS, PARTITIONS = 3, 4, 10
READERS = 4 * BROKERS
"""Of the metadata log: a loop, a controller candidate, a fetch session and a view of each broker."""


def test_brokers_of_one_process_decode_a_metadata_record_once_and_hold_one_image(
    cluster_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded: Counter[str] = Counter()
    decode = log.record_from_json

    def counted(value: bytes) -> MetadataRecord:
        record = decode(value)
        decoded[record.key] += 1
        return record

    monkeypatch.setattr(log, "record_from_json", counted)
    settings = {"listeners": "PLAINTEXT://localhost:0"}
    with Cluster.start(cluster_root, brokers=BROKERS, fetcher="thread", config=settings) as cluster:
        admin = Admin(cluster)
        for number in range(TOPICS):
            admin.create_topic(f"t{number}", PARTITIONS, BROKERS)
        brokers, view = [cluster.broker(broker_id) for broker_id in cluster.brokers()], ClusterView(cluster)
        wait_until(lambda: len({id(each.metadata.image) for each in brokers}) == 1, "brokers hold one image")
        wait_until(lambda: view.refresh() or view.image is brokers[0].metadata.image, "and so does a view")
        assert len(view.image.partitions) == TOPICS * PARTITIONS
        once = view.metadata.log.log_end_offset
        assert once <= sum(decoded.values()) < READERS * once // 3, "some parts decode what others do at that moment"


def test_a_view_of_this_process_has_what_a_broker_published_without_a_read(cluster_root: Path) -> None:
    with Cluster.start(cluster_root, brokers=1, fetcher="thread") as cluster:
        Admin(cluster).create_topic("t", 1, 1)
        broker = cluster.broker(1)
        path = leader_progress_path(broker.broker_epoch)
        store = open_store(broker.root)
        wait_until(lambda: cluster.own_registers.get(broker.root, path) == store.get_register(path), "both are there")
        assert store.get_register(path)
