"""Requests of producers for transactions: ids, partitions, offsets, the end.

I/O: the metadata log, for ids; coordinators.

An idempotent producer gets its id from this broker's block. The transaction coordinator answers everything else.
Offsets are committed by the group's coordinator, after the transaction's coordinator has added them to the transaction.
Source: `KafkaApis.handleInitProducerIdRequest` and its neighbours, `TransactionCoordinator`, `RPCProducerIdManager`
(KIP-98, KIP-360, KIP-447, KIP-730, KIP-890).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from stratalog.replication.controller.producer_id_blocks import allocate_producer_ids
from stratalog.replication.coordinator.runtime.find_coordinator import coordinator_partition
from stratalog.replication.coordinator.transactions.add_partitions import commit_in_transaction
from stratalog.replication.metadata.acls import Operation, ResourceType
from stratalog.replication.requests.coordinators import CoordinatorType
from stratalog.replication.requests.groups import (
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)
from stratalog.replication.requests.transactions import (
    TRANSACTION_VERSION_0,
    TRANSACTION_VERSION_2,
    AddPartitionsToTxnRequest,
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from stratalog.server.request.api import Api, Body, Call, by_topic, error_only, gather_in_turns
from stratalog.server.request.broker import ApiFamily, ServedBroker
from stratalog.server.request.coordinators import ask, coordinating_face, refused_whole, transaction_asker
from stratalog.server.request.offset_commits import commit_in_pieces, offset_pieces, once_each
from stratalog.storage import errors
from stratalog.storage.errors import StratalogError
from stratalog.storage.records import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, TopicPartition
from stratalog.wire.api_keys import ApiKey
from stratalog.wire.messages.values import Values

_Known = Mapping[TopicPartition, object]
"""The partitions that exist: read once for a request."""
INIT_PRODUCER_ID_MAX = 5
"""Version 6 is unstable in Kafka 4.3; its transactions in two phases (KIP-939) are not here."""
FENCED_FROM: Mapping[int, int] = {
    ApiKey.INIT_PRODUCER_ID: 4,
    ApiKey.ADD_PARTITIONS_TO_TXN: 2,
    ApiKey.ADD_OFFSETS_TO_TXN: 2,
    ApiKey.END_TXN: 2,
}
"""The first versions with PRODUCER_FENCED; before, it is INVALID_PRODUCER_EPOCH."""
SEVERAL_TRANSACTIONS_FROM = 4
ABORTABLE_FROM = 4
"""The first version of TxnOffsetCommit with TRANSACTION_ABORTABLE; before, it is INVALID_TXN_STATE."""
EPOCH_BUMP_FROM: Mapping[int, int] = {ApiKey.END_TXN: 5, ApiKey.TXN_OFFSET_COMMIT: 5}
Errors = Mapping[TopicPartition, StratalogError | None]


class ClientProducerIds:
    """Fresh producer ids of one broker, taken from the metadata log in blocks. Any thread may use it."""

    def __init__(self, broker: ServedBroker) -> None:
        self._broker = broker
        self._lock = threading.Lock()
        self._left = iter(range(0))

    def next(self) -> int:
        """An unused id. Commits once in a block of 1,000."""
        with self._lock:
            for producer_id in self._left:
                return producer_id
            allocate = partial(allocate_producer_ids, broker_id=self._broker.broker_id)
            self._left = iter(self._broker.view.propose(allocate))
            return next(self._left)


class TransactionApis(ApiFamily):
    def __init__(self, broker: ServedBroker) -> None:
        super().__init__(broker)
        self._ids = ClientProducerIds(broker)

    def apis(self) -> Iterable[Api]:
        return [
            Api(ApiKey.INIT_PRODUCER_ID, self._init_producer_id, _id_refused, newest=INIT_PRODUCER_ID_MAX),
            Api(ApiKey.ADD_PARTITIONS_TO_TXN, self._add_partitions, _partitions_refused),
            Api(ApiKey.ADD_OFFSETS_TO_TXN, self._add_offsets, error_only),
            Api(ApiKey.END_TXN, self._end, _id_refused),
            Api(ApiKey.TXN_OFFSET_COMMIT, self._commit_offsets, refused_whole),
        ]

    # -- InitProducerId, AddOffsetsToTxn, EndTxn -----------------------------------------------------------------

    def _init_producer_id(self, call: Call) -> Body | None:
        request: InitProducerIdRequest = call.request
        self._check_init(call, request)
        if request.transactional_id is None:
            return InitProducerIdResponse(self._ids.next(), 0)
        self._ask(call, request.transactional_id, request)
        return None

    def _check_init(self, call: Call, request: InitProducerIdRequest) -> None:
        name = request.transactional_id
        if name is not None:
            self._broker.check(call, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, name)
        elif (authorizer := self._broker.authorizer) is not None:
            principal = call.connection.principal
            if not authorizer.may_write_idempotently(principal):
                raise errors.ClusterAuthorizationFailedError(f"{principal.name} may not write to any topic")
        if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_PRODUCER_EPOCH):
            raise errors.InvalidRequestError(
                f"producer id {request.producer_id} and epoch {request.producer_epoch} come together or not at all"
            )

    def _add_offsets(self, call: Call) -> None:
        asked = call.request
        self._broker.check(call, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, asked.transactional_id)
        self._broker.check(call, Operation.READ, ResourceType.GROUP, asked.group_id)
        partition = self._offsets_partition(asked.group_id)
        self._ask(call, asked.transactional_id, replace(asked, offsets_partition=partition))

    def _end(self, call: Call) -> None:
        self._broker.check(call, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, call.request.transactional_id)
        request = replace(call.request, transaction_version=_transaction_version(call))
        self._ask(call, request.transactional_id, request)

    def _ask(self, call: Call, transactional_id: str, request: object) -> None:
        def body(response: Any) -> Body:
            known: Body = replace(response, error=response.error and _known_error(call, response.error))
            return known

        def refused(error: StratalogError) -> Body:
            return _id_refused(call, error)

        if not transactional_id:
            call.respond(refused(errors.InvalidRequestError("the transactional id is empty")))
            return
        ask(self._broker, call, CoordinatorType.TRANSACTION, transactional_id, request, body, refused)

    def _offsets_partition(self, group_id: str) -> TopicPartition:
        found = coordinator_partition(self._broker.image(), CoordinatorType.GROUP, group_id)
        if found is None:
            raise errors.CoordinatorNotAvailableError(f"group '{group_id}' has no coordinator yet")
        return found

    # -- AddPartitionsToTxn ------------------------------------------------------------------------------------

    def _add_partitions(self, call: Call) -> None:
        """Below version 4 one transaction, by its producer; from then on several, by brokers (KIP-890)."""
        if call.version >= SEVERAL_TRANSACTIONS_FROM:
            self._broker.check(call, Operation.CLUSTER_ACTION, ResourceType.CLUSTER)
        asked, known = _transactions(call), self._broker.image(0).partitions

        def add(number: int, put: Callable[[Any], None]) -> None:
            self._add(call, asked[number], known, put)

        def done(answers: dict[int, Any]) -> None:
            call.respond_with(lambda: _added(call, asked, [answers[number] for number in range(len(asked))]))

        gather_in_turns(range(len(asked)), add, done, elsewhere=call.aside)

    def _add(self, call: Call, request: AddPartitionsToTxnRequest, known: _Known, put: Callable[[Any], None]) -> None:
        """One transaction: all of its partitions, or none if the caller may not write to one of them.

        A broker asks for producers whose rights it has checked, so that ClusterAction suffices.
        """
        is_broker = call.version >= SEVERAL_TRANSACTIONS_FROM
        if not is_broker:
            self._broker.check(call, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id)
        refused = self._refused(call, request.topics, known, is_allowed=is_broker)
        if refused:
            rest = errors.OperationNotAttemptedError("another partition of the transaction was refused")
            put({named: refused.get(named, rest) for named in request.topics})
            return

        def answer(answered: Any) -> None:
            put(answered if isinstance(answered, StratalogError) else dict(answered.results))

        face = coordinating_face(self._broker)
        face.coordinator(CoordinatorType.TRANSACTION, request.transactional_id, request, answer)

    def _refused(
        self, call: Call, partitions: Sequence[TopicPartition], known: _Known, *, is_allowed: bool
    ) -> dict[TopicPartition, StratalogError]:
        """The error of each partition that the caller may not write to, or that does not exist."""
        refused: dict[TopicPartition, StratalogError] = {}
        for named in partitions:
            refusal = None
            if not is_allowed:
                refusal = self._broker.refusal(call, Operation.WRITE, ResourceType.TOPIC, named.topic)
            if refusal is None and named not in known:
                refusal = errors.UnknownTopicOrPartitionError(f"{named} does not exist")
            if refusal is not None:
                refused[named] = refusal
        return refused

    # -- TxnOffsetCommit -----------------------------------------------------------------------------------------

    def _commit_offsets(self, call: Call) -> None:
        asked = call.request
        self._broker.check(call, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, asked.transactional_id)
        self._broker.check(call, Operation.READ, ResourceType.GROUP, asked.group_id)
        refused: dict[str, list[OffsetCommitResponsePartition]] = {}
        topics: list[OffsetCommitRequestTopic] = []
        topic_ids = self._broker.image().topic_ids
        named = (replace(topic, topic_id=topic_ids.get(topic.name, "")) for topic in asked.topics)
        for topic in once_each(named):
            refusals = self._commit_refusals(call, topic)
            allowed = tuple(each for each in topic.partitions if each.partition_index not in refusals)
            if allowed:
                topics.append(replace(topic, partitions=allowed))
            refused[topic.name] = [
                OffsetCommitResponsePartition(each.partition_index, refusals[each.partition_index])
                for each in topic.partitions
                if each.partition_index in refusals
            ]

        def body(answered: Iterable[OffsetCommitResponseTopic]) -> TxnOffsetCommitResponse:
            answers = {topic.name: topic.partitions for topic in answered}
            joined = (
                OffsetCommitResponseTopic(name, (*answers.get(name, ()), *rest)) for name, rest in refused.items()
            )
            return TxnOffsetCommitResponse(tuple(joined))

        if topics:
            self._commit_in_transaction(call, replace(asked, topics=tuple(topics)), body)
        else:
            call.respond(body(()))

    def _commit_refusals(self, call: Call, topic: Any) -> dict[int, StratalogError]:
        """The partitions whose offsets the client may not commit, or that do not exist."""
        image = self._broker.image()
        refusal = self._broker.refusal(call, Operation.READ, ResourceType.TOPIC, topic.name)
        known = {named.partition for named in image.partitions_of(topic.name)}
        unknown = errors.UnknownTopicOrPartitionError(f"topic '{topic.name}' does not have this partition")
        return {
            each.partition_index: refusal or unknown
            for each in topic.partitions
            if refusal is not None or each.partition_index not in known
        }

    def _commit_in_transaction(
        self,
        call: Call,
        request: TxnOffsetCommitRequest,
        body: Callable[[Iterable[OffsetCommitResponseTopic]], TxnOffsetCommitResponse],
    ) -> None:
        """Ask the group's coordinator, here, and first the transaction's, which may be on another broker. Each piece of
        a large commit is a decision of its own, in the same transaction."""
        ask_group = partial(coordinating_face(self._broker).coordinator, CoordinatorType.GROUP, request.group_id)
        partition, version = self._offsets_partition(request.group_id), _transaction_version(call)

        def ask_piece(piece: TxnOffsetCommitRequest, put: Callable[[object], None]) -> None:
            commit_in_transaction(
                ask_group,
                transaction_asker(self._broker, version),
                piece,
                partition,
                version,
                put,
                is_abortable_known=call.version >= ABORTABLE_FROM,
            )

        def done(make: Callable[[], OffsetCommitResponse]) -> None:
            parts = sum(1 + len(topic.partitions) for topic in request.topics)
            self._broker.aside(call, lambda: call.respond_with(lambda: body(make().topics)), parts)

        pieces = offset_pieces(request.topics)
        commit_in_pieces([replace(request, topics=piece) for piece in pieces], ask_piece, done)


def _transaction_version(call: Call) -> int:
    bumps = call.version >= EPOCH_BUMP_FROM[call.api_key]
    return TRANSACTION_VERSION_2 if bumps else TRANSACTION_VERSION_0


def _known_error(call: Call, error: StratalogError) -> StratalogError:
    """The error as the client knows it: PRODUCER_FENCED is INVALID_PRODUCER_EPOCH for older ones."""
    if isinstance(error, errors.ProducerFencedError) and call.version < FENCED_FROM.get(call.api_key, 0):
        return errors.InvalidProducerEpochError(str(error))
    return error


def _transactions(call: Call) -> list[AddPartitionsToTxnRequest]:
    """The transactions of an AddPartitionsToTxn request: one below version 4."""
    asked = call.request
    if call.version >= SEVERAL_TRANSACTIONS_FROM:  # a leader adds partitions for clients whose epoch is bumped
        return [
            AddPartitionsToTxnRequest(
                each.transactional_id,
                each.producer_id,
                each.producer_epoch,
                _flat(each.topics),
                each.verify_only,
                TRANSACTION_VERSION_0 if each.verify_only else TRANSACTION_VERSION_2,
            )
            for each in asked.transactions
        ]
    return [
        AddPartitionsToTxnRequest(
            asked.v3_and_below_transactional_id,
            asked.v3_and_below_producer_id,
            asked.v3_and_below_producer_epoch,
            _flat(asked.v3_and_below_topics),
        )
    ]


def _flat(topics: Iterable[Any]) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition(topic.name, partition) for topic in topics for partition in topic.partitions)


def _added(
    call: Call, asked: Sequence[AddPartitionsToTxnRequest], answers: Sequence[Errors | StratalogError]
) -> Values:
    """The answer to AddPartitionsToTxn: for each transaction the error of each partition, or one for all of them."""
    results = [
        {
            "transactional_id": request.transactional_id,
            "topic_results": _topic_results(
                call, dict.fromkeys(request.topics, answer) if isinstance(answer, StratalogError) else answer
            ),
        }
        for request, answer in zip(asked, answers, strict=True)
    ]
    if call.version >= SEVERAL_TRANSACTIONS_FROM:
        return {"error_code": None, "results_by_transaction": results}
    return {"results_by_topic_v3_and_below": results[0]["topic_results"]}


def _topic_results(call: Call, refusals: Errors) -> list[Values]:
    return [
        {
            "name": topic,
            "results_by_partition": [
                {"partition_index": partition, "partition_error_code": error and _known_error(call, error)}
                for partition, error in partitions
            ],
        }
        for topic, partitions in by_topic(refusals)
    ]


def _id_refused(call: Call, error: StratalogError) -> Body:
    return refused_whole(call, _known_error(call, error))


def _partitions_refused(call: Call, error: StratalogError) -> Values:
    if call.version >= SEVERAL_TRANSACTIONS_FROM:
        return {"error_code": error}
    return _added(call, _transactions(call), [error])
