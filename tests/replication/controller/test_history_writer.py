"""The history of the metadata: every state of every partition exactly once, before compaction removes it."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from typing import Any

import pyarrow.parquet as pq
import pytest

from stratalog.replication.controller.history_writer import HistoryWriter
from stratalog.replication.metadata.history.commits import HISTORY_DIRECTORY
from stratalog.replication.metadata.history.states import past_states
from stratalog.replication.metadata.history.table import HistoryTable
from stratalog.replication.metadata.image import ClusterImage
from stratalog.replication.metadata.log import METADATA_CONFIG, MetadataLog
from stratalog.replication.metadata.records import (
    PartitionRecord,
    RemoveTopicRecord,
    StorageDomainRecord,
    TopicRecord,
)
from stratalog.storage.clock import RandomIds
from stratalog.storage.log.partition_log import PartitionLog
from stratalog.storage.objects.memory import MemoryStore
from stratalog.storage.records import NewRecordBatch, TopicPartition, payload_table
from stratalog.storage.topic_config import LogConfig
from tests.replication.controller.test_controller import Controlling
from tests.replication.images import registered
from tests.replication.memory_stores import METADATA_ROOT, MemoryStores, commit, create, led_by

DAY_MS = 86_400_000
SMALL_SEGMENTS = LogConfig.from_properties(
    {**METADATA_CONFIG.overrides, "segment.files.max": "4", "min.cleanable.dirty.ratio": "0.1"}
)


def history(objects: MemoryStore) -> list[dict[str, Any]]:
    """The rows that the table's commits name."""
    rows: list[dict[str, Any]] = []
    for meta in objects.list(f"{HISTORY_DIRECTORY}/_delta_log/"):
        if not meta.path.endswith(".json"):
            continue
        for line in objects.get(meta.path).decode().splitlines():
            add = json.loads(line).get("add")
            if add is not None:
                table = pq.read_table(io.BytesIO(objects.get(f"{HISTORY_DIRECTORY}/{add['path']}")))
                rows += [{**row, **add["partitionValues"]} for row in table.to_pylist()]
    return rows


def state(epoch: int, leader: int = 1) -> PartitionRecord:
    return PartitionRecord("t", 0, (1, 2), leader, epoch, (1, 2), epoch, 1)


def commit_states(metadata: MetadataLog, *epochs: int) -> None:
    """Topic t, if it is new, and a commit for each leader epoch of its partition."""
    if "t" not in metadata.image.topic_ids:
        commit(metadata, TopicRecord("t", "id"), state(0))
    for epoch in epochs:
        commit(metadata, state(epoch))


def writer(stores: MemoryStores) -> HistoryWriter:
    found = HistoryWriter(METADATA_ROOT, stores.ports())
    found.step(0, ClusterImage())
    return found


@pytest.fixture(autouse=True)
def _small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stratalog.replication.controller.history_writer.APPEND_RECORDS", 10)


def test_the_controller_compacts_the_metadata_log_behind_its_history() -> None:
    controlling = Controlling()
    controlling.controller.metadata.log.config = controlling.metadata.log.config = SMALL_SEGMENTS
    create(controlling.metadata, "t", led_by(2, replicas=(1, 2)))
    for epoch in range(1, 121):
        commit(controlling.metadata, state(epoch))
        controlling.pass_ms(4_000)
    newcomer = controlling.stores.metadata()
    left = newcomer.refresh()
    controlling.metadata.refresh()
    assert newcomer.image == controlling.metadata.image
    assert len(left) < newcomer.log.log_end_offset / 2
    rows = history(controlling.stores.objects(METADATA_ROOT))
    offsets = [row["metadata_offset"] for row in rows]
    assert sorted(set(offsets)) == sorted(offsets)
    kept = {row["leader_epoch"] for row in rows} | {r.leader_epoch for r in left if isinstance(r, PartitionRecord)}
    assert kept == set(range(121))


def test_nothing_above_the_history_is_compacted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HistoryWriter, "step", lambda *_: None)
    controlling = Controlling()
    controlling.controller.metadata.log.config = controlling.metadata.log.config = SMALL_SEGMENTS
    create(controlling.metadata, "t", led_by(2, replicas=(1, 2)))
    for epoch in range(1, 60):
        commit(controlling.metadata, state(epoch))
        controlling.pass_ms(4_000)
    assert len(controlling.stores.metadata().refresh()) == controlling.metadata.log.log_end_offset


