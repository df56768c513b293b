"""Who led, from a cluster's metadata root: the log's newest states, the history behind it, checkpoints, torn files."""

from __future__ import annotations

import pytest

from stratalog.jobs.command.terminal import UsageError
from stratalog.jobs.replicas.who_led import answer_line, place
from stratalog.replication.controller.history_writer import HistoryWriter
from stratalog.replication.metadata.history.commits import CHECKPOINT_INTERVAL, HISTORY_DIRECTORY
from stratalog.replication.metadata.records import PartitionRecord, TopicRecord
from stratalog.server.admin.who_led import who_led
from stratalog.server.view.cluster_view import ClusterView
from stratalog.storage.errors import OffsetOutOfRangeError, UnknownTopicOrPartitionError
from stratalog.storage.log.partition_log import PartitionLog
from stratalog.storage.records import NewRecordBatch, TopicPartition, payload_table
from stratalog.storage.topic_config import LogConfig
from tests.replication.images import registered
from tests.replication.memory_stores import METADATA_ROOT, MemoryStores, commit

T0 = TopicPartition("t", 0)
COMMITS = CHECKPOINT_INTERVAL + 3


def state(epoch: int) -> PartitionRecord:
    return PartitionRecord("t", 0, (1, 2), 1 + epoch % 2, epoch, (1, 2), epoch, 1)


def with_history() -> MemoryStores:
    """Epochs 1 to `COMMITS` of t-0, ten records each, and each in a commit of the history; one more in the log."""
    stores = MemoryStores()
    metadata = stores.metadata()
    log = PartitionLog(stores.table("broker", T0), LogConfig(), stores.clock, stores.ids)
    log.exists_or_create("id")
    commit(metadata, TopicRecord("t", "id"), state(0))
    for epoch in range(1, COMMITS + 2):
        log.start_epoch(epoch, as_leader=True)
        log.append([NewRecordBatch(payload_table([(1, b"k", b"v", None)] * 10))], epoch, 0)
        commit(metadata, state(epoch))
        if epoch <= COMMITS:
            HistoryWriter(METADATA_ROOT, stores.ports()).append(registered({1: "broker", 2: "broker"}))
    return stores


def view(stores: MemoryStores) -> ClusterView:
    return ClusterView(METADATA_ROOT, stores=stores, clock=stores.clock, ids=stores.ids)


@pytest.mark.parametrize("epoch", [1, 2, CHECKPOINT_INTERVAL, COMMITS])
def test_every_epoch_of_the_past_is_found(epoch: int) -> None:
    found = who_led(view(with_history()), T0, 10 * epoch - 5)
    assert (found.leader, found.leader_epoch) == (1 + epoch % 2, epoch)
    assert found.unsure_epochs == ((COMMITS + 1,) if epoch == COMMITS else ())


@pytest.mark.parametrize("place", [f"{CHECKPOINT_INTERVAL:020}.checkpoint.parquet", f"{COMMITS - 1:020}.json"])
def test_a_torn_file_hides_nothing_older(place: str) -> None:
    stores = with_history()
    objects = stores.objects(METADATA_ROOT)
    path = f"{HISTORY_DIRECTORY}/_delta_log/{place}"
    objects.put(path, objects.get(path)[:40])
    assert who_led(view(stores), T0, 15).leader_epoch == 2
    writer = HistoryWriter(METADATA_ROOT, stores.ports())
    writer.step(0, {})  # reads where the history ends
    assert writer.end_offset > 0
    assert not objects.exists(path)


def test_what_is_not_known_is_refused() -> None:
    stores = with_history()
    with pytest.raises(UnknownTopicOrPartitionError, match="t-1: neither"):
        who_led(view(stores), TopicPartition("t", 1), 0)
    with pytest.raises(OffsetOutOfRangeError, match="offset -1 is negative"):
        who_led(view(stores), T0, -1)


def test_an_answer_is_one_line() -> None:
    line = answer_line(who_led(view(with_history()), T0, 10 * COMMITS - 5))
    leader = 1 + COMMITS % 2
    assert line == (
        f"t:0:{10 * COMMITS - 5}\tLeader: {leader}\tLeaderEpoch: {COMMITS} (or of {COMMITS + 1}, whose start is not "
        f"known)\tSince: 1970-01-01T00:16:40.000+00:00\tIsr: 1,2\t"
        "Acknowledged: not known, as no leader's log could be read\tTopicId: id"
    )


@pytest.mark.parametrize("text", ["t", "t:0", "t:0:x", ":0:1", "t:0:-1", "t:0:1:2"])
def test_a_place_has_three_parts(text: str) -> None:
    with pytest.raises(UsageError, match="expected TOPIC:PARTITION:OFFSET"):
        place(text)
