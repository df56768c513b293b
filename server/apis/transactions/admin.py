"""DescribeProducers, DescribeTransactions, ListTransactions, WriteTxnMarkers: transactions for administrators.

I/O: through coordinators on this broker; reads the leader's log; markers are appended through the broker.
Source: `KafkaApis.handleDescribeProducersRequest` and its neighbours (KIP-664, KIP-994, KIP-1152).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import fields, replace
from functools import partial
from operator import itemgetter
from typing import Any

from stratalog.replication.client_pattern import client_pattern
from stratalog.replication.metadata.acls import Operation, ResourceType
from stratalog.replication.requests.coordinators import CoordinatorType
from stratalog.replication.requests.produce import ACKS_ALL, ProduceRequest
from stratalog.replication.requests.transactions import (
    TRANSACTION_VERSION_0,
    ActiveProducer,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    ListTransactionsResponse,
    TransactionDescription,
    TransactionListing,
    TransactionTopic,
    active_producers,
)
from stratalog.server.request.api import Api, Body, Call, each_partition, error_only, failed, gather_in_turns
from stratalog.server.request.broker import NO_EPOCH, ApiFamily, attempted
from stratalog.server.request.coordinators import Split, ask_all, ask_each
from stratalog.storage.clock import Clock
from stratalog.storage.errors import InvalidRegularExpressionError, RequestTimedOutError, StratalogError
from stratalog.storage.records import TopicPartition
from stratalog.storage.transactions import EndMarker, marker_batch
from stratalog.wire.api_keys import ApiKey
from stratalog.wire.messages.values import Values

MARKER_TIMEOUT_MS = 30_000
MATCH_MS_MAX = 1_000


class TransactionAdminApis(ApiFamily):
    def apis(self) -> Iterable[Api]:
        return [
            Api(ApiKey.WRITE_TXN_MARKERS, self._write_markers, _markers_refused),
            Api(ApiKey.DESCRIBE_PRODUCERS, self._describe_producers, _producers_refused),
            Api(ApiKey.DESCRIBE_TRANSACTIONS, self._describe, _descriptions_refused),
            Api(ApiKey.LIST_TRANSACTIONS, self._list, error_only),
        ]

    # -- DescribeProducers -----------------------------------------------------------------------------------

    # Any replica answers, for `kafka-transactions find-hanging --broker-id`: with the state of the leader's log.

    def _describe_producers(self, call: Call) -> Values:
        def values(topic: Any, partition: int) -> Values:
            named = TopicPartition(topic.name, partition)
            return attempted(partial(self._producers, call, named), partial(_partition_error, partition))

        return {"topics": each_partition(call.request.topics, values, "partition_indexes")}

    def _producers(self, call: Call, named: TopicPartition) -> Values:
        self._broker.check(call, Operation.READ, ResourceType.TOPIC, named.topic)
        self._broker.checked(self._broker.partition(named), NO_EPOCH, leader_only=False)
        active = self._broker.view.records.read_from_log(named, lambda log: active_producers(log.producers), 0)
        producers = [_active_producer(each) for each in active]
        return {"partition_index": named.partition, **failed(None), "active_producers": producers}

    # -- DescribeTransactions, ListTransactions ----------------------------------------------------------------

    def _describe(self, call: Call) -> None:
        def request(transactional_id: str) -> DescribeTransactionsRequest:
            return DescribeTransactionsRequest((transactional_id,))

        def is_visible(topic: TransactionTopic) -> bool:
            return self._broker.may_describe_topic(call, topic.topic)

        def described(_name: str, response: DescribeTransactionsResponse) -> TransactionDescription:
            (found,) = response.transaction_states
            return replace(found, topics=tuple(filter(is_visible, found.topics)))

        split = Split(
            CoordinatorType.TRANSACTION,
            Operation.DESCRIBE,
            request,
            described,
            _description_error,
            DescribeTransactionsResponse,
        )
        ask_each(self._broker, call, call.request.transactional_ids, split)

    def _list(self, call: Call) -> None:
        pattern = call.request.transactional_id_pattern
        wanted = client_pattern(pattern, "Transactional ID pattern") if pattern else None

        def is_visible(name: str) -> bool:
            return self._broker.refusal(call, Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, name) is None

        def joined(responses: list[ListTransactionsResponse], error: StratalogError | None) -> Body:
            states = [state for each in responses for state in each.transaction_states]
            visible = [state for state in states if is_visible(state.transactional_id)]
            unknown = dict.fromkeys(name for each in responses for name in each.unknown_state_filters)
            try:
                listed = visible if wanted is None else matching(visible, wanted, self._broker.view.clock)
            except StratalogError as refusal:
                return ListTransactionsResponse(error=refusal.as_value())
            return ListTransactionsResponse(tuple(listed), tuple(unknown), error)

        request = replace(call.request, transactional_id_pattern=None)
        ask_all(self._broker, call, CoordinatorType.TRANSACTION, request, joined)

    # -- WriteTxnMarkers ---------------------------------------------------------------------------------------

    def _write_markers(self, call: Call) -> None:
        """From another coordinator, or from an administrator to end a hanging transaction."""
        if self._broker.refusal(call, Operation.ALTER, ResourceType.CLUSTER) is not None:
            self._broker.check(call, Operation.CLUSTER_ACTION, ResourceType.CLUSTER)

        def write(key: _MarkerKey, put: Callable[[StratalogError | None], None]) -> None:
            if call.connection.memory.is_over:  # nobody gets the answer; who sent it will send it again
                raise RequestTimedOutError(f"the connection of {call.connection.peer} has ended")
            self._write_marker(call.request.markers[key[0]], key[1], put, call.connection.peer)

        def done(errors: dict[_MarkerKey, StratalogError | None]) -> None:
            call.respond_with(lambda: _written(call, errors))

        in_order = sorted(_marker_keys(call), key=itemgetter(1))  # those of a partition together: they are one commit
        gather_in_turns(in_order, write, done, elsewhere=call.aside)

    def _write_marker(
        self, marker: Any, named: TopicPartition, put: Callable[[StratalogError | None], None], sender: str
    ) -> None:
        leader_epoch = self._broker.led_partition(named).leader_epoch
        partition = self._broker.view.image.identified(named)
        batch = marker_batch(
            marker.producer_id,
            marker.producer_epoch,
            EndMarker(marker.transaction_result, marker.coordinator_epoch),
            self._broker.view.clock.wall_ms(),
            getattr(marker, "transaction_version", TRANSACTION_VERSION_0),
        )
        request = ProduceRequest(partition, batch, ACKS_ALL, MARKER_TIMEOUT_MS, leader_epoch, sender=sender)
        self._broker.face().produce_then(request, lambda response: put(response.error))


def _active_producer(producer: ActiveProducer) -> Values:
    return {each.name: getattr(producer, each.name) for each in fields(producer)}


def matching(states: Iterable[TransactionListing], pattern: Any, clock: Clock) -> list[TransactionListing]:
    """Those whose id the whole pattern matches. INVALID_REGULAR_EXPRESSION when that takes longer than `MATCH_MS_MAX`:
    an io thread does it, of which there are few."""
    found, until_ms = [], clock.monotonic_ms() + MATCH_MS_MAX
    for state in states:
        if pattern.fullmatch(state.transactional_id) is not None:
            found.append(state)
        if clock.monotonic_ms() > until_ms:
            raise InvalidRegularExpressionError(f"the pattern takes more than {MATCH_MS_MAX} ms: use a simpler one")
    return found


_MarkerKey = tuple[int, TopicPartition]
"""The index of a marker in the request, and one of its partitions."""


def _marker_keys(call: Call) -> list[_MarkerKey]:
    return [
        (number, TopicPartition(topic.name, partition))
        for number, marker in enumerate(call.request.markers)
        for topic in marker.topics
        for partition in topic.partition_indexes
    ]


def _written(call: Call, errors: dict[_MarkerKey, StratalogError | None]) -> Values:
    def values(number: int, topic: Any, partition: int) -> Values:
        return {"partition_index": partition, "error_code": errors[number, TopicPartition(topic.name, partition)]}

    return {
        "markers": [
            {
                "producer_id": marker.producer_id,
                "topics": each_partition(marker.topics, partial(values, number), "partition_indexes"),
            }
            for number, marker in enumerate(call.request.markers)
        ]
    }


def _partition_error(partition: int, error: StratalogError) -> Values:
    return {"partition_index": partition, **failed(error)}


def _producers_refused(call: Call, error: StratalogError) -> Values:
    topics = call.request.topics
    return {"topics": each_partition(topics, lambda _topic, p: _partition_error(p, error), "partition_indexes")}


def _description_error(name: str, error: StratalogError) -> TransactionDescription:
    """Numbers are 0 where no coordinator was asked."""
    return TransactionDescription(name, "", 0, 0, 0, 0, error=error)


def _descriptions_refused(call: Call, error: StratalogError) -> DescribeTransactionsResponse:
    names = call.request.transactional_ids
    return DescribeTransactionsResponse(tuple(_description_error(name, error) for name in names))


def _markers_refused(call: Call, error: StratalogError) -> Values:
    return _written(call, dict.fromkeys(_marker_keys(call), error))
