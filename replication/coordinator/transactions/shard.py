"""The transaction coordinator of one partition of `__transaction_state`, as a shard. Pure.

A request becomes a record with the next state of its transactional id, and an answer that waits until it is committed.
A committed Prepare sends markers to the leaders of the transaction's partitions (effects); when all have theirs,
Complete is written. After a failover the new coordinator finds Prepare in the log and sends all markers again: a second
marker does no harm to a partition. Kafka: `TransactionCoordinator`, `TransactionMarkerChannelManager`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

from stratalog.replication import cadence
from stratalog.replication.config import BrokerConfig
from stratalog.replication.coordinator.shard.metrics import Held, transactions_held
from stratalog.replication.coordinator.shard.shard import (
    Answered,
    CoordinatorRecord,
    Decision,
    HeldGroup,
    RemoteAppend,
    RemoteAppended,
    ShardPlace,
    size_bytes,
)
from stratalog.replication.coordinator.shard.timers import ShardTimers
from stratalog.replication.coordinator.transactions.records import (
    tombstone,
    transaction_of,
    transaction_record,
    transactional_id_of,
)
from stratalog.replication.coordinator.transactions.transaction import (
    STATE_OF_LABEL,
    Transaction,
    TransactionState,
    completed,
    fenced,
    initialized,
    is_ended_already,
    needs_next_producer_id,
    needs_producer_id,
    prepared,
    verified,
    with_partitions,
)
from stratalog.replication.internal_topics import TRANSACTION_STATE_TOPIC
from stratalog.replication.metadata.image import ClusterImage
from stratalog.replication.requests.messages import error_response, has_error_response
from stratalog.replication.requests.transactions import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionDescription,
    TransactionListing,
    TransactionTopic,
)
from stratalog.storage import errors
from stratalog.storage.errors import StratalogError
from stratalog.storage.records import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, TopicPartition
from stratalog.storage.topic_config import LogConfig
from stratalog.storage.transactions import EndMarker, marker_batch
from stratalog.wire.consumer_protocol import partitions_by_topic

EXPIRED_AT_ONCE = 200
EXPIRED_BYTES = 256 << 10
"""Number of time-outs in one decision, and the size of its records from which there are no more: they are one batch."""
PARTITIONS_SHARE = 2
"""A transaction's record takes one part of so many of a batch: ids and states of later steps have room in it, too."""


