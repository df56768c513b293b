"""Requests that a coordinator on this broker answers. I/O: through the broker; its thread answers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

from stratalog.replication.coordinator.transactions.add_partitions import (
    Ask,
    Retries,
    ask_while_ending,
    coordinator_asker,
)
from stratalog.replication.metadata.acls import Operation, ResourceType
from stratalog.replication.requests.coordinators import CoordinatorType
from stratalog.replication.requests.messages import error_response
from stratalog.replication.requests.transactions import TRANSACTION_VERSION_2
from stratalog.server.bootstrap import BrokerFace
from stratalog.server.request.api import Body, Call, as_error, gather_in_turns
from stratalog.server.request.broker import ASIDE_COUNT, ServedBroker
from stratalog.storage.errors import NotCoordinatorError, NotLeaderOrFollowerError, RequestTimedOutError, StratalogError

RESOURCES = {CoordinatorType.GROUP: ResourceType.GROUP, CoordinatorType.TRANSACTION: ResourceType.TRANSACTIONAL_ID}


def coordinating_face(broker: ServedBroker) -> BrokerFace:
    """The broker as a host of coordinators. NotCoordinatorError when it has stopped."""
    try:
        return broker.face()
    except NotLeaderOrFollowerError as reason:
        raise NotCoordinatorError(str(reason)) from reason


def transaction_asker(broker: ServedBroker, transaction_version: int) -> Ask:
    """Sends questions about transactions to their coordinators. Under version 2, where the question adds a partition,
    it is repeated while the markers of the last transaction are under way."""
    asker = coordinator_asker(lambda: broker.view.image, broker.peers())
    if transaction_version < TRANSACTION_VERSION_2:
        return asker
    config, scheduler = broker.config, broker.scheduler
    retries = Retries(
        config.add_partitions_to_txn_retry_backoff_ms,
        config.add_partitions_to_txn_retry_backoff_max_ms,
        scheduler.now_ms,
        scheduler.schedule_once,
    )
    return ask_while_ending(asker, retries)


def ask(
    broker: ServedBroker,
    call: Call,
    kind: CoordinatorType,
    key: str,
    request: object,
    body: Callable[[Any], Body],
    refused: Callable[[StratalogError], Body],
) -> None:
    """Have the coordinator of a key answer a call: with `body` of its response, or with `refused` of its error."""

    asked_count = _count(request)

    def answer(answered: object) -> None:
        error = as_error(answered)
        make = partial(body, answered) if error is None else partial(refused, error)
        broker.aside(call, lambda: call.respond_with(make), max(_count(answered), asked_count))

    coordinating_face(broker).coordinator(kind, key, request, answer)


@dataclass(frozen=True, slots=True)
class Split:
    """A request for several groups or transactional ids, which have one coordinator each.

    operation  that the caller must be allowed on each
    request    the coordinator's request for one name
    part       the part of the answer for one name and the coordinator's response
    refused    the same for an error
    joined     the answer with all parts
    """

    kind: CoordinatorType
    operation: Operation
    request: Callable[[str], object]
    part: Callable[[str, Any], Any]
    refused: Callable[[str, StratalogError], Any]
    joined: Callable[[tuple[Any, ...]], Body]


def ask_each(broker: ServedBroker, call: Call, names: Iterable[str], split: Split) -> None:
    """Ask the coordinator of each distinct name, and answer with all parts, in order."""
    distinct = list(dict.fromkeys(names))
    ended = RequestTimedOutError(f"the connection of {call.connection.peer} has ended")

    def ask_one(name: str, put: Callable[[object], None]) -> None:
        if split.operation is Operation.DESCRIBE and call.connection.memory.is_over:
            put(ended)  # nobody gets the answer
            return
        broker.check(call, split.operation, RESOURCES[split.kind], name)
        coordinating_face(broker).coordinator(split.kind, name, split.request(name), put)

    def part(name: str, answer: object) -> Any:
        error = as_error(answer)
        return split.part(name, answer) if error is None else split.refused(name, error)

    def done(answers: dict[str, object]) -> None:
        def make() -> Body:
            return split.joined(tuple(part(name, answers[name]) for name in distinct))

        broker.aside(call, lambda: call.respond_with(make), _count_of_all(answers.values()))

    gather_in_turns(distinct, ask_one, done, elsewhere=call.aside)


def ask_all(
    broker: ServedBroker,
    call: Call,
    kind: CoordinatorType,
    request: object,
    body: Callable[[list[Any], StratalogError | None], Body],
) -> None:
    """Have all coordinators of a kind on this broker answer a call: with `body` of their responses and of the first
    error, if one of them fails."""

    def answer(answers: list[object]) -> None:
        error = next(filter(None, (as_error(each) or getattr(each, "error", None) for each in answers)), None)
        responses = [each for each in answers if as_error(each) is None]
        broker.aside(call, lambda: call.respond_with(lambda: body(responses, error)))

    coordinating_face(broker).every_coordinator(kind, request, answer)


def refused_whole(call: Call, error: StratalogError) -> Body:
    """The answer to a request of coordinators that is refused as a whole."""
    response: Body = error_response(call.request, error)
    return response


def _count_of_all(responses: Collection[object]) -> int:
    """About how many parts these responses have, as far as `ServedBroker.aside` asks for it: the broker's loop counts
    them, and one request may have 100,000."""
    count = len(responses)
    for response in responses if count < ASIDE_COUNT else ():
        count += _count(response)
        if count >= ASIDE_COUNT:
            break
    return count


def _count(response: object) -> int:
    """About how many parts a response has."""
    topics: Iterable[Any] = getattr(response, "topics", None) or ()
    groups: Iterable[Any] = getattr(response, "groups", None) or ()
    members = getattr(response, "members", None) or ()
    below = sum(_count(each) for each in groups)
    return 1 + len(members) + below + sum(1 + len(getattr(each, "partitions", ())) for each in topics)