def test_two_controllers_append_each_state_once() -> None:
    stores = MemoryStores()
    metadata = stores.metadata()
    one, other = writer(stores), writer(stores)
    commit_states(metadata, *range(1, 15))
    end_offset = metadata.log.log_end_offset
    table = HistoryTable(stores.objects(METADATA_ROOT), RandomIds())
    one.step(end_offset, ClusterImage())
    assert not table.append({}, end_offset, 0)  # it was opened before the other one appended
    other.step(end_offset, ClusterImage())
    assert one.end_offset == other.end_offset == end_offset
    commit_states(metadata, *range(15, 30))
    for each in (other, one):
        each.step(metadata.log.log_end_offset, ClusterImage())
    rows = history(stores.objects(METADATA_ROOT))
    assert [(row["leader_epoch"], row["topic_id"], row["date"]) for row in rows] == [
        (epoch, "id", "1970-01-01") for epoch in range(30)
    ]


def test_an_append_whose_answer_was_lost_is_not_made_twice() -> None:
    stores = MemoryStores()
    metadata, objects = stores.metadata(), stores.objects(METADATA_ROOT)
    one = writer(stores)
    commit_states(metadata, *range(1, 15))
    HistoryWriter(METADATA_ROOT, stores.ports()).append(ClusterImage())  # its process died before it learned of it
    one.step(metadata.log.log_end_offset, ClusterImage())
    assert one.end_offset == metadata.log.log_end_offset
    assert len(history(objects)) == 15


def test_few_states_wait_for_more_or_for_hours() -> None:
    stores = MemoryStores()
    metadata = stores.metadata()
    one = writer(stores)
    commit_states(metadata, 1)
    one.step(metadata.log.log_end_offset, ClusterImage())
    assert one.end_offset == 0
    stores.clock.now_ms += DAY_MS
    one.step(metadata.log.log_end_offset, ClusterImage())
    assert one.end_offset == 3


def test_a_torn_commit_is_appended_again() -> None:
    stores = MemoryStores()
    metadata, objects = stores.metadata(), stores.objects(METADATA_ROOT)
    commit_states(metadata, *range(1, 15))
    HistoryWriter(METADATA_ROOT, stores.ports()).append(ClusterImage())
    path = objects.list(f"{HISTORY_DIRECTORY}/_delta_log/")[0].path
    objects.put(path, objects.get(path)[:40])
    assert writer(stores).end_offset == 0
    HistoryWriter(METADATA_ROOT, stores.ports()).append(ClusterImage())
    assert len(history(objects)) == 15


def test_epochs_begin_where_the_leaders_table_says() -> None:
    stores = MemoryStores()
    metadata = stores.metadata()
    log = PartitionLog(stores.table("broker-1", TopicPartition("t", 0)), LogConfig(), stores.clock, stores.ids)
    log.exists_or_create("id")
    for epoch in (1, 2, 4):
        log.start_epoch(epoch, as_leader=True)
        log.append([NewRecordBatch(payload_table([(1, b"k", b"v", None)] * 10))], epoch, 0)
    commit_states(metadata, 1, 2, 3, 4)
    commit(metadata, state(5, leader=-1))
    HistoryWriter(METADATA_ROOT, stores.ports()).append(registered({1: "broker-1", 2: "nowhere"}))
    found = {row["leader_epoch"]: row["start_offset"] for row in history(stores.objects(METADATA_ROOT))}
    assert found == {0: None, 1: 0, 2: 10, 3: None, 4: 20, 5: None}


def test_epochs_in_a_storage_domain_begin_where_its_table_says() -> None:
    stores = MemoryStores()
    metadata = stores.metadata()
    log = PartitionLog(stores.table("lake/t.id", TopicPartition("t", 0)), LogConfig(), stores.clock, stores.ids)
    log.exists_or_create("id")
    log.start_epoch(1, as_leader=True)
    commit(metadata, StorageDomainRecord("lake", "lake", durable=True))
    commit(metadata, TopicRecord("t", "id"), replace(state(1), domain="lake"))
    HistoryWriter(METADATA_ROOT, stores.ports()).append(metadata.image)
    assert [row["start_offset"] for row in history(stores.objects(METADATA_ROOT))] == [0]


def test_a_state_has_the_topic_id_of_its_time() -> None:
    records = (TopicRecord("t", "a"), state(1), RemoveTopicRecord("t", "a"), TopicRecord("t", "b"), state(1), state(2))
    found = past_states([(offset, 0, record) for offset, record in enumerate(records)], 1)
    assert [(each.metadata_offset, each.topic_id) for each in found] == [(1, "a"), (4, "b"), (5, "b")]
    assert [each.metadata_offset for each in past_states(enumerate_with_time(records), 5)] == [5]


def enumerate_with_time(records: tuple[Any, ...]) -> list[tuple[int, int, Any]]:
    return [(offset, 0, record) for offset, record in enumerate(records)]
