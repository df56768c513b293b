"""A commit whose answer was lost, came twice or came late is stored once, or its writer gets an error."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from obstore.store import S3Store

from stratalog.storage.delta.delta_table import DeltaLogTable
from stratalog.storage.delta.table import Committed, Conflict
from stratalog.storage.errors import StoreUnavailableError
from stratalog.storage.log.append import Appended
from stratalog.storage.log.partition_log import PartitionLog
from stratalog.storage.objects import remote as store_module
from stratalog.storage.objects.opened import open_store
from stratalog.storage.objects.port import ObjectStore
from stratalog.storage.objects.remote import ObstoreStore
from stratalog.storage.records import NewRecordBatch
from stratalog.storage.topic_config import LogConfig
from tests.storage.logs import CountingIds, FakeClock, batch, contents, started, write
from tests.stores.s3_double import BUCKET, S3Double, Wrong

ROOT = f"s3://{BUCKET}/broker-1"
TIMEOUT = timedelta(milliseconds=300)


def commit_path(version: int) -> str:
    return f"t-0/_delta_log/{version:020}.json"


def impatient_store(s3: S3Double) -> ObjectStore:
    """A client with one try and a short time-out."""
    remote = S3Store.from_url(
        ROOT, retry_config={"max_retries": 0}, client_options={"timeout": TIMEOUT, "allow_http": True}
    )
    return ObstoreStore(remote, ROOT)


def log_on(store: ObjectStore, ids: CountingIds) -> PartitionLog:
    log = PartitionLog(DeltaLogTable(store, "t-0", ids), LogConfig(), FakeClock(), ids)
    log.exists_or_create("topic-id")
    return log


@pytest.fixture
def ids() -> CountingIds:
    return CountingIds()


@pytest.fixture
def leader(s3: S3Double, ids: CountingIds) -> PartitionLog:
    """A log with the records 0 a, 1 b, at version 3."""
    log = log_on(open_store(ROOT), ids)
    started(log, 0)
    write(log, "a", "b")
    assert log.version == 3
    return log


def appended(log: PartitionLog, batches: list[NewRecordBatch]) -> Appended | Conflict:
    return log.append(batches, 0, 5_000)


def everything(ids: CountingIds) -> list[tuple[int, str]]:
    return contents(log_on(open_store(ROOT), ids))


HARMLESS = [Wrong.SLOW_DOWN, Wrong.LOSE_REQUEST, Wrong.LOSE_ANSWER, Wrong.FAIL_AFTER, Wrong.DOUBLE]


@pytest.mark.parametrize("wrong", HARMLESS, ids=lambda wrong: wrong.name)
def test_an_append_is_stored_once_whatever_the_fault_of_its_request(
    s3: S3Double, leader: PartitionLog, ids: CountingIds, wrong: Wrong
) -> None:
    s3.fault(wrong, "PUT", commit_path(4))
    outcome = appended(leader, [batch("c")])
    assert isinstance(outcome, Appended)
    assert outcome.version == leader.version == 4
    write(leader, "d")
    assert everything(ids) == [(0, "a"), (1, "b"), (2, "c"), (3, "d")]


@pytest.mark.parametrize("wrong", HARMLESS, ids=lambda wrong: wrong.name)
def test_a_lost_race_stays_lost_whatever_the_fault_of_the_request(
    s3: S3Double, leader: PartitionLog, ids: CountingIds, wrong: Wrong
) -> None:
    write(log_on(open_store(ROOT), ids), "c")
    s3.fault(wrong, "PUT", commit_path(4))
    assert appended(leader, [batch("mine")]) == Conflict(4)
    assert everything(ids) == [(0, "a"), (1, "b"), (2, "c")]


@pytest.mark.parametrize("wrong", HARMLESS, ids=lambda wrong: wrong.name)
def test_an_epoch_starts_once(s3: S3Double, leader: PartitionLog, wrong: Wrong) -> None:
    s3.fault(wrong, "PUT", commit_path(4))
    assert leader.start_epoch(1, as_leader=True) == Committed(4)
    assert leader.start_epoch(1, as_leader=True) == Committed(4)
    assert leader.version == 4


def test_a_lost_answer_is_resolved_without_a_second_request(
    s3: S3Double, leader: PartitionLog, ids: CountingIds
) -> None:
    log = log_on(impatient_store(s3), ids)
    s3.fault(Wrong.LOSE_ANSWER, "PUT", commit_path(4))
    assert isinstance(appended(log, [batch("c")]), Appended)
    assert s3.count("PUT", commit_path(4)) == 1
    assert everything(ids) == [(0, "a"), (1, "b"), (2, "c")]


def test_a_lost_answer_and_a_lost_read_leave_it_open_until_the_same_records_come_again(
    s3: S3Double, leader: PartitionLog, ids: CountingIds
) -> None:
    log = log_on(impatient_store(s3), ids)
    records = [batch("c")]
    s3.fault(Wrong.LOSE_ANSWER, "PUT", commit_path(4))
    s3.fault(Wrong.LOSE_REQUEST, "GET", commit_path(4))
    with pytest.raises(StoreUnavailableError):
        appended(log, records)
    outcome = appended(log, records)
    assert isinstance(outcome, Appended)
    assert outcome.version == 4
    assert everything(ids) == [(0, "a"), (1, "b"), (2, "c")]


@pytest.fixture
def late(s3: S3Double, leader: PartitionLog, ids: CountingIds) -> tuple[PartitionLog, list[NewRecordBatch]]:
    """A log and records whose commit is on its way: its writer has timed out, and nothing is stored yet."""
    log, records = log_on(impatient_store(s3), ids), [batch("c")]
    s3.fault(Wrong.LATE, "PUT", commit_path(4))
    with pytest.raises(StoreUnavailableError, match="create"):
        appended(log, records)
    assert commit_path(4) not in {path.removeprefix("broker-1/") for path in s3.objects}
    return log, records


def arrive(s3: S3Double) -> None:
    """The late request is applied now."""
    s3.arrive.set()
    assert s3.applied_late.wait(10)


@pytest.mark.parametrize("arrives_first", [True, False])
def test_a_commit_that_arrives_late_is_the_same_one(
    s3: S3Double,
    late: tuple[PartitionLog, list[NewRecordBatch]],
    ids: CountingIds,
    arrives_first: bool,
) -> None:
    log, records = late
    steps: list[Callable[[], object]] = [lambda: arrive(s3), lambda: appended(log, records)]
    outcomes = [step() for step in (steps if arrives_first else reversed(steps))]
    (outcome,) = [outcome for outcome in outcomes if outcome is not None]
    assert isinstance(outcome, Appended)
    assert (outcome.version, everything(ids)) == (4, [(0, "a"), (1, "b"), (2, "c")])


def test_a_commit_that_arrives_late_loses_to_one_that_was_made_meanwhile(
    s3: S3Double, late: tuple[PartitionLog, list[NewRecordBatch]], leader: PartitionLog, ids: CountingIds
) -> None:
    log, records = late
    write(leader, "x")
    arrive(s3)
    assert appended(log, records) == Conflict(4)
    assert log.refresh()
    assert isinstance(appended(log, records), Appended)
    assert everything(ids) == [(0, "a"), (1, "b"), (2, "x"), (3, "c")]


def test_stores_are_opened_with_the_policy(s3: S3Double, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(store_module.RETRY, "max_retries", 0)
    s3.fault(Wrong.SLOW_DOWN, "GET", "x")
    with pytest.raises(StoreUnavailableError):
        open_store(ROOT).get_optional("x")
