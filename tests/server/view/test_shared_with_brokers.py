"""What a view shares with the brokers of its process: the image, and what they published."""

from __future__ import annotations

import pytest

from stratalog.replication.metadata.log import SharedMetadata
from stratalog.replication.progress.own_registers import OwnRegisters
from stratalog.replication.progress.progress import leader_progress_path
from stratalog.replication.progress.progress_object import ProgressWriter
from stratalog.replication.shared_fold import SharedFold
from stratalog.server.view.cluster_view import ClusterView
from stratalog.storage.errors import StoreUnavailableError
from stratalog.storage.records import TopicPartition
from tests.clients.memory_cluster import ROOT, MemoryCluster

T0 = TopicPartition("t", 0)


class HostedHere(MemoryCluster):
    """Brokers of this process; broker 1 leads t-0."""

    def __init__(self) -> None:
        super().__init__()
        self.shared_metadata: SharedMetadata = SharedFold()
        self.own_registers = OwnRegisters()
        root = self.root_of(1)
        registers = self.own_registers.begin(root, self.stores.objects(root))
        self.writers[1] = ProgressWriter(registers, leader_progress_path(1))
        self.create_topic("t")

    def view(self) -> ClusterView:
        return ClusterView(self, stores=self.stores)


def test_views_of_one_process_hold_one_image() -> None:
    cluster = HostedHere()
    one, other, elsewhere = cluster.view(), cluster.view(), ClusterView(ROOT, stores=cluster.stores)
    assert one.image is other.image
    assert elsewhere.image is not one.image
    assert elsewhere.image == one.image
    cluster.create_topic("u")
    for each in (one, other, elsewhere):
        assert each.topics() == ["t", "u"]
    assert one.image is other.image


def test_a_view_has_an_image_for_as_long_as_it_wants() -> None:
    cluster = HostedHere()
    one, other = cluster.view(), cluster.view()
    kept, version = one.image, one.metadata_version
    cluster.create_topic("u")
    assert other.topics() == ["t", "u"]
    assert one.image is kept
    assert one.metadata_version == version
    assert one.refresh()
    assert one.metadata_version > version
    assert (sorted(kept.topic_ids), sorted(one.image.topic_ids)) == (["t"], ["t", "u"])


def test_what_a_broker_of_this_process_published_is_there_without_a_read(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = HostedHere()
    here, elsewhere = cluster.view(), ClusterView(ROOT, stores=cluster.stores)
    cluster.append(T0, b"a")
    cluster.publish(T0)

    def away(_path: str) -> bytes | None:
        raise StoreUnavailableError("test: the broker's root is away")

    monkeypatch.setattr(cluster.stores.objects(cluster.root_of(1)), "get_register", away)
    marks = here.watermarks.published(T0)
    assert marks is not None
    assert marks.high_watermark == 1
    with pytest.raises(StoreUnavailableError):
        elsewhere.watermarks.published(T0)
