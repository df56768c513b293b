"""Other engines read a replica's table at every stage, with correct offsets; a foreign commit is named."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError

from stratalog.storage.delta.table import OPEN_WRITER_VERSION, WRITER_VERSION, Conflict
from stratalog.storage.errors import ForeignCommitError, KafkaStorageError, UnsupportedTableFeatureError
from stratalog.storage.log.partition_log import PartitionLog
from stratalog.storage.upkeep.chore import UpkeepLimits, UpkeepView, Work
from stratalog.storage.upkeep.erase import Erase, ErasePredicate
from stratalog.storage.upkeep.erasure import Erasure
from stratalog.storage.upkeep.upkeep import Upkeep
from tests.storage.logs import Replicas, batch, contents, write

# -- readers -------------------------------------------------------------------------------------------------


def seen_by_deltalake(log: PartitionLog, root: Path) -> list[tuple[int, str]]:
    rows = pa.table(DeltaTable(str(root / "1" / "t-0")).to_pyarrow_table())
    found = rows.select(["base_offset", "offset_delta", "value"]).to_pylist()
    return sorted((row["base_offset"] + row["offset_delta"], row["value"].decode()) for row in found)


def merged(log: PartitionLog) -> None:
    upkeep = Upkeep(log, UpkeepLimits(merge_files_min=4, merge_spread_files=0))
    before = len(log.files)
    for _ in range(20):
        upkeep.step(1_000_000, log.log_end_offset, log.leader_epoch)
    assert len(log.files) < before


def truncated(log: PartitionLog) -> None:
    log.start_epoch(log.leader_epoch + 1, as_leader=True, truncate_to=log.log_end_offset - 3)


def retained(log: PartitionLog) -> None:
    first = log.files[0]
    outcome = log.replace_files(
        [first],
        [],
        leader_epoch=log.leader_epoch,
        operation="DELETE",
        now_ms=1,
        data_change=True,
        log_start=first.end_offset,
    )
    assert not isinstance(outcome, Conflict)


def some_erased(log: PartitionLog) -> None:
    predicate = ErasePredicate.parse({"value": {"in": ["c", "v5"]}})
    chore = Erasure(lambda: [Erase(1, log.log_end_offset, predicate)])
    work = chore.begin(UpkeepView(log, 1_000, log.log_end_offset, log.leader_epoch))
    assert isinstance(work, Work)
    assert work.finish(work.run()) is not None


def checkpointed_and_cleaned(log: PartitionLog) -> None:
    log.table.checkpoint()
    assert list(log.table.clean_log(log.version, 1 << 60)) != []


STAGES: list[Callable[[PartitionLog], None]] = [
    merged,
    truncated,
    lambda log: write(log, "after", "the cut", epoch=log.leader_epoch),
    some_erased,
    retained,
    checkpointed_and_cleaned,
    lambda log: write(log, "more", epoch=log.leader_epoch),
]


def test_deltalake_reads_every_stage_with_the_offsets_right(tmp_path: Path) -> None:
    log = Replicas.new(tmp_path).leader()
    assert seen_by_deltalake(log, tmp_path) == []
    write(log, "a b c", *[f"v{number}" for number in range(8)], "x y z w")
    assert seen_by_deltalake(log, tmp_path) == contents(log)
    for stage in STAGES:
        stage(log)
        assert [each for each in seen_by_deltalake(log, tmp_path) if each[0] >= log.log_start_offset] == contents(log)
    assert len(contents(log)) > 5


# -- writers -------------------------------------------------------------------------------------------------


def appends(table: DeltaTable) -> None:
    write_deltalake(table, table.to_pyarrow_table().slice(0, 1), mode="append")


def deletes(table: DeltaTable) -> None:
    table.delete("offset_delta = 1")


def cut_in_two(log: PartitionLog) -> None:
    """OPTIMIZE joins two files with one base offset."""
    first = log.files[0]
    rows = log.table.read_file(first.file)
    halves = [log.table.write_file(rows.slice(at, 1), first.partition_values) for at in (0, 1)]
    log.replace_files(
        [first],
        [replace(first, file=half) for half in halves],
        leader_epoch=log.leader_epoch,
        operation="OPTIMIZE",
        now_ms=1,
        data_change=False,
    )


def optimizes(table: DeltaTable) -> None:
    table.optimize.compact()


def vacuums(table: DeltaTable) -> None:
    table.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)


def updates(table: DeltaTable) -> None:
    table.update({"value": "null"}, predicate="offset_delta = 1")


def merges(table: DeltaTable) -> None:
    rows = table.to_pyarrow_table().slice(0, 1)
    same = "s.base_offset = t.base_offset AND s.offset_delta = t.offset_delta"
    table.merge(rows, same, source_alias="s", target_alias="t").when_matched_delete().execute()


def vacuums_in_full(table: DeltaTable) -> None:
    table.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False, full=True)


def live_log(root: Path) -> PartitionLog:
    """A log with two files that OPTIMIZE joins, and one that left it."""
    log = Replicas.new(root).leader()
    write(log, "a b", "c d", "e f")
    write(log, "one more that a truncation takes out")
    log.start_epoch(1, as_leader=True, truncate_to=6)
    cut_in_two(log)
    return log


def files_below(root: Path) -> set[str]:
    return {str(path) for path in root.rglob("*") if path.is_file()}


@pytest.mark.parametrize("write_to", [appends, deletes, updates, merges, optimizes, vacuums, vacuums_in_full])
@pytest.mark.parametrize("is_checkpointed", [False, True])
def test_deltalake_refuses_to_write(
    tmp_path: Path, write_to: Callable[[DeltaTable], Any], is_checkpointed: bool
) -> None:
    """The feature is in the first commit, and in checkpoints."""
    log = live_log(tmp_path)
    if is_checkpointed:
        checkpointed_and_cleaned(log)
    before, values = files_below(tmp_path), contents(log)
    with pytest.raises(CommitFailedError, match=r"features required.*stratalog"):
        write_to(DeltaTable(str(tmp_path / "1" / "t-0")))
    assert files_below(tmp_path) == before
    write(log, "more", epoch=1)
    assert contents(log) == [*values, (6, "more")]


def test_a_checkpoint_that_deltalake_makes_does_no_harm(tmp_path: Path) -> None:
    """Delta's writers may make one without a commit: it holds what the log holds, but not what is left to delete."""
    log = live_log(tmp_path)
    DeltaTable(str(tmp_path / "1" / "t-0")).create_checkpoint()
    reopened = Replicas.new(tmp_path).log()
    assert (reopened.version, contents(reopened)) == (log.version, contents(log))
    write(reopened, "more", epoch=1)
    checkpointed_and_cleaned(reopened)
    with pytest.raises(CommitFailedError, match=r"features required.*stratalog"):
        appends(DeltaTable(str(tmp_path / "1" / "t-0")))
    assert contents(Replicas.new(tmp_path).log()) == contents(reopened)