class MarkerContext(NamedTuple):
    """The end of a transaction that a marker is of; late answers about an earlier one are ignored."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    is_commit: bool


class _Due(NamedTuple):
    """A timer: a transaction's time-out or an id's expiry (no partition), or a marker to be sent again."""

    transactional_id: str
    partition: TopicPartition | None = None


class TransactionShard:
    """One partition's coordinator under the leader epoch `coordinator_epoch`."""

    def __init__(
        self,
        coordinator_epoch: int,
        config: BrokerConfig,
        image: Callable[[], ClusterImage],
        producer_ids: Callable[[], int | None],
    ) -> None:
        self._coordinator_epoch = coordinator_epoch
        self._config = config
        self._image = image
        self._producer_ids = producer_ids
        self._transactions: dict[str, Transaction] = {}
        self._decided: dict[str, tuple[CoordinatorRecord, Transaction]] = {}
        self._unmarked: dict[str, set[TopicPartition]] = {}
        self._fenced: set[str] = set()
        self._timers: ShardTimers[_Due] = ShardTimers()

    @staticmethod
    def at(place: ShardPlace) -> TransactionShard:
        """The shard for a place, as the runtime makes it."""
        return TransactionShard(place.leader_epoch, place.config, place.image, place.producer_ids)

    # -- the fold ------------------------------------------------------------------------------------------

    def replay(
        self,
        record: CoordinatorRecord,
        timestamp_ms: int,  # noqa: ARG002 - the values have their own times
        producer_id: int = NO_PRODUCER_ID,  # noqa: ARG002 - this topic has no transactional records
        producer_epoch: int = NO_PRODUCER_EPOCH,  # noqa: ARG002
    ) -> None:
        """The next state of a transactional id; of a decision of this shard with the fields that are not in the log."""
        transactional_id = transactional_id_of(record.key)
        if transactional_id is None:
            return
        if record.value is None:
            self._transactions.pop(transactional_id, None)
            self._unmarked.pop(transactional_id, None)
            self._timers.cancel(_Due(transactional_id))
            return
        decided = self._decided.get(transactional_id)
        is_own = decided is not None and decided[0] == record
        after = decided[1] if decided and is_own else transaction_of(transactional_id, record.value)
        if is_own:
            del self._decided[transactional_id]
        self._fenced.discard(transactional_id)
        self._transactions[transactional_id] = after
        if after.state.is_prepared:
            self._unmarked[transactional_id] = set(after.partitions)
        else:
            self._unmarked.pop(transactional_id, None)
        self._schedule(after)

    def replay_end_transaction(self, producer_id: int, producer_epoch: int, is_commit: bool) -> None:
        """`__transaction_state` has no transactional records."""

    def _schedule(self, after: Transaction) -> None:
        due = _Due(after.transactional_id)
        if after.deadline_ms is not None:
            self._timers.schedule(due, after.deadline_ms + 1)
        elif after.state.may_expire:
            self._timers.schedule(due, after.updated_ms + self._config.transactional_id_expiration_ms)
        else:
            self._timers.cancel(due)

    # -- requests ------------------------------------------------------------------------------------------

    def decide(self, request: object, token: int, now_ms: int) -> Decision:
        """See `replication.requests.transactions` for the responses; they contain errors."""
        if isinstance(request, RemoteAppended):
            return self._marker_written(request, now_ms)
        try:
            return self._decided_on(request, token, now_ms)
        except StratalogError as refusal:
            return Decision(answers=(Answered(token, _refused(request, refusal.as_value())),))

    def _decided_on(self, request: object, token: int, now_ms: int) -> Decision:
        if not _names_all(request):
            raise errors.InvalidRequestError("a transactional id is needed")
        handlers: dict[type, Callable[[Any, int, int], Decision]] = {
            InitProducerIdRequest: self._initialize,
            AddPartitionsToTxnRequest: self._add_partitions,
            AddOffsetsToTxnRequest: self._add_offsets,
            EndTxnRequest: self._end,
            DescribeTransactionsRequest: self._describe,
            ListTransactionsRequest: self._list,
        }
        handler = handlers.get(type(request))
        if handler is None:
            raise errors.UnknownServerError(f"a transaction coordinator knows no {type(request).__name__}")
        return handler(request, token, now_ms)

    def _initialize(self, request: InitProducerIdRequest, token: int, now_ms: int) -> Decision:
        longest_ms = self._config.transaction_max_timeout_ms
        if not 0 < request.transaction_timeout_ms <= longest_ms:
            raise errors.InvalidTransactionTimeoutError(
                f"transaction timeout {request.transaction_timeout_ms} ms is not within 1 to "
                f"transaction.max.timeout.ms {longest_ms}"
            )
        known = self._transactions.get(request.transactional_id or "")
        new_id = self._new_producer_id() if needs_producer_id(known, request) else NO_PRODUCER_ID
        after = initialized(known, request, new_id, now_ms)
        response = InitProducerIdResponse(after.producer_id, after.producer_epoch)
        if after.state.is_prepared:
            response = InitProducerIdResponse(
                error=errors.ConcurrentTransactionsError(
                    f"the open transaction of {after.transactional_id} is aborted first"
                )
            )
        return self._stepped(after, now_ms, Answered(token, response))

    def _add_partitions(self, request: AddPartitionsToTxnRequest, token: int, now_ms: int) -> Decision:
        known = self._transactions.get(request.transactional_id)
        if request.verify_only:  # the transaction may have been ended by a coordinator that this one has not heard of
            answers = (Answered(token, AddPartitionsToTxnResponse(verified(known, request))),)
            return Decision(answers=answers, is_read=True)
        after = with_partitions(known, request, now_ms)
        self._check_fits(after)
        answer = Answered(token, AddPartitionsToTxnResponse(tuple((each, None) for each in request.topics)))
        return Decision(answers=(answer,)) if after is known else self._stepped(after, now_ms, answer)

    def _check_fits(self, after: Transaction) -> None:
        """UNKNOWN_SERVER_ERROR for more partitions than a record can name, as Kafka's failed append: a decision that
        the log refuses would cost the shard, for all of its transactions."""
        topic_config = self._image().topic_config(TRANSACTION_STATE_TOPIC)
        bytes_max = int(topic_config.get("max.message.bytes") or LogConfig().max_message_bytes)
        needed_bytes = size_bytes((transaction_record(after),))
        if PARTITIONS_SHARE * needed_bytes > bytes_max:
            raise errors.UnknownServerError(
                f"{after.transactional_id}: a record of {len(after.partitions)} partitions has {needed_bytes} bytes > "
                f"max.message.bytes {bytes_max} / {PARTITIONS_SHARE}"
            )

    def _add_offsets(self, request: AddOffsetsToTxnRequest, token: int, now_ms: int) -> Decision:
        known = self._transactions.get(request.transactional_id)
        asked = AddPartitionsToTxnRequest(
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            (request.offsets_partition,),
            transaction_version=request.transaction_version,
        )
        after = with_partitions(known, asked, now_ms)
        answer = Answered(token, AddOffsetsToTxnResponse())
        return Decision(answers=(answer,)) if after is known else self._stepped(after, now_ms, answer)

    def _end(self, request: EndTxnRequest, token: int, now_ms: int) -> Decision:
        known = self._transactions.get(request.transactional_id)
        if is_ended_already(known, request):
            assert known is not None
            return Decision(answers=(Answered(token, EndTxnResponse(known.producer_id, known.producer_epoch)),))
        assert known is not None
        next_id = self._new_producer_id() if needs_next_producer_id(known, request) else NO_PRODUCER_ID
        after = prepared(known, request, next_id, now_ms)
        going_on = completed(after, now_ms)
        answer = Answered(token, EndTxnResponse(going_on.producer_id, going_on.producer_epoch))
        return self._stepped(after, now_ms, answer)

    def _new_producer_id(self) -> int:
        producer_id = self._producer_ids()
        if producer_id is None:
            raise errors.CoordinatorLoadInProgressError("no producer id is at hand yet")
        return producer_id

    def _stepped(self, after: Transaction, now_ms: int, *answers: Answered) -> Decision:
        """The record of a step. A committed Prepare sends the markers; without partitions it is complete at once."""
        if not after.state.is_prepared:
            return Decision((self._record(after),), answers)
        if not after.partitions:
            return Decision((transaction_record(after), self._record(completed(after, now_ms))), answers)
        effects = tuple(self._markers(after, now_ms))
        return Decision((self._record(after),), answers, effects=effects)

    def _record(self, after: Transaction) -> CoordinatorRecord:
        record = transaction_record(after)
        self._decided[after.transactional_id] = (record, after)
        return record

    # -- markers -------------------------------------------------------------------------------------------

    def _markers(
        self, ending: Transaction, now_ms: int, partitions: Iterable[TopicPartition] | None = None
    ) -> Iterator[RemoteAppend]:
        """One batch for all of its partitions, or for these: making one costs more than sending it."""
        marker, context = EndMarker(ending.is_commit, self._coordinator_epoch), _context_of(ending)
        batch = marker_batch(ending.producer_id, ending.producer_epoch, marker, now_ms, ending.transaction_version)
        for partition in sorted(ending.partitions) if partitions is None else partitions:
            yield RemoteAppend(partition, batch, context)

    def _marker_written(self, outcome: RemoteAppended, now_ms: int) -> Decision:
        """A partition has its marker, or the marker is sent again later.

        A partition of a deleted topic needs none. If one knows a newer epoch or coordinator, another broker decides by
        now: no more markers are sent, and Complete is not written.
        """
        context = outcome.context
        if not isinstance(context, MarkerContext):
            return Decision()
        known = self._transactions.get(context.transactional_id)
        if known is None or not known.state.is_prepared or _context_of(known) != context:
            return Decision()
        if isinstance(outcome.error, (errors.InvalidProducerEpochError, errors.TransactionCoordinatorFencedError)):
            self._fenced.add(known.transactional_id)
            return Decision()
        if outcome.error is not None and self._exists(outcome.topic_partition):
            self._timers.schedule(
                _Due(known.transactional_id, outcome.topic_partition), now_ms + cadence.MARKER_RETRY.ms
            )
            return Decision()
        return self._marked(known, [outcome.topic_partition], now_ms)

    def _marked(self, known: Transaction, partitions: Iterable[TopicPartition], now_ms: int) -> Decision:
        unmarked = self._unmarked[known.transactional_id]
        unmarked.difference_update(partitions)
        if unmarked:
            return Decision()
        return Decision((self._record(completed(known, now_ms)),))

    def _exists(self, partition: TopicPartition) -> bool:
        return partition in self._image().partitions

    # -- time ----------------------------------------------------------------------------------------------

    def loaded(self, now_ms: int) -> Decision:
        """Sends the markers of every transaction in Prepare again."""
        records: list[CoordinatorRecord] = []
        effects: list[RemoteAppend] = []
        for known in [each for each in self._transactions.values() if each.state.is_prepared]:
            if not known.partitions:
                records.append(self._record(completed(known, now_ms)))
            effects.extend(self._markers(known, now_ms))
        return Decision(tuple(records), effects=tuple(effects))

    def expire(self, now_ms: int) -> Decision:
        """Abort transactions after their time-out, remove ids that are no longer used, send markers again."""
        records: list[CoordinatorRecord] = []
        effects: list[RemoteAppend] = []
        filled_bytes = 0
        for due in islice(self._timers.pop_due(now_ms), EXPIRED_AT_ONCE):
            known = self._transactions.get(due.transactional_id)
            if known is None:
                continue
            decision = self._expired(known, due.partition, now_ms)
            records.extend(decision.records)
            effects.extend(decision.effects)
            filled_bytes += size_bytes(decision.records)
            if filled_bytes > EXPIRED_BYTES:
                break
        return Decision(tuple(records), effects=tuple(effects))

    def _expired(self, known: Transaction, partition: TopicPartition | None, now_ms: int) -> Decision:
        if partition is not None:
            is_wanted = partition in self._unmarked.get(known.transactional_id, ())
            if not is_wanted or known.transactional_id in self._fenced:
                return Decision()
            if not self._exists(partition):
                return self._marked(known, [partition], now_ms)
            return Decision(effects=tuple(self._markers(known, now_ms, (partition,))))
        if known.state is TransactionState.ONGOING:
            return self._stepped(fenced(known, now_ms), now_ms)
        return Decision((tombstone(known.transactional_id),)) if known.state.may_expire else Decision()

    @property
    def next_due_ms(self) -> int | None:
        return self._timers.next_due_ms

    def groups(self) -> Sequence[HeldGroup]:
        """None: transactions have no groups."""
        return ()

    def held(self) -> Counter[Held]:
        return transactions_held(each.state.label for each in list(self._transactions.values()))

    def unload(self, error: StratalogError) -> tuple[Answered, ...]:  # noqa: ARG002
        """No request waits here."""
        return ()

    # -- requests of admin clients ---------------------------------------------------------------------------

    def _describe(self, request: DescribeTransactionsRequest, token: int, _now_ms: int) -> Decision:
        states = tuple(map(self._described, request.transactional_ids))
        return Decision(answers=(Answered(token, DescribeTransactionsResponse(states)),))

    def _described(self, transactional_id: str) -> TransactionDescription:
        known = self._transactions.get(transactional_id)
        if known is None:
            error = errors.TransactionalIdNotFoundError(f"transactional id {transactional_id} is not known")
            return TransactionDescription(transactional_id, error=error)
        topics = partitions_by_topic(sorted(self._unmarked.get(transactional_id, known.partitions)))
        return TransactionDescription(
            transactional_id,
            known.state.label,
            known.timeout_ms,
            known.started_ms,
            known.producer_id,
            known.producer_epoch,
            tuple(TransactionTopic(topic, tuple(numbers)) for topic, numbers in topics.items()),
        )

    def _list(self, request: ListTransactionsRequest, token: int, now_ms: int) -> Decision:
        found = [each for each in self._transactions.values() if _is_listed(each, request, now_ms)]
        response = ListTransactionsResponse(
            tuple(TransactionListing(each.transactional_id, each.producer_id, each.state.label) for each in found),
            tuple(label for label in request.state_filters if label not in STATE_OF_LABEL),
        )
        return Decision(answers=(Answered(token, response),))


def _names_all(request: object) -> bool:
    """Whether it has the transactional ids that it needs."""
    match request:
        case ListTransactionsRequest():
            return True
        case DescribeTransactionsRequest():
            return all(request.transactional_ids)
        case _:
            return bool(getattr(request, "transactional_id", None))


def _is_listed(known: Transaction, request: ListTransactionsRequest, now_ms: int) -> bool:
    if request.state_filters and known.state.label not in request.state_filters:
        return False
    if request.producer_id_filters and known.producer_id not in request.producer_id_filters:
        return False
    if request.duration_filter < 0:
        return True
    return known.started_ms >= 0 and now_ms - known.started_ms > request.duration_filter


def _context_of(ending: Transaction) -> MarkerContext:
    return MarkerContext(ending.transactional_id, ending.producer_id, ending.producer_epoch, ending.is_commit)


def _refused(request: object, refusal: StratalogError) -> object:
    """The response to a request that was refused."""
    if isinstance(request, AddPartitionsToTxnRequest):
        return AddPartitionsToTxnResponse(tuple((each, refusal) for each in request.topics))
    return error_response(request, refusal) if has_error_response(request) else refusal
