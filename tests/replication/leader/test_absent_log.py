"""A leader without a table reports under which state it looked, and looks again under a newer one."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from stratalog.replication.controller.brokers import OfflineReplica
from stratalog.replication.metadata.records import ProducerIdsRecord
from stratalog.replication.progress.progress import ReplicaProgress, leader_progress_path
from stratalog.replication.progress.progress_object import ProgressWriter
from stratalog.storage.errors import LogLostError
from stratalog.storage.records import IdentifiedPartition
from tests.replication.leader.test_damaged_leader import TP, Leading


def publish(leading: Leading, log_end: int, unclean: int = 0) -> None:
    writer = ProgressWriter(leading.stores.objects(str(leading.root)), leader_progress_path(1))
    writer.update([ReplicaProgress(TP, 0, log_end, 0, topic_id="id", unclean=unclean)])
    writer.publish()


@pytest.mark.parametrize("published_end", [0, 3])
def test_a_leader_without_a_table_reports_under_which_state_it_looked(tmp_path: Path, published_end: int) -> None:
    leading = Leading(tmp_path)
    publish(leading, published_end)
    shutil.rmtree(tmp_path / "t-0")
    replica = leading.lead(replace(leading.state, leader_epoch=1, partition_epoch=1))
    assert isinstance(replica.failure, LogLostError)
    assert leading.hosted.offline_replicas() == [OfflineReplica(IdentifiedPartition("id", TP), 1, is_absent=True)]


@pytest.mark.parametrize(
    ("published", "unclean", "leads"),
    [
        pytest.param((0, 0), 0, True, id="it published an empty log only"),
        pytest.param((3, 0), 0, False, id="it published records"),
        pytest.param((3, 0), 1, True, id="before an unclean election"),
        pytest.param((3, 1), 1, False, id="after the unclean election"),
    ],
)
def test_when_the_others_have_left_the_isr_it_looks_again_in_the_same_epoch(
    tmp_path: Path, published: tuple[int, int], unclean: int, leads: bool
) -> None:
    leading = Leading(tmp_path)
    publish(leading, *published)
    shutil.rmtree(tmp_path / "t-0")
    first = replace(leading.state, leader_epoch=1, partition_epoch=1, unclean=unclean)
    assert leading.lead(first).partition is None
    replica = leading.lead(first.changed(isr=(1,), bump_leader_epoch=False))
    assert (replica.partition is not None) == leads
    assert [each.partition_epoch for each in leading.hosted.offline_replicas()] == ([] if leads else [2])


def test_alone_in_a_later_epoch_it_leads_what_never_had_records(tmp_path: Path) -> None:
    leading = Leading(tmp_path)
    shutil.rmtree(tmp_path / "t-0")
    leading.lead(replace(leading.state, leader_epoch=1, partition_epoch=1))
    replica = leading.lead(replace(leading.state, isr=(1,), leader_epoch=2, partition_epoch=2))
    assert replica.partition is not None
    assert leading.hosted.offline_replicas() == []


def test_a_broker_makes_a_table_with_the_first_producer_id_that_nobody_has(tmp_path: Path) -> None:
    leading = Leading(tmp_path)
    shutil.rmtree(tmp_path / "t-0")
    leading.image = leading.image.fold(ProducerIdsRecord(1, 3_000))
    leading.lead(replace(leading.state, isr=(1,), leader_epoch=1, partition_epoch=1))
    assert leading.leader.log.state.producers_from == 3_000
