"""One request on its way through a broker's face: who asks, what is asked, and how it is answered. Pure.

An API is a row: its key, the versions served, who answers. Who answers returns the response's values, or None and
calls `Call.respond` later, from any thread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

from stratalog.clients.kafka.protocol.entities import Values, build
from stratalog.clients.kafka.protocol.schema import Entity, response_type
from stratalog.replication.metadata.acls import Principal
from stratalog.storage.errors import StratalogError

_LOG = logging.getLogger("stratalog.kafka")


def _nothing(_reason: str) -> None:
    """A connection of a caller in the same process: there is nothing to close."""


@dataclass(frozen=True, slots=True)
class Connection:
    """Where a request comes from. `close` ends it: called for what cannot be answered."""

    principal: Principal = field(default_factory=Principal)
    close: Callable[[str], None] = _nothing


class Call:
    """A request under way. It is answered once; a later answer is dropped."""

    __slots__ = ("_answer", "api_key", "client_id", "connection", "request", "version")

    def __init__(
        self,
        request: Entity,
        connection: Connection,
        client_id: str | None,
        answer: Callable[[Entity | None], None],
    ) -> None:
        """`answer` gets the response; None where Kafka sends none (Produce with acks=0)."""
        self.request = request
        self.api_key = int(request.__api_key__)
        self.version = int(request.__version__)
        self.connection = connection
        self.client_id = client_id or ""
        self._answer: Callable[[Entity | None], None] | None = answer

    def given(self, name: str, default: Any = None) -> Any:
        """A field that not every version of the request has."""
        return getattr(self.request, name, default)

    def respond(self, values: Values) -> None:
        """Answer with these values. Does not raise: what cannot be built or sent closes the connection."""
        self.respond_with(lambda: values)

    def respond_with(self, make: Callable[[], Values]) -> None:
        """As `respond`, where making the values may go wrong, too: for what is called from a broker's thread."""
        self._finish(lambda: build(response_type(self.api_key, self.version), make()))

    def end(self) -> None:
        """Answer nothing."""
        self._finish(lambda: None)

    def _finish(self, make: Callable[[], Entity | None]) -> None:
        answer, self._answer = self._answer, None
        if answer is None:
            return
        try:
            answer(make())
        except Exception as defect:  # noqa: BLE001 - this may be the broker's own thread
            _LOG.exception("API %d version %d: no answer", self.api_key, self.version)
            self.connection.close(f"no answer could be made: {type(defect).__name__}")


Handle = Callable[[Call], Values | None]
Refuse = Callable[[Call, StratalogError], Values]


def failed(error: StratalogError | None) -> dict[str, Any]:
    """Code and message of an error as a part of a response has them; None: it went well."""
    return {"error_code": error, "error_message": None if error is None else str(error)}


def top_level_error(_call: Call, error: StratalogError) -> Values:
    """The answer to a request that is refused as a whole, where the response has a code for that."""
    return failed(error)


def error_only(_call: Call, error: StratalogError) -> Values:
    """As `top_level_error` where the response has no message."""
    return {"error_code": error}


@dataclass(frozen=True, slots=True)
class Api:
    """One API of Kafka's.

    versions         those that are answered
    handle           answers, or raises what `refuse` then puts into a response
    advertised_from  the lowest version that ApiVersions tells, if it is not the lowest one served
    is_slow          waits for storage or other brokers: not in the thread that reads the connection
    """

    key: int
    versions: range
    handle: Handle
    refuse: Refuse = top_level_error
    advertised_from: int | None = None
    is_slow: bool = False


class Family(Protocol):
    """APIs that belong together."""

    def apis(self) -> Iterable[Api]:
        """The rows."""
        ...


@dataclass(slots=True)
class Joined:
    """Answers of several parts, in any order and from any thread, handed on when the last one is in.

    Two asked, answers `b` then `a`: `done({0: a, 1: b})` with the second. `list.append` is atomic, so there is no lock.
    """

    expected: int
    done: Callable[[dict[Any, Any]], None]
    _answers: list[tuple[Any, Any]] = field(default_factory=list)
    _is_done: list[None] = field(default_factory=lambda: [None])

    def put(self, key: Any, answer: Any) -> None:
        """One part's answer."""
        self._answers.append((key, answer))
        if len(self._answers) >= self.expected:
            try:
                self._is_done.pop()
            except IndexError:
                return  # another thread saw the last answer too
            self.done(dict(self._answers))
