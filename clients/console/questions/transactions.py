"""Transactions: which are open, since when, and what they hold back. I/O: coordinators and leaders, or storage.

A reader of committed records stops at the first offset of the oldest transaction that is open in a partition. What
lies between that and the high watermark is held back.
"""

from __future__ import annotations

from dataclasses import dataclass

from stratalog.clients.console.asker import Asker
from stratalog.clients.console.question import Parameter, Question
from stratalog.replication.metadata.acls import ResourceType
from stratalog.replication.requests.transactions import TransactionDescription
from stratalog.storage.errors import StratalogError, TransactionalIdNotFoundError
from stratalog.storage.records import TopicPartition

ENDED = ("Empty", "CompleteCommit", "CompleteAbort", "Dead")
SHOWN_MAX = 500
"""Number of transactions that one answer describes."""


@dataclass(frozen=True, slots=True)
class HeldBack:
    """What an open transaction holds back in a partition: `records` offsets from `first_offset` on; -1: not known."""

    topic: str
    partition: int
    first_offset: int
    records: int
    problem: str = ""


@dataclass(frozen=True, slots=True)
class TransactionRow:
    """A transactional id, in the topics that the asker may see. `open_ms` is -1 when no transaction of it is open."""

    transactional_id: str
    state: str
    coordinator: int
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    open_ms: int
    held_back: list[HeldBack]

    @property
    def is_open(self) -> bool:
        """Whether a transaction has begun and has not ended."""
        return self.state not in ENDED


@dataclass(frozen=True, slots=True)
class TransactionList:
    """Transactional ids, the longest open transaction first. `left_out`: those beyond the bound of one answer."""

    transactions: list[TransactionRow]
    left_out: int
    read_ms: int


def transactions(asker: Asker, ended: bool) -> TransactionList:
    """Transactions that the asker may describe; those that are not open only with `ended`."""
    asker.cluster.view.refresh(max_age_ms=1)
    known = asker.cluster.transactions()
    listed = [(broker_id, each) for broker_id, each in known.listed() if ended or each.transaction_state not in ENDED]
    names = set(asker.visible(ResourceType.TRANSACTIONAL_ID, [each.transactional_id for _, each in listed]))
    listed = [(broker_id, each) for broker_id, each in listed if each.transactional_id in names]
    rows = []
    for _, each in listed[:SHOWN_MAX]:
        try:
            coordinator, described = known.described(each.transactional_id)
        except TransactionalIdNotFoundError:
            continue  # it ended since
        rows.append(_row(asker, coordinator, described))
    rows.sort(key=lambda row: (-row.open_ms, row.transactional_id))
    return TransactionList(rows, max(0, len(listed) - SHOWN_MAX), asker.now_ms)


def _row(asker: Asker, coordinator: int, described: TransactionDescription) -> TransactionRow:
    started_ms = described.transaction_start_time_ms
    is_open = described.transaction_state not in ENDED
    named = described.topic_partitions if is_open else ()
    topics = set(asker.visible(ResourceType.TOPIC, {each.topic for each in named}))
    shown = [each for each in named if each.topic in topics]
    return TransactionRow(
        described.transactional_id,
        described.transaction_state,
        coordinator,
        described.producer_id,
        described.producer_epoch,
        described.transaction_timeout_ms,
        max(0, asker.now_ms - started_ms) if is_open and started_ms >= 0 else -1,
        [_held_back(asker, each, described.producer_id) for each in shown],
    )


def _held_back(asker: Asker, named: TopicPartition, producer_id: int) -> HeldBack:
    try:
        producers = asker.cluster.transactions().producers(named)
        marks = asker.cluster.view.watermarks.published_now([named])[named]
    except StratalogError as reason:
        return HeldBack(*named, -1, -1, str(reason))
    first = next((each.current_txn_start_offset for each in producers if each.producer_id == producer_id), -1)
    records = -1 if marks is None or first < 0 else max(0, marks.high_watermark - first)
    return HeldBack(*named, first, records)


QUESTIONS = (
    Question(
        "transactions",
        "The open transactions, the longest first, and what each holds back from readers.",
        transactions,
        {"ended": Parameter(bool, "those that are not open, too", False)},
    ),
)
