"""Transactions as their coordinators and the leaders of partitions answer. I/O: requests to brokers.

Source: Kafka's `ListTransactionsHandler`, `DescribeTransactionsHandler`, `DescribeProducersHandler` (KIP-664).
"""

from __future__ import annotations

from dataclasses import fields

from stratalog.clients.admin.group_description import as_response
from stratalog.clients.admin.transactions import KnownTransactions
from stratalog.clients.coordinator_calls import RETRY_MS, InProcessCalls, PendingAnswer
from stratalog.clients.wire.view import WireView
from stratalog.replication.requests.coordinators import CoordinatorType
from stratalog.replication.requests.transactions import (
    ActiveProducer,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionDescription,
    TransactionListing,
)
from stratalog.server.remote.messages import message_of
from stratalog.storage.errors import RequestTimedOutError, StratalogError, TransactionalIdNotFoundError
from stratalog.storage.records import TopicPartition
from stratalog.wire.api_keys import ApiKey
from stratalog.wire.messages.frames import Message
from stratalog.wire.messages.layouts import error_of

DESCRIBE_PRODUCERS_VERSION = 0


class AskedTransactions(KnownTransactions):
    """Asks coordinators and leaders."""

    def __init__(self, view: WireView) -> None:
        super().__init__(view.clock)
        self._view = view
        self._calls = InProcessCalls(view.cluster, view.clock, view.timeout_ms, CoordinatorType.TRANSACTION)

    def listed(self, duration_filter_ms: int = -1) -> list[tuple[int, TransactionListing]]:
        view = self._view
        message = message_of(ListTransactionsRequest(duration_filter=duration_filter_ms))
        brokers = dict.fromkeys(sorted(view.image.live_brokers()), message)
        found: list[tuple[int, TransactionListing]] = []
        for broker_id, answer in view.cluster.call_each(brokers, view.timeout_ms).items():
            response = as_response(ListTransactionsResponse, answer)
            if response.error is not None:
                raise response.error
            found += [(broker_id, each) for each in response.transaction_states]
        return sorted(found, key=lambda each: each[1].transactional_id)

    def described(self, transactional_id: str) -> tuple[int, TransactionDescription]:
        coordinator = self._coordinator(transactional_id)
        request = DescribeTransactionsRequest((transactional_id,))
        answer = self._view.cluster.call(message_of(request), coordinator, self._view.timeout_ms)
        (found,) = as_response(DescribeTransactionsResponse, answer).transaction_states
        if isinstance(found.error, TransactionalIdNotFoundError):
            raise TransactionalIdNotFoundError(f"transactional id {transactional_id} is not known")
        if found.error is not None:
            raise found.error
        return coordinator, found

    def _coordinator(self, transactional_id: str) -> int:
        """The coordinator's broker id, asked for again while it is moving."""
        clock = self._view.clock
        deadline_ms = clock.monotonic_ms() + self._view.timeout_ms
        while True:
            pending = PendingAnswer()
            self._calls.find(transactional_id, pending.receive)
            found = pending.result(self._calls, clock, deadline_ms)
            if isinstance(found, int):
                return found
            if not isinstance(found, StratalogError):
                raise RequestTimedOutError(f"{transactional_id}: no coordinator was found, the answer was {found!r}")
            if not found.retriable or clock.monotonic_ms() >= deadline_ms:
                raise found
            clock.sleep_ms(RETRY_MS)

    def producers(self, topic_partition: TopicPartition, broker_id: int | None = None) -> tuple[ActiveProducer, ...]:
        view = self._view
        asked = view.led_by(topic_partition) if broker_id is None else broker_id
        topic, partition = topic_partition
        values = {"topics": [{"name": topic, "partition_indexes": [partition]}]}
        message = Message(values, ApiKey.DESCRIBE_PRODUCERS, DESCRIBE_PRODUCERS_VERSION)
        answer = view.cluster.call(message, asked, view.timeout_ms)
        part = answer.topics[0].partitions[0]
        error = error_of(part)
        if error is not None:
            raise error
        names = [each.name for each in fields(ActiveProducer)]
        return tuple(ActiveProducer(*(getattr(each, name) for name in names)) for each in part.active_producers)
