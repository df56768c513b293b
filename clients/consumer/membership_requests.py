"""What memberships of both protocols have in common: requests under way, the coordinator's look-up, pauses. Pure."""

from __future__ import annotations

from stratalog.clients.consumer.group_steps import NO_COORDINATOR, FindCoordinator, Generation, Send
from stratalog.storage.errors import (
    CoordinatorNotAvailableError,
    NotCoordinatorError,
    RequestTimedOutError,
    StratalogError,
)

LOST_COORDINATOR = (NotCoordinatorError, CoordinatorNotAvailableError, RequestTimedOutError)
"""After these the coordinator is looked up anew."""
LOCAL_HOST = "/127.0.0.1"
"""What a coordinator in the same process shows for the member's host, as Kafka writes it."""
KICKED_OUT = (
    "Offset commit cannot be completed since the consumer is not part of an active group for auto partition "
    "assignment; it is likely that the consumer was kicked out of the group."
)
BACKOFF_MS_MAX = 1_000
"""Kafka's `retry.backoff.max.ms`."""


class MembershipRequests:
    """The requests of one member. Each is answered at most once; those that nobody waits for any more are forgotten."""

    def __init__(self, group_id: str, retry_backoff_ms: int) -> None:
        self.generation = Generation()
        self.coordinator = NO_COORDINATOR
        self._group_id = group_id
        self._retry_backoff_ms = retry_backoff_ms
        self._failure: StratalogError | None = None
        self._open: dict[int, tuple[type[object], Generation]] = {}
        self._outbox: list[Send] = []
        self._token = 0
        self._retry_at_ms = 0
        self._attempts = 0

    def take_failure(self) -> StratalogError | None:
        """What the application has to hear of, once: fenced, not authorized, group full, …"""
        failure, self._failure = self._failure, None
        return failure

    def _coordinator_answered(self, answer: object, error: StratalogError | None, now_ms: int) -> None:
        if isinstance(answer, int):
            self.coordinator, self._attempts = answer, 0
            self._retry_at_ms = now_ms
        elif error is not None and not error.retriable:
            self._fail(error, now_ms)
        else:
            self._pause(now_ms)

    def _look_up(self, now_ms: int) -> None:
        if now_ms >= self._retry_at_ms and not self._is_open(FindCoordinator):
            self._send(FindCoordinator(self._group_id))

    def _send(self, request: object) -> None:
        self._token += 1
        self._open[self._token] = (type(request), self.generation)
        self._outbox.append(Send(self._token, self.coordinator, request))

    def _drained(self) -> tuple[Send, ...]:
        sends, self._outbox = tuple(self._outbox), []
        return sends

    def _is_open(self, *kinds: type[object]) -> bool:
        return any(kind in kinds for kind, _ in self._open.values())

    def _pause(self, now_ms: int) -> None:
        """Kafka's exponential back-off up to ten times the first pause, without its jitter."""
        self._attempts += 1
        self._retry_at_ms = now_ms + min(self._retry_backoff_ms * 2 ** min(self._attempts - 1, 10), BACKOFF_MS_MAX)

    def _fail(self, error: StratalogError, now_ms: int) -> None:
        self._failure = error
        self._pause(now_ms)

    def _forget_coordinator(self) -> None:
        """Ask anew who it is. Requests on their way to the old one are not waited for."""
        self.coordinator = NO_COORDINATOR
        self._forget_requests()

    def _forget_requests(self) -> None:
        self._open = {token: sent for token, sent in self._open.items() if sent[0] is FindCoordinator}