# -- tables of an older release --------------------------------------------------------------------------------


@contextmanager
def as_before() -> Iterator[None]:
    """Tables are made as by an older release: any Delta writer may commit to them."""
    with (
        patch("stratalog.storage.delta.delta_table.WRITER_VERSION", OPEN_WRITER_VERSION),
        patch("stratalog.storage.log.partition_log.WRITER_VERSION", OPEN_WRITER_VERSION),
    ):
        yield


@pytest.fixture
def older_release() -> Iterator[None]:
    with as_before():
        yield


def protocol_by_deltalake(root: Path) -> tuple[int, int, list[str] | None]:
    protocol = DeltaTable(str(root / "1" / "t-0")).protocol()
    return protocol.min_reader_version, protocol.min_writer_version, protocol.writer_features


@pytest.mark.parametrize("is_checkpointed", [False, True])
@pytest.mark.parametrize("epoch", [0, 1])
def test_an_epoch_start_upgrades_a_table_of_an_older_release(tmp_path: Path, is_checkpointed: bool, epoch: int) -> None:
    """Once, in its own commit, also when the epoch stays; later folds and checkpoints keep it."""
    with as_before():
        old = Replicas.new(tmp_path).leader()
        write(old, "a b", "c d")
        if is_checkpointed:
            old.table.checkpoint()
    assert protocol_by_deltalake(tmp_path)[:2] == (1, 2)
    log, values = Replicas.new(tmp_path).log(), contents(old)
    for _ in range(2):
        log.start_epoch(epoch, as_leader=epoch > 0)
        assert (log.version, log.state.writer_version) == (old.version + 1, WRITER_VERSION)
    upgraded = 1, 7, ["invariants", "stratalog"]
    assert protocol_by_deltalake(tmp_path) == upgraded
    write(log, "e", epoch=epoch)
    log.table.checkpoint()
    assert protocol_by_deltalake(tmp_path) == upgraded
    reopened = Replicas.new(tmp_path).log()
    assert (reopened.state.writer_version, contents(reopened)) == (WRITER_VERSION, [*values, (4, "e")])
    assert seen_by_deltalake(log, tmp_path) == contents(log)
    old.refresh()
    assert contents(old) == contents(reopened)


