"""FindCoordinator, and how requests reach a coordinator on this broker. I/O: through the broker; its thread answers.

Source: `KafkaApis.handleFindCoordinatorRequest` (KIP-699).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from stratalog.clients.bootstrap import BrokerFace
from stratalog.clients.kafka.protocol.entities import Values
from stratalog.clients.kafka.protocol.frames import served_versions
from stratalog.clients.kafka.protocol.values import as_error, message_of
from stratalog.clients.kafka.request.api import Api, Call, Joined, top_level_error
from stratalog.clients.kafka.request.broker import ServedBroker
from stratalog.replication.metadata.acls import Operation, ResourceType
from stratalog.replication.requests.coordinators import (
    NO_NODE,
    Coordinator,
    CoordinatorType,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from stratalog.storage.errors import (
    CoordinatorNotAvailableError,
    InvalidRequestError,
    NotCoordinatorError,
    NotLeaderOrFollowerError,
    StratalogError,
)

FIND_COORDINATOR = 10
KEYS_FROM = 4
_KINDS = {kind.value: kind for kind in CoordinatorType}
_RESOURCES = {
    CoordinatorType.GROUP: ResourceType.GROUP,
    CoordinatorType.TRANSACTION: ResourceType.TRANSACTIONAL_ID,
}


def coordinating_face(broker: ServedBroker) -> BrokerFace:
    """The broker as a host of coordinators. NotCoordinatorError when it does not run any more."""
    try:
        return broker.face()
    except NotLeaderOrFollowerError as reason:
        raise NotCoordinatorError(str(reason)) from reason


def ask(
    broker: ServedBroker,
    call: Call,
    kind: CoordinatorType,
    key: str,
    request: object,
    values: Callable[[Any], Values],
    refused: Callable[[StratalogError], Values],
) -> None:
    """Have the coordinator of a key answer a call: `values` of its response, or `refused` with its error."""

    def answer(answered: object) -> None:
        if isinstance(answered, StratalogError):
            call.respond_with(partial(refused, answered))
        else:
            call.respond_with(partial(values, answered))

    coordinating_face(broker).coordinator(kind, key, request, answer)


class AskedGroups:
    """A request for several groups, one coordinator at a time."""

    def __init__(
        self,
        group_ids: Iterable[str],
        operation: Operation,
        request: Callable[[str], Any],
        values: Callable[[str, Any], Values],
        refused: Callable[[str, StratalogError], Values],
    ) -> None:
        self.group_ids = group_ids
        self.operation = operation
        self.request = request
        self._values = values
        self._refused = refused

    def told(self, group_id: str, answer: object) -> Values:
        error = as_error(answer)
        return self._values(group_id, answer) if error is None else self._refused(group_id, error)


def ask_each(broker: ServedBroker, call: Call, asked: AskedGroups, name: str) -> None:
    """Ask the coordinator of each group, and answer with all of them, as `name`, once the last one has answered."""
    group_ids = list(dict.fromkeys(asked.group_ids))

    def done(answers: dict[str, Any]) -> None:
        call.respond_with(lambda: {name: [asked.told(group_id, answers[group_id]) for group_id in group_ids]})

    joined = Joined(len(group_ids), done)
    if not group_ids:
        done({})
    for group_id in group_ids:
        refusal = broker.refusal(call, asked.operation, ResourceType.GROUP, group_id)
        if refusal is not None:
            joined.put(group_id, refusal)
            continue
        put = partial(joined.put, group_id)
        coordinating_face(broker).coordinator(CoordinatorType.GROUP, group_id, asked.request(group_id), put)


class Coordinators:
    """One broker's answers."""

    def __init__(self, broker: ServedBroker) -> None:
        self._broker = broker

    def apis(self) -> Iterable[Api]:
        # The first of a kind makes its topic, which is a commit; the broker's thread does that.
        return [Api(FIND_COORDINATOR, served_versions(FIND_COORDINATOR), self._find, _refused)]

    def _find(self, call: Call) -> None:
        kind = _KINDS.get(call.given("key_type", CoordinatorType.GROUP.value))
        if kind is None:
            raise InvalidRequestError(f"key type {call.request.key_type} is neither a group (0) nor a transaction (1)")
        keys = _keys(call)
        refused: dict[str, StratalogError] = {}
        for key in keys:
            refusal = self._broker.refusal(call, Operation.DESCRIBE, _RESOURCES[kind], key)
            if refusal is not None:
                refused[key] = refusal
        allowed = tuple(key for key in keys if key not in refused)
        answer = partial(self._found, call, keys, refused)
        if not allowed:
            answer(FindCoordinatorResponse(()))
            return
        coordinating_face(self._broker).find_coordinator(FindCoordinatorRequest(kind, allowed), answer)

    def _found(
        self, call: Call, keys: Iterable[str], refused: Mapping[str, StratalogError], found: FindCoordinatorResponse
    ) -> None:
        def make() -> Values:
            by_key = {each.key: each for each in found.coordinators}
            told = [self._values(by_key.get(key) or Coordinator(key, error=refused.get(key))) for key in keys]
            return {"coordinators": told} if call.version >= KEYS_FROM else told[0]

        call.respond_with(make)

    def _values(self, coordinator: Coordinator) -> dict[str, Any]:
        image = self._broker.view.image  # no look for newer: this may be the broker's own thread
        node = self._broker.node_values(image, coordinator.node_id)
        error = coordinator.error
        if error is None and node is None:
            error = CoordinatorNotAvailableError(f"broker {coordinator.node_id} cannot be reached by clients")
        where = node if error is None and node is not None else {"node_id": NO_NODE, "host": "", "port": -1}
        return {
            "key": coordinator.key,
            "node_id": where["node_id"],
            "host": where["host"],
            "port": where["port"],
            "error_code": error,
            "error_message": message_of(error),
        }


def _keys(call: Call) -> tuple[str, ...]:
    if call.version >= KEYS_FROM:
        return tuple(dict.fromkeys(call.request.coordinator_keys))
    return (call.request.key,)


def _refused(call: Call, error: StratalogError) -> Values:
    nowhere = {"node_id": NO_NODE, "host": "", "port": -1}
    if call.version < KEYS_FROM:
        return {**top_level_error(call, error), **nowhere}
    each = {**top_level_error(call, error), **nowhere}
    return {"coordinators": [{"key": key, **each} for key in call.request.coordinator_keys]}
