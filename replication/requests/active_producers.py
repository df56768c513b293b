"""What DescribeProducers tells of a partition: its producers and which of them have a transaction open. Pure."""

from __future__ import annotations

from stratalog.replication.requests.transaction_requests import ActiveProducer
from stratalog.storage.producers import ProducerEntry, ProducerStates


def active_producers(states: ProducerStates) -> tuple[ActiveProducer, ...]:
    """The producers that a log remembers, by id. Kafka: `ProducerStateManager.activeProducers`.

    A transaction that stays open long after its coordinator ended it shows as `current_txn_start_offset` here.
    """
    return tuple(_active(producer_id, entry, states) for producer_id, entry in sorted(states.producers.items()))


def _active(producer_id: int, entry: ProducerEntry, states: ProducerStates) -> ActiveProducer:
    transaction = states.transactions.of(producer_id)
    return ActiveProducer(
        producer_id,
        entry.producer_epoch,
        entry.batches[-1].last_sequence if entry.batches else -1,
        entry.timestamp_ms,
        transaction.coordinator_epoch,
        transaction.first_offset,
    )
