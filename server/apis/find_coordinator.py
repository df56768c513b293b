"""FindCoordinator. I/O: through the broker; its thread answers.

Source: `KafkaApis.handleFindCoordinatorRequest` (KIP-699).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from stratalog.replication.coordinator.runtime.find_coordinator import find_coordinators
from stratalog.replication.metadata.acls import Operation
from stratalog.replication.requests.coordinators import (
    NO_NODE,
    Coordinator,
    CoordinatorType,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from stratalog.server.request.api import Api, Call, top_level_error
from stratalog.server.request.broker import ApiFamily
from stratalog.server.request.coordinators import RESOURCES, coordinating_face
from stratalog.storage.errors import (
    CoordinatorNotAvailableError,
    InvalidRequestError,
    StratalogError,
)
from stratalog.wire.api_keys import ApiKey
from stratalog.wire.messages.entities import Values
from stratalog.wire.messages.values import message_of

KEYS_FROM = 4
FOUND_TOGETHER = 100
"""The keys that the broker's loop finds, when it creates the topic for them."""
_KINDS = {kind.value: kind for kind in CoordinatorType}
_NOWHERE = {"node_id": NO_NODE, "host": "", "port": -1}


class CoordinatorApis(ApiFamily):
    def apis(self) -> Iterable[Api]:
        # The first request of a type creates the internal topic: a commit, in the broker's thread.
        return [Api(ApiKey.FIND_COORDINATOR, self._find, _refused)]

    def _find(self, call: Call) -> None:
        kind = _KINDS.get(call.given("key_type", CoordinatorType.GROUP.value))
        if kind is None:
            raise InvalidRequestError(f"key type {call.request.key_type} is neither a group (0) nor a transaction (1)")
        keys = _keys(call)
        refusals = {key: self._broker.refusal(call, Operation.DESCRIBE, RESOURCES[kind], key) for key in keys}
        refused = {key: refusal for key, refusal in refusals.items() if refusal is not None}
        allowed = tuple(dict.fromkeys(key for key in keys if key not in refused))
        image = self._broker.image()  # a client may ask for nothing else: else brokers that came later are not known
        face, request = coordinating_face(self._broker), partial(FindCoordinatorRequest, kind)
        if kind.topic in image.topic_ids or not allowed:  # then the broker's loop, which would create it, is not needed
            self._found(call, keys, refused, [find_coordinators(image, request(allowed))])
            return

        def answer(first: FindCoordinatorResponse) -> None:
            others = find_coordinators(self._broker.view.image, request(allowed[FOUND_TOGETHER:]))
            self._found(call, keys, refused, [first, others])

        ask = partial(self._broker.aside, call, count=len(keys))
        face.find_coordinator(request(allowed[:FOUND_TOGETHER]), lambda first: ask(partial(answer, first)))

    def _found(
        self,
        call: Call,
        keys: Sequence[str],
        refused: Mapping[str, StratalogError],
        pieces: Iterable[FindCoordinatorResponse],
    ) -> None:
        def make() -> Values:
            by_key = {each.key: each for piece in pieces for each in piece.coordinators}
            answers = [self._values(call, by_key.get(key) or Coordinator(key, error=refused.get(key))) for key in keys]
            return {"coordinators": answers} if call.version >= KEYS_FROM else answers[0]

        call.respond_with(make)

    def _values(self, call: Call, coordinator: Coordinator) -> dict[str, Any]:
        image = self._broker.view.image  # not refreshed: this may be the broker's own thread
        node = self._broker.node_values(image, coordinator.node_id, call.connection.listener)
        error = coordinator.error
        if error is None and node is None:
            error = CoordinatorNotAvailableError(f"broker {coordinator.node_id} cannot be reached by clients")
        found = node if error is None and node is not None else _NOWHERE
        address = {field: found[field] for field in _NOWHERE}
        return {"key": coordinator.key, **address, "error_code": error, "error_message": message_of(error)}


def _keys(call: Call) -> tuple[str, ...]:
    if call.version >= KEYS_FROM:
        return tuple(call.request.coordinator_keys)
    return (call.request.key,)


def _refused(call: Call, error: StratalogError) -> Values:
    values = {**top_level_error(call, error), **_NOWHERE}
    if call.version < KEYS_FROM:
        return values
    return {"coordinators": [{"key": key, **values} for key in call.request.coordinator_keys]}
