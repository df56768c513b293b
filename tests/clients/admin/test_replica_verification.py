"""Replicas on a real disk: a planted bit is found with partition, offset and replicas; what is legal is no finding."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from stratalog.clients.admin.replica_comparison import UnmatchedOffset, UnmatchedRecord
from stratalog.clients.admin.replica_verification import PartitionVerified, ReplicaVerification, UnreadableReplica
from stratalog.jobs.replicas.replica_verification import main
from stratalog.replication.metadata.records import EraseRecord
from stratalog.server.offset_spec import OffsetSpec
from stratalog.storage.clock import RandomIds
from stratalog.storage.delta.table import Commit, Committed
from stratalog.storage.log.cleaner_checkpoint import FIRST_DIRTY
from stratalog.storage.log.partition_log import PartitionLog
from stratalog.storage.records import TopicPartition
from tests.clients.still_cluster import StillCluster
from tests.storage.files.test_damage import cut_short, emptied, in_a_page, in_the_footer

TP = TopicPartition("t", 0)
FILES, RECORDS = 4, 25


@pytest.fixture
def cluster(tmp_path: Path) -> StillCluster:
    """Partition t-0 with 100 records in four files on both brokers, and t-1 with none."""
    made = StillCluster(tmp_path)
    made.create_topic("t", 2)
    for first in range(0, FILES * RECORDS, RECORDS):
        made.commit(TP, [f"value-{number}" for number in range(first, first + RECORDS)])
    follow(made)
    return made


def follow(cluster: StillCluster) -> None:
    """Broker 2 copies all that broker 1 has."""
    for partition in (TP, TopicPartition("t", 1)):
        log, leader = cluster.log(partition, 2), cluster.log(partition, 1)
        log.exists_or_create("id-of-t")
        log.start_epoch(leader.leader_epoch, as_leader=False)
        log.copy_from(leader, leader.leader_epoch, 1 << 30)


def verification(cluster: StillCluster, **options: object) -> ReplicaVerification:
    view = cluster.view()
    return ReplicaVerification(view, view.partitions("t"), **options)  # type: ignore[arg-type]


def verified(cluster: StillCluster, **options: object) -> PartitionVerified:
    """What one pass says of t-0; t-1 is clean."""
    first, second = verification(cluster, **options).run()
    assert (second.findings, second.lag) == ((), 0)
    return first


def one_other_bit(log: PartitionLog, offset: int) -> None:
    """Swap the file that holds `offset` for one that differs in a bit of that record's value; every checksum is
    right."""
    entry = next(each for each in log.files if each.start_offset <= offset < each.end_offset)
    rows = log.table.read_file(entry.file)
    values = rows["value"].to_pylist()
    row = offset - entry.start_offset
    values[row] = bytes([values[row][0] ^ 1]) + values[row][1:]
    position = rows.schema.get_field_index("value")
    rows = rows.set_column(position, rows.schema.field(position), pa.array(values, pa.binary()))
    file = log.table.write_file(rows, entry.partition_values)
    commit = Commit(RandomIds().new_id(), "OPTIMIZE", 1, (replace(entry, file=file),), (entry.path,), data_change=False)
    assert isinstance(log.table.commit(log.version + 1, commit), Committed)


def test_equal_replicas_have_no_findings(cluster: StillCluster) -> None:
    assert verified(cluster) == PartitionVerified(TP, 100, 100)


@pytest.mark.parametrize("broker", [1, 2])
@pytest.mark.parametrize("fetch_bytes", [1, 1 << 20])
@pytest.mark.parametrize("offset", [0, 37, 99])
def test_a_one_bit_difference_with_right_checksums_is_found(
    cluster: StillCluster, broker: int, fetch_bytes: int, offset: int
) -> None:
    one_other_bit(cluster.log(TP, broker), offset)
    found = verified(cluster, fetch_bytes=fetch_bytes)
    (finding,) = found.findings
    assert isinstance(finding, UnmatchedRecord)
    assert (finding.topic_partition, finding.offset) == (TP, offset)
    assert (finding.first_replica, finding.second_replica) == (1, 2)
    assert finding.first_checksum != finding.second_checksum
    assert (found.offset, found.lag) == (100, 0)


@pytest.mark.parametrize("damage", [in_a_page, in_the_footer, cut_short, emptied, Path.unlink])
@pytest.mark.parametrize("broker", [1, 2])
def test_a_damaged_file_is_told_with_its_offset(
    cluster: StillCluster, broker: int, damage: Callable[[Path], None]
) -> None:
    """The other replica is read to the end all the same."""
    entry = cluster.log(TP, broker).files[2]
    damage(Path(cluster.roots[broker]) / "t-0" / entry.path)
    found = verified(cluster)
    (finding,) = found.findings
    assert isinstance(finding, UnreadableReplica)
    assert (finding.replica, finding.offset) == (broker, 50)
    assert finding.reason.name == ("KAFKA_STORAGE_ERROR" if damage is Path.unlink else "CORRUPT_MESSAGE")
    assert str(finding).startswith(f"Error in processing replica {broker} in partition t-0 at offset 50: ")
    assert found.offset == 100


def test_what_stays_unreadable_is_told_once(cluster: StillCluster) -> None:
    verifying = verification(cluster)
    Path(cluster.roots[2]).rename(cluster.roots[2] + "-away")
    assert [len(each.findings) for each in verifying.run()] == [1, 1], "one for each partition"
    cluster.commit(TP, ["more"])
    assert [(len(each.findings), each.offset) for each in verifying.run()] == [(0, 101), (0, 0)]


def test_a_root_that_is_gone_is_told(cluster: StillCluster) -> None:
    view = cluster.view()
    Path(cluster.roots[2]).rename(cluster.roots[2] + "-away")
    (finding,) = next(iter(ReplicaVerification(view, [TP]).run())).findings
    assert isinstance(finding, UnreadableReplica)
    assert (finding.replica, finding.reason.name) == (2, "LOG_DIR_NOT_FOUND")


def test_a_replica_that_is_behind_is_lag(cluster: StillCluster) -> None:
    cluster.commit(TP, ["one", "two"])
    found = verified(cluster)
    assert (found.offset, found.high_watermark, found.lag, found.findings) == (100, 102, 2, ())


def test_what_is_not_committed_is_not_compared(cluster: StillCluster) -> None:
    cluster.append(TP, [(1, None, b"mine", None)])
    other = cluster.log(TP, 2)
    cluster.publish(TP, 100)
    other.append([], other.leader_epoch, 1)
    assert verified(cluster) == PartitionVerified(TP, 100, 100)


def test_a_replica_that_has_not_truncated_yet_is_compared_up_to_the_epochs_end(cluster: StillCluster) -> None:
    """Broker 1 wrote two records that nobody copied; broker 2 leads epoch 1 and wrote others at those offsets."""
    cluster.append(TP, [(1, None, b"lost", None), (1, None, b"lost too", None)])
    cluster.lead(TP, 2, 1)
    cluster.commit(TP, ["kept", "kept too"])
    found = verified(cluster)
    assert (found.offset, found.lag, found.findings) == (100, 2, ())


def test_a_pass_goes_on_where_the_last_one_ended(cluster: StillCluster) -> None:
    verifying = verification(cluster, start=OffsetSpec.latest())
    one_other_bit(cluster.log(TP, 2), 10)
    assert [each.findings for each in verifying.run()] == [(), ()], "what was there before is not looked at"
    cluster.commit(TP, ["new"])
    follow(cluster)
    one_other_bit(cluster.log(TP, 2), 100)
    first, _ = verifying.run()
    assert [finding.offset for finding in first.findings if isinstance(finding, UnmatchedRecord)] == [100]


def test_a_record_that_one_replica_lost_is_found(cluster: StillCluster) -> None:
    log = cluster.log(TP, 2)
    entry = log.files[1]
    rows = log.table.read_file(entry.file)
    file = log.table.write_file(pa.concat_tables([rows.slice(0, 3), rows.slice(4)]), entry.partition_values)
    commit = Commit(RandomIds().new_id(), "OPTIMIZE", 1, (replace(entry, file=file),), (entry.path,))
    assert isinstance(log.table.commit(log.version + 1, commit), Committed)
    assert verified(cluster).findings == (UnmatchedOffset(TP, 1, 28, 2, 29),)


@pytest.mark.parametrize(("is_planted", "code"), [(False, 0), (True, 1)])
def test_the_tool_speaks_kafkas_words(
    cluster: StillCluster, capsys: pytest.CaptureFixture[str], is_planted: bool, code: int
) -> None:
    if is_planted:
        one_other_bit(cluster.log(TP, 2), 42)
    assert main(["--root", cluster.root, "--once", "--topics-include", "t|other"]) == code
    lines = [line.split(": ", 1)[1] for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == "verification process is started."
    assert lines[-1] in (f"max lag is 0 for partition t-{number} at offset {at} among 2 partitions"
                         for number, at in ((0, 100), (1, 0)))  # fmt: skip
    if is_planted:
        (told,) = lines[1:-1]
        assert told.startswith("partition t-0 has unmatched checksum at offset 42; replica 1's checksum ")
        assert "; replica 2's checksum " in told


def test_the_tool_without_a_topic_says_so(cluster: StillCluster, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--root", cluster.root, "--once", "--topics-include", "nothing"]) == 1
    assert "No topics found." in capsys.readouterr().err


def test_the_deprecated_flag_still_counts(cluster: StillCluster, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--root", cluster.root, "--once", "--topic-white-list", "t"]) == 0
    assert "--topic-white-list is deprecated" in capsys.readouterr().err


def test_what_compaction_took_from_one_replica_alone_is_no_difference(cluster: StillCluster) -> None:
    """Broker 2 has cleaned up to offset 50: what it lacks below is absent, what it lacks above is lost."""
    log = cluster.log(TP, 2)
    entries = [log.files[1], log.files[3]]
    rewritten = []
    for entry in entries:
        rows = log.table.read_file(entry.file)
        rewritten.append(replace(entry, file=log.table.write_file(rows.slice(5), entry.partition_values)))
    commit = Commit(
        RandomIds().new_id(), "COMPACT", 1, tuple(rewritten), tuple(e.path for e in entries), {FIRST_DIRTY: 50}
    )
    assert isinstance(log.table.commit(log.version + 1, commit), Committed)
    assert [str(finding) for finding in verified(cluster).findings] == [
        f"partition t-0: replica 1's offset {offset} doesn't match replica 2's offset 80" for offset in range(75, 80)
    ]


def test_what_an_erasure_took_from_one_replica_alone_is_no_difference(cluster: StillCluster) -> None:
    log = cluster.log(TP, 2)
    entry = log.files[0]
    file = log.table.write_file(log.table.read_file(entry.file).slice(2), entry.partition_values)
    commit = Commit(RandomIds().new_id(), "ERASE", 1, (replace(entry, file=file),), (entry.path,))
    assert isinstance(log.table.commit(log.version + 1, commit), Committed)
    assert len(verified(cluster).findings) == 2
    cluster.commit_metadata(EraseRecord("t", 1, '{"key":{"in":["value-0","value-1"]}}', (10, 0), "request"))
    assert verified(cluster) == PartitionVerified(TP, 100, 100)
