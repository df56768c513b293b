"""DescribeProducers, DescribeTransactions, ListTransactions, WriteTxnMarkers: transactions as administrators see them.

I/O: through coordinators on this broker; reads the leader's log; markers go into the broker's queue.
Source: `KafkaApis.handleDescribeProducersRequest` and its neighbours (KIP-664, KIP-994, KIP-1152).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import groupby
from typing import Any

from stratalog.clients.kafka.apis.find_coordinator import coordinating_face
from stratalog.clients.kafka.protocol.entities import Values
from stratalog.clients.kafka.protocol.frames import served_versions
from stratalog.clients.kafka.protocol.values import as_error, fields_of, value_of
from stratalog.clients.kafka.request.api import Api, Call, Joined, error_only, failed
from stratalog.clients.kafka.request.broker import ServedBroker, attempted
from stratalog.replication.metadata.acls import Operation, ResourceType
from stratalog.replication.requests.coordinators import CoordinatorType
from stratalog.replication.requests.produce import ACKS_ALL, ProduceRequest, ProduceResponse
from stratalog.replication.requests.transactions import (
    TRANSACTION_VERSION_0,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    ListTransactionsRequest,
    active_producers,
)
from stratalog.storage.errors import InvalidRequestError, StratalogError
from stratalog.storage.records import TopicPartition
from stratalog.storage.transactions import EndMarker, marker_batch

WRITE_TXN_MARKERS, DESCRIBE_PRODUCERS, DESCRIBE_TRANSACTIONS, LIST_TRANSACTIONS = 27, 61, 65, 66
MARKER_TIMEOUT_MS = 30_000


class TransactionAdmin:
    """One broker's answers."""

    def __init__(self, broker: ServedBroker) -> None:
        self._broker = broker

    def apis(self) -> Iterable[Api]:
        rows = (
            (WRITE_TXN_MARKERS, self._write_markers, _none_written),
            (DESCRIBE_PRODUCERS, self._describe_producers, _no_producers),
            (DESCRIBE_TRANSACTIONS, self._describe, _none_described),
            (LIST_TRANSACTIONS, self._list, error_only),
        )
        return [Api(key, served_versions(key), handle, refuse) for key, handle, refuse in rows]

    # -- DescribeProducers -----------------------------------------------------------------------------------

    def _describe_producers(self, call: Call) -> Values:
        topics: list[Values] = []
        for topic in call.request.topics:
            partitions = [
                attempted(partial(self._producers, call, TopicPartition(topic.name, p)), partial(_partition_error, p))
                for p in topic.partition_indexes
            ]
            topics.append({"name": topic.name, "partitions": partitions})
        return {"topics": topics}

    def _producers(self, call: Call, named: TopicPartition) -> Values:
        self._broker.check(call, Operation.READ, ResourceType.TOPIC, named.topic)
        self._broker.led_partition(named)
        active = self._broker.view.look_at_log(named, lambda log: active_producers(log.producers), 0)
        told = [fields_of(each) for each in active]
        return {"partition_index": named.partition, **failed(None), "active_producers": told}

    # -- DescribeTransactions, ListTransactions ----------------------------------------------------------------

    def _describe(self, call: Call) -> None:
        names = list(dict.fromkeys(call.request.transactional_ids))

        def done(answers: dict[str, object]) -> None:
            call.respond_with(
                lambda: {"transaction_states": [self._described(call, name, answers[name]) for name in names]}
            )

        joined = Joined(len(names), done)
        if not names:
            done({})
        for name in names:
            refusal = self._broker.refusal(call, Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, name)
            if refusal is not None:
                joined.put(name, refusal)
                continue
            put = partial(joined.put, name)
            request = DescribeTransactionsRequest(name)
            coordinating_face(self._broker).coordinator(CoordinatorType.TRANSACTION, name, request, put)

    def _described(self, call: Call, name: str, answer: Any) -> Values:
        error = as_error(answer)
        if error is not None:
            return {"error_code": error, "transactional_id": name}
        found: DescribeTransactionsResponse = answer
        seen = [tp for tp in found.topics if self._may_see(call, tp.topic)]
        topics = [
            {"topic": topic, "partitions": [named.partition for named in partitions]}
            for topic, partitions in groupby(sorted(seen), key=lambda named: named.topic)
        ]
        return fields_of(found, {"topics": lambda _topics: topics})

    def _may_see(self, call: Call, topic: str) -> bool:
        return self._broker.refusal(call, Operation.DESCRIBE, ResourceType.TOPIC, topic) is None

    def _list(self, call: Call) -> None:
        pattern = call.given("transactional_id_pattern")
        try:
            wanted = re.compile(pattern) if pattern else None
        except re.error as reason:
            raise InvalidRequestError(f"transactional id pattern {pattern!r}: {reason}") from reason
        request = value_of(ListTransactionsRequest, call.request)

        def answer(answers: list[object]) -> None:
            call.respond_with(partial(self._listed, call, wanted, answers))

        coordinating_face(self._broker).every_coordinator(CoordinatorType.TRANSACTION, request, answer)

    def _listed(self, call: Call, wanted: re.Pattern[str] | None, answers: Sequence[Any]) -> Values:
        errors = [as_error(each) or getattr(each, "error", None) for each in answers]
        told = [each for each in answers if as_error(each) is None]
        states = [
            fields_of(state)
            for each in told
            for state in each.transaction_states
            if (wanted is None or wanted.fullmatch(state.transactional_id))
            and not self._broker.refusal(
                call, Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, state.transactional_id
            )
        ]
        unknown = {name: None for each in told for name in each.unknown_state_filters}
        error = next(filter(None, errors), None)
        return {"error_code": error, "unknown_state_filters": list(unknown), "transaction_states": states}

    # -- WriteTxnMarkers ---------------------------------------------------------------------------------------

    def _write_markers(self, call: Call) -> None:
        """From another coordinator, or an administrator who ends a transaction that hangs."""
        if self._broker.refusal(call, Operation.ALTER, ResourceType.CLUSTER) is not None:
            self._broker.check(call, Operation.CLUSTER_ACTION, ResourceType.CLUSTER)
        markers = call.request.markers
        places = [
            (number, TopicPartition(topic.name, partition))
            for number, marker in enumerate(markers)
            for topic in marker.topics
            for partition in topic.partition_indexes
        ]

        def done(errors: dict[Any, StratalogError | None]) -> None:
            call.respond_with(lambda: _written(call, errors))

        joined = Joined(len(places), done)
        if not places:
            done({})
        for place in places:
            self._write_marker(markers[place[0]], place[1], partial(joined.put, place))

    def _write_marker(self, marker: Any, named: TopicPartition, put: Any) -> None:
        try:
            self._broker.led_partition(named)
            batch = marker_batch(
                marker.producer_id,
                marker.producer_epoch,
                EndMarker(marker.transaction_result, marker.coordinator_epoch),
                self._broker.view.clock.wall_ms(),
                getattr(marker, "transaction_version", TRANSACTION_VERSION_0),
            )
            request = ProduceRequest(named, batch, ACKS_ALL, MARKER_TIMEOUT_MS)

            def complete(response: ProduceResponse) -> None:
                put(response.error)

            self._broker.face().produce_then(request, complete)
        except StratalogError as error:
            put(error)