@pytest.mark.usefixtures("older_release")
@pytest.mark.parametrize(
    ("meddle", "operation"),
    [(appends, "WRITE"), (deletes, "DELETE"), (optimizes, "OPTIMIZE"), (vacuums, "VACUUM START")],
)
def test_who_commits_to_a_live_table_is_named(
    tmp_path: Path, meddle: Callable[[DeltaTable], Any], operation: str
) -> None:
    """With the version and the operation, in open instances and in new ones. A writer that does not keep Delta's
    protocol would do the same to a table of this release."""
    log = live_log(tmp_path)
    version = log.version + 1
    meddle(DeltaTable(str(tmp_path / "1" / "t-0")))
    named = rf"t-0.*version {version}\b.*{operation} by delta-rs"
    with pytest.raises(ForeignCommitError, match=named) as caught:
        log.refresh()
    assert (caught.value.name, caught.value.code) == ("KAFKA_STORAGE_ERROR", 56)
    assert isinstance(caught.value, KafkaStorageError)
    with pytest.raises(ForeignCommitError, match=rf"version {version} was committed by another writer"):
        Replicas.new(tmp_path).log()


@pytest.mark.usefixtures("older_release")
def test_an_append_meets_the_foreign_commit(tmp_path: Path) -> None:
    log = Replicas.new(tmp_path).leader()
    write(log, "a b")
    deletes(DeltaTable(str(tmp_path / "1" / "t-0")))
    assert isinstance(log.append([batch(["c"])], 0, 5_000), Conflict)
    with pytest.raises(ForeignCommitError, match="DELETE by delta-rs"):
        log.refresh()


@pytest.mark.parametrize("is_in_checkpoint", [False, True])
def test_a_table_with_a_feature_that_is_not_ours_is_refused_when_it_is_opened(
    tmp_path: Path, is_in_checkpoint: bool
) -> None:
    log = Replicas.new(tmp_path).leader()
    write(log, "a")
    path = tmp_path / "1" / "t-0" / "_delta_log" / f"{log.version + 1:020}.json"
    features = ["deletionVectors"]
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": features, "writerFeatures": features}
    path.write_text(json.dumps({"protocol": protocol}))
    if is_in_checkpoint:
        DeltaTable(str(tmp_path / "1" / "t-0")).create_checkpoint()
        path.unlink()
    opening: Callable[[], object] = Replicas.new(tmp_path).table("1").snapshot
    for look in [opening] if is_in_checkpoint else [opening, log.refresh]:
        with pytest.raises(UnsupportedTableFeatureError, match=r"t-0.*reader 3 / writer 7 \['deletionVectors'\]"):
            look()
