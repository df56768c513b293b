"""A broker of another process, as clients and coordinators call it. I/O: through the connections of a route.

A broker answers a connection's requests one after the other, but for Produce. So a request that waits for others would
hold up those behind it: JoinGroup and SyncGroup, which end when all members have come, and DeleteRecords, which ends
when all replicas have followed, have a connection of their own meanwhile. Batches share one, so do markers, and each
group and transactional id has one, as a client of Kafka's has. Connections are made when they are needed. Each call is
answered once; the broker may have performed one that is lost.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Hashable
from functools import partial
from itertools import count
from typing import Any

from stratalog.replication.coordinator.runtime.find_coordinator import no_coordinators
from stratalog.replication.requests.coordinators import CoordinatorType, FindCoordinatorRequest, FindCoordinatorResponse
from stratalog.replication.requests.delete_records import DeletedRecords, DeleteRecordsRequest, DeleteRecordsResponse
from stratalog.replication.requests.groups import JoinGroupRequest, SyncGroupRequest
from stratalog.replication.requests.produce import ACKS_NONE, ProduceRequest, ProduceResponse
from stratalog.server.bootstrap import FIND_TIMEOUT_MS, JOIN_GRACE_MS
from stratalog.server.endpoint.loops import NetworkThread
from stratalog.server.remote.between_brokers import (
    Gathering,
    Question,
    is_marker,
    is_question,
    markers_message,
    markers_written,
    questions_answered,
    questions_message,
)
from stratalog.server.remote.connections.config import ConnectionConfig
from stratalog.server.remote.connections.open_requests import CORRELATION_IDS, Lost, OpenRequest
from stratalog.server.remote.connections.request_connection import RequestConnection
from stratalog.server.remote.messages import (
    coordinators_answer,
    delete_records_message,
    message_of,
    produce_message,
    produced,
    records_deleted,
)
from stratalog.server.remote.routes import Route
from stratalog.storage import errors
from stratalog.storage.clock import SystemClock
from stratalog.storage.errors import StratalogError
from stratalog.storage.records import IdentifiedPartition
from stratalog.wire.messages.frames import Message
from stratalog.wire.messages.schema import Entity

BATCHES, MARKERS, QUESTIONS, BROKER, BEATS = "batches", "markers", "questions", "broker", "beats"
"""Names of connections that all calls of a kind share."""

Receive = Callable[[Entity | Lost], None]


class RemoteBroker:
    """Any thread may call; nothing blocks. Answers come in the network thread (`server.bootstrap.BrokerFace`)."""

    def __init__(self, broker_id: int, route: Route, thread: NetworkThread, config: ConnectionConfig) -> None:
        """`thread` is running; it may serve other brokers, too."""
        self.broker_id = broker_id
        self.route = route
        self._thread = thread
        self._config = config
        self._clock = SystemClock()
        self._numbers = count()
        self._shared: dict[Hashable, RequestConnection] = {}
        self._waiting: list[RequestConnection] = []
        self._markers = Gathering[tuple[ProduceRequest, Callable[[ProduceResponse], None]]]()
        self._questions = Gathering[tuple[Question, Callable[[object], None]]]()
        self._is_closed = False

    # -- calls ---------------------------------------------------------------------------------------------

    def produce_then(self, request: ProduceRequest, complete: Callable[[ProduceResponse], None]) -> None:
        """Send a batch to the leader of its partition, or a marker of a transaction; `complete` is called once."""
        if is_marker(request):
            self._thread.call(lambda: self._write(self._markers.put((request, complete))))
            return

        def received(answer: Entity | Lost) -> None:
            if isinstance(answer, Lost):
                complete(ProduceResponse(request.partition, error=self._append_lost(answer)))
            else:
                complete(produced(request, answer))

        def sent(answer: Entity | Lost) -> None:
            error = self._append_lost(answer) if isinstance(answer, Lost) else None
            complete(ProduceResponse(request.partition, error=error))

        has_answer = request.acks != ACKS_NONE
        try:
            message = produce_message(request)
            self._send(BATCHES, message, received if has_answer else sent, has_answer=has_answer)
        except StratalogError as refusal:
            complete(ProduceResponse(request.partition, error=refusal))

    def delete_records(self, request: DeleteRecordsRequest, complete: Callable[[DeleteRecordsResponse], None]) -> None:
        """Have a leader move logs' starts. One that is lost may be asked again: a log that starts there already does
        not change."""

        def refuse(error: StratalogError) -> None:
            complete(dict.fromkeys(request.offsets, DeletedRecords(error=error)))

        def received(answer: Entity | Lost) -> None:
            if isinstance(answer, Lost):
                refuse(answer.error or errors.LeaderNotAvailableError(f"broker {self.broker_id}: {answer.reason}"))
            else:
                complete(records_deleted(request, answer))

        limit_ms = request.timeout_ms + self._config.request_timeout_ms
        try:
            self._send(None, delete_records_message(request), received, timeout_ms=limit_ms)
        except StratalogError as reason:
            refuse(reason)

    def find_coordinator(
        self, request: FindCoordinatorRequest, answer: Callable[[FindCoordinatorResponse], None]
    ) -> None:
        """The coordinators of groups or transactional ids, as this broker knows them."""

        def received(found: Entity | Lost) -> None:
            if isinstance(found, Lost):
                answer(no_coordinators(request, self._away(found)))
            else:
                answer(found)

        limit_ms = min(FIND_TIMEOUT_MS, self._config.request_timeout_ms)
        self._send(BROKER, message_of(request), received, timeout_ms=limit_ms)

    def coordinator(
        self, kind: CoordinatorType, key: str | int, request: object, answer: Callable[[object], None]
    ) -> None:
        """Ask the coordinator of a group or transactional id on this broker; the response or a StratalogError."""
        if is_question(request):
            asked: Any = request
            self._thread.call(lambda: self._question(self._questions.put((asked, answer))))
            return
        waits = isinstance(request, JoinGroupRequest | SyncGroupRequest)
        limit_ms = self._config.request_timeout_ms
        if isinstance(request, JoinGroupRequest):
            limit_ms = max(limit_ms, request.rebalance_timeout_ms + JOIN_GRACE_MS)
        self._ask(None if waits else (kind, key), request, answer, limit_ms)

    def ask(self, message: Message, answer: Receive, timeout_ms: int) -> None:
        """Send any other request, such as an administrator's, over a connection on which nothing waits. `answer` gets
        the response, or `Lost`; InvalidRequestError for a message that cannot be written."""
        self._send(None, message, answer, timeout_ms=timeout_ms)

    def beat(self, message: Message, answer: Receive, timeout_ms: int) -> None:
        """Send a heartbeat over the connection for them; `answer` gets the response, or `Lost`."""
        self._send(BEATS, message, answer, timeout_ms=timeout_ms)

    def log_offsets(self, _partition: IdentifiedPartition) -> None:
        """Not known here."""

    def every_coordinator(self, kind: CoordinatorType, request: object, answer: Callable[[list[object]], None]) -> None:
        """Ask all coordinators on this broker (ListGroups, ListTransactions): one response for all, or the error."""
        self._ask((BROKER, kind), request, lambda found: answer([found]), self._config.request_timeout_ms)

    def _ask(self, name: Hashable, request: object, answer: Callable[[object], None], timeout_ms: int) -> None:
        def received(found: Entity | Lost) -> None:
            answer(self._away(found) if isinstance(found, Lost) else coordinators_answer(found))

        try:
            message, client_id = message_of(request), getattr(request, "client_id", "")
            self._send(name, message, received, client_id, timeout_ms=timeout_ms)
        except StratalogError as refusal:
            answer(refusal)

    # -- several in one message: in the network thread ---------------------------------------------------------

    def _write(self, markers: list[tuple[ProduceRequest, Callable[[ProduceResponse], None]]]) -> None:
        if not markers:
            return
        requests = [request for request, _ in markers]

        def finish(responses: list[ProduceResponse]) -> None:
            self._write(self._markers.answered())
            for (_, complete), response in zip(markers, responses, strict=True):
                complete(response)

        def refuse(error: StratalogError) -> None:
            finish([ProduceResponse(request.partition, error=error) for request in requests])

        def received(answer: Entity | Lost) -> None:
            if isinstance(answer, Lost):
                refuse(self._append_lost(answer))
            else:
                finish(markers_written(requests, answer))

        limit_ms = max(self._config.request_timeout_ms, *(request.timeout_ms for request in requests))
        try:
            self._send(MARKERS, markers_message(requests), received, timeout_ms=limit_ms)
        except StratalogError as reason:
            refuse(reason)

    def _question(self, questions: list[tuple[Question, Callable[[object], None]]]) -> None:
        if not questions:
            return
        requests = [request for request, _ in questions]

        def finish(answers: list[object]) -> None:
            self._question(self._questions.answered())
            for (_, answer), each in zip(questions, answers, strict=True):
                answer(each)

        def received(found: Entity | Lost) -> None:
            if isinstance(found, Lost):
                finish([self._away(found)] * len(requests))
            else:
                finish(questions_answered(requests, found))

        try:
            self._send(QUESTIONS, questions_message(requests), received)
        except StratalogError as reason:
            finish([reason] * len(requests))

    # -- requests ------------------------------------------------------------------------------------------

    def _send(
        self,
        name: Hashable,
        message: Message,
        received: Receive,
        client_id: str = "",
        *,
        timeout_ms: int = 0,
        has_answer: bool = True,
    ) -> None:
        """Send a message over the connection of this name; None: one on which nothing waits. InvalidRequestError for a
        message that cannot be written."""
        number = next(self._numbers) % CORRELATION_IDS
        about = f"API {message.api_key} version {message.version}"

        def answered(frame: bytes | Lost) -> None:
            if isinstance(frame, Lost) or not has_answer:
                received(frame)
                return
            try:
                found = message.answer(frame)
            except errors.InvalidRequestError as reason:
                found = Lost(f"{about}: the answer cannot be read: {reason}", was_sent=True)
            received(found)

        try:
            frame = message.frame(number, client_id or self._config.client_id or None)
        except struct.error as reason:
            raise errors.InvalidRequestError(f"{about} cannot be written: {reason}") from reason
        deadline_ms = self._clock.monotonic_ms() + (timeout_ms or self._config.request_timeout_ms)
        request = OpenRequest(number, frame, deadline_ms, answered, has_answer)
        if self._is_closed:
            request.answer(self._closed())
        else:
            self._thread.call(partial(self._dispatch, name, request))

    def _closed(self) -> Lost:
        return Lost("it is not called any more", was_sent=False)

    def _dispatch(self, name: Hashable, request: OpenRequest) -> None:
        if self._is_closed:
            request.answer(self._closed())
            return
        connection = self._free() if name is None else self._shared.get(name)
        if connection is None:
            connection = self.route.connect(self._forget)
            if name is None:
                self._waiting.append(connection)
            else:
                self._shared[name] = connection
        connection.send(request)

    def _free(self) -> RequestConnection | None:
        return next((connection for connection in self._waiting if not connection.is_busy), None)

    def _forget(self, ended: RequestConnection) -> None:
        self._waiting = [connection for connection in self._waiting if connection is not ended]
        self._shared = {name: each for name, each in self._shared.items() if each is not ended}

    # -- errors and the end --------------------------------------------------------------------------------

    def _append_lost(self, lost: Lost) -> StratalogError:
        if lost.error is not None:
            return lost.error
        if lost.was_sent:
            return errors.RequestTimedOutError(
                f"broker {self.broker_id}: {lost.reason}; whether it stored this is unknown"
            )
        return errors.LeaderNotAvailableError(f"broker {self.broker_id}: {lost.reason}")

    def _away(self, lost: Lost) -> StratalogError:
        return lost.error or errors.CoordinatorNotAvailableError(f"broker {self.broker_id}: {lost.reason}")

    def close(self) -> None:
        """End all connections: what waits there is lost. Later calls are refused."""
        self._is_closed = True
        self._thread.call(self._close)

    def _close(self) -> None:
        for connection in [*self._waiting, *self._shared.values()]:
            connection.close(self._closed().reason)
        self.route.close()