def _written(call: Call, errors: dict[Any, StratalogError | None]) -> Values:
    return {
        "markers": [
            {
                "producer_id": marker.producer_id,
                "topics": [
                    {
                        "name": topic.name,
                        "partitions": [
                            {"partition_index": p, "error_code": errors[number, TopicPartition(topic.name, p)]}
                            for p in topic.partition_indexes
                        ],
                    }
                    for topic in marker.topics
                ],
            }
            for number, marker in enumerate(call.request.markers)
        ]
    }


def _partition_error(partition: int, error: StratalogError) -> Values:
    return {"partition_index": partition, **failed(error)}


def _no_producers(call: Call, error: StratalogError) -> Values:
    return {
        "topics": [
            {"name": topic.name, "partitions": [_partition_error(p, error) for p in topic.partition_indexes]}
            for topic in call.request.topics
        ]
    }


def _none_described(call: Call, error: StratalogError) -> Values:
    return {
        "transaction_states": [
            {"error_code": error, "transactional_id": name} for name in call.request.transactional_ids
        ]
    }


def _none_written(call: Call, error: StratalogError) -> Values:
    places = (
        (number, TopicPartition(topic.name, p))
        for number, marker in enumerate(call.request.markers)
        for topic in marker.topics
        for p in topic.partition_indexes
    )
    return _written(call, dict.fromkeys(places, error))
