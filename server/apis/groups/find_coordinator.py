"""FindCoordinator. I/O: through the broker; its thread answers.

Source: `KafkaApis.handleFindCoordinatorRequest` (KIP-699).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from stratalog.replication.coordinator.runtime.find_coordinator import find_coordinators
from stratalog.replication.metadata.acls import Operation
from stratalog.replication.requests.coordinators import (
    Coordinator,
    CoordinatorType,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from stratalog.server.request.api import Api, Body, Call
from stratalog.server.request.broker import ApiFamily
from stratalog.server.request.coordinators import RESOURCES, coordinating_face
from stratalog.storage.errors import CoordinatorNotAvailableError, InvalidRequestError, StratalogError
from stratalog.wire.api_keys import ApiKey

KEYS_FROM = 4
FOUND_TOGETHER = 100
"""The keys that the broker's loop finds, when it creates the topic for them."""
_KINDS = {kind.value: kind for kind in CoordinatorType}


class CoordinatorApis(ApiFamily):
    def apis(self) -> Iterable[Api]:
        # The first request of a type creates the internal topic: a commit, in the broker's thread.
        return [Api(ApiKey.FIND_COORDINATOR, self._find, _refused)]

    def _find(self, call: Call) -> None:
        kind = _KINDS.get(call.request.key_type)
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
        def make() -> Body:
            by_key = {each.key: each for piece in pieces for each in piece.coordinators}
            return _response(
                call, [self._reached(call, by_key.get(key) or Coordinator(key, error=refused.get(key))) for key in keys]
            )

        call.respond_with(make)

    def _reached(self, call: Call, coordinator: Coordinator) -> Coordinator:
        """The coordinator with the address at which the caller reaches it."""
        image = self._broker.view.image  # not refreshed: this may be the broker's own thread
        node = self._broker.node_values(image, coordinator.node_id, call.connection.listener)
        error = coordinator.error
        if error is None and node is None:
            error = CoordinatorNotAvailableError(f"broker {coordinator.node_id} cannot be reached by clients")
        if error is not None or node is None:
            return Coordinator(coordinator.key, error=error)
        return replace(coordinator, host=node["host"], port=node["port"])


def _keys(call: Call) -> tuple[str, ...]:
    if call.version >= KEYS_FROM:
        return tuple(call.request.coordinator_keys)
    return (call.request.key,)


def _response(call: Call, found: Sequence[Coordinator]) -> FindCoordinatorResponse:
    if call.version >= KEYS_FROM:
        return FindCoordinatorResponse(tuple(found))
    (one,) = found
    return FindCoordinatorResponse((), one.node_id, one.host, one.port, one.error)


def _refused(call: Call, error: StratalogError) -> FindCoordinatorResponse:
    return _response(call, [Coordinator(key, error=error) for key in _keys(call)])
