"""One request on its way through a broker's face: the connection, the call, the API that answers it. Pure.

An API is a row: its key, its handler, its refusal. A handler returns the response's values, or None and calls
`Call.respond` later, from any thread; that of a quick API may also return what an io thread has to do.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from typing import Any, Generic, Protocol, TypeVar

from stratalog.replication.metadata.acls import Principal
from stratalog.server.admin.configs import (
    DEFAULT_CONFIG,
    DYNAMIC_BROKER_CONFIG,
    DYNAMIC_BROKER_LOGGER_CONFIG,
    DYNAMIC_DEFAULT_BROKER_CONFIG,
    DYNAMIC_GROUP_CONFIG,
    DYNAMIC_TOPIC_CONFIG,
    STATIC_BROKER_CONFIG,
)
from stratalog.server.audit.events import (
    ADMIN,
    AuditEvent,
    api_text,
    is_event,
    named_resources,
    outcome_of,
    request_kind,
)
from stratalog.server.request.request_log import (
    REQUEST_LOG,
    TRACE,
    UNKNOWN_SOFTWARE,
    RequestOrigin,
    RequestTimes,
    log_begun,
    log_completed,
    request_text,
)
from stratalog.storage.clock import measured_ns
from stratalog.storage.errors import InvalidRequestError, RequestTimedOutError, StratalogError
from stratalog.storage.log_lines import line_logger
from stratalog.storage.records import TopicPartition
from stratalog.wire.messages.error_codes import errors_in
from stratalog.wire.messages.frames import Frame, RequestFrame, served_versions
from stratalog.wire.messages.response import Response
from stratalog.wire.messages.schema import Entity, EntityType, response_type, shape_of
from stratalog.wire.messages.values import Values

K = TypeVar("K")
V = TypeVar("V")
Body = Values | Response
"""A response, or its values by the names of its fields."""
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
_LOG = line_logger("stratalog.kafka")

SOURCE_CODES = {
    DYNAMIC_TOPIC_CONFIG: 1,
    DYNAMIC_BROKER_CONFIG: 2,
    DYNAMIC_DEFAULT_BROKER_CONFIG: 3,
    STATIC_BROKER_CONFIG: 4,
    DEFAULT_CONFIG: 5,
    DYNAMIC_BROKER_LOGGER_CONFIG: 6,
    DYNAMIC_GROUP_CONFIG: 8,
}
"""Kafka's DescribeConfigsResponse.ConfigSource."""


def _close_nothing(_reason: str) -> None:
    """The connection of a caller in the same process."""


def _count_nothing(_api_key: int, _codes: Iterable[int]) -> None:
    """The same: nobody counts its errors."""


def _time_nothing(_api_key: int, _times: RequestTimes) -> None:
    """The same: nobody counts its times."""


def _throttle_nothing(_duration_ms: int) -> None:
    """The same: it is told for how long to wait."""


@dataclass(slots=True)
class ConnectionMemory:
    """What the broker's face remembers of a connection between its requests.

    fetch    a `FetchMemory`, or None
    produce  the `Line` of its Produce requests, or None
    software the client's name and version of its library, as it says
    work     what waits for threads of `FairThreads`, by their name: each has a lock of its own
    is_over  the connection has ended
    """

    fetch: Any = None
    produce: Any = None
    software: tuple[str, str] = UNKNOWN_SOFTWARE
    is_over: bool = False
    work: defaultdict[str, deque[Callable[[], object]]] = field(default_factory=lambda: defaultdict(deque))

    def end(self) -> None:
        """The connection has ended: what waits is not done any more."""
        self.is_over = True
        for waiting in list(self.work.values()):
            waiting.clear()


@dataclass(frozen=True, slots=True)
class Connection:
    """Where a request comes from. `close` ends it, for a request that cannot be answered.

    throttle  begins no request of the connection for so many ms
    listener  the name of the broker's listener; "" is that of a caller in the same process
    errors    counts the errors of a response, by the key of its API and their codes
    times     counts the parts of a request's time, by the key of its API
    peer      the client's address and port, for the log
    audit     keeps an event; None: nobody asks for them
    """

    principal: Principal = field(default_factory=Principal)
    close: Callable[[str], None] = _close_nothing
    listener: str = ""
    throttle: Callable[[int], None] = _throttle_nothing
    memory: ConnectionMemory = field(default_factory=ConnectionMemory)
    errors: Callable[[int, Iterable[int]], None] = _count_nothing
    times: Callable[[int, RequestTimes], None] = _time_nothing
    peer: str = ""
    audit: Callable[[AuditEvent], None] | None = None


class Use(Protocol):
    """What a call uses of its client's quotas."""

    def worked(self, duration_ns: int) -> None:
        """A thread has worked on it for so long."""

    def mutates(self, partition_count: int, *, is_strict: bool) -> None:
        """It is about to make or delete partitions. ThrottlingQuotaExceededError, if it is strict."""


class Call:
    """A request under way. It is answered once; a later answer is dropped."""

    __slots__ = (
        "_answer",
        "_begun_ns",
        "_received_ns",
        "_worked_ns",
        "api_key",
        "aside",
        "asked",
        "client_id",
        "connection",
        "frame",
        "large",
        "request",
        "use",
        "version",
    )

    def __init__(
        self,
        asked: RequestFrame,
        connection: Connection,
        answer: Callable[[Entity | None], None],
        use: Use | None = None,
        frame: Frame | None = None,
    ) -> None:
        """`answer` gets the response; None where Kafka sends none (Produce with acks=0). `use`: None without quotas.
        `frame`: the request as it came; None if it came as a message."""
        self.asked = asked
        self.request: Entity = asked.entity
        self.frame = frame
        self.api_key = asked.api_key
        self.version = asked.version
        self.connection = connection
        self.client_id = asked.client_id or ""
        self.use = use
        self.large: object = None
        """Lives until the answer, where the call is large."""
        self.aside: Callable[[Callable[[], None]], None] | None = None
        """Runs the making of an answer that is about as large as the request; None: in the thread that has it, which
        may be the broker's loop."""
        self._received_ns = measured_ns()
        self._begun_ns = self._worked_ns = 0
        self._answer: Callable[[Entity | None], None] | None = answer

    def given(self, name: str, default: Any = None) -> Any:
        """A field of the request; `default` for a version without it."""
        return getattr(self.request, name, default)

    def check_time(self) -> None:
        """RequestTimedOutError where the client leaves no time: Kafka's controller then does nothing."""
        timeout_ms = self.request.timeout
        if timeout_ms <= 0:
            raise RequestTimedOutError(f"nothing was done: timeout.ms is {timeout_ms}, give at least 1")

    @property
    def reads_committed(self) -> bool:
        """By the request's isolation level, 0 where its version has none. InvalidRequestError for one that is none."""
        level = self.given("isolation_level", READ_UNCOMMITTED)
        if level not in (READ_UNCOMMITTED, READ_COMMITTED):
            raise InvalidRequestError(f"isolation level {level} is neither 0, read_uncommitted, nor 1, read_committed")
        return bool(level == READ_COMMITTED)

    @property
    def origin(self) -> RequestOrigin:
        """Where it comes from, for the log."""
        of = self.connection
        return RequestOrigin(of.listener, of.peer, of.principal, self.client_id, of.memory.software)

    def begins(self) -> None:
        """A thread begins to handle it. What a quick handler leaves to an io thread belongs to the same time."""
        if not self._begun_ns:
            self._begun_ns = measured_ns()
            if REQUEST_LOG.isEnabledFor(TRACE):
                log_begun(self.asked, self.origin)

    def worked(self) -> None:
        """The handler has returned; the answer may be known only later."""
        self._worked_ns = measured_ns()

    def mutates(self, partition_count: int, *, strict_from: int) -> None:
        """The call is about to make or delete so many partitions, which a quota may limit (KIP-599).

        ThrottlingQuotaExceededError from version `strict_from` on, while earlier ones are owed; before that version the
        client's connection is only throttled.
        """
        if self.use is not None:
            self.use.mutates(partition_count, is_strict=self.version >= strict_from)

    def respond(self, body: Body) -> None:
        """Answer with this. Does not raise: an answer that cannot be built or sent closes the connection."""
        self.respond_with(lambda: body)

    def respond_with(self, make: Callable[[], Body]) -> None:
        """As `respond`, for a body whose making may fail, too, as in a broker's thread."""
        self._finish(lambda: self._counted(make()))

    def respond_built(self, response: Entity) -> None:
        """As `respond`, for a response that is there, without errors."""
        self._finish(lambda: response)

    def _counted(self, body: Body) -> Body:
        kios = response_type(self.api_key, self.version)
        codes = errors_in(body, kios)
        if codes:
            self.connection.errors(self.api_key, codes)
        if self.connection.audit is not None and is_event(self.api_key, codes):
            self.connection.audit(self._event(codes))
        return body

    def _event(self, codes: Sequence[int]) -> AuditEvent:
        """An administrator's request, or a denial, with its outcome."""
        connection, kind = self.connection, request_kind(codes)
        return AuditEvent(
            kind,
            connection.principal.name,
            connection.peer or connection.principal.host,
            connection.listener,
            self.client_id,
            api_text(self.api_key),
            self.version,
            outcome_of(codes),
            named_resources(self.request),
            request_text(self.asked) if kind == ADMIN else "",
        )

    def end(self) -> None:
        """Send no answer."""
        self._finish(lambda: None)

    def _finish(self, make: Callable[[], Entity | None]) -> None:
        answer, self._answer = self._answer, None
        if answer is None:
            return
        if self.aside is None:
            self._send(answer, make)
        else:
            self.aside(partial(self._send, answer, make))

    def _send(self, answer: Callable[[Entity | None], None], make: Callable[[], Entity | None]) -> None:
        times = RequestTimes.between(self._received_ns, self._begun_ns, self._worked_ns, measured_ns())
        self.connection.times(self.api_key, times)
        if REQUEST_LOG.isEnabledFor(logging.DEBUG):
            log_completed(self.asked, self.origin, times)
        try:
            answer(None if self.connection.memory.is_over else make())  # nobody gets it when that has ended
        except Exception as defect:  # noqa: BLE001 - it must not end the broker's own thread
            _LOG.exception("API %d version %d: no answer", self.api_key, self.version)
            self.connection.close(f"no answer could be made: {type(defect).__name__}")
        finally:
            self.large = None  # not with the call, which the traceback of an error may keep


@dataclass(frozen=True, slots=True)
class Later:
    """What is left of a quick call that has to read storage: `work` returns as a handler does, in an io thread.

    computes  it computes for long instead: in a thread for that, where clients take turns
    """

    work: Callable[[], Body | None]
    computes: bool = False


Handle = Callable[[Call], Body | Later | None]
Refuse = Callable[[Call, StratalogError], Body]


def as_error(answer: object) -> StratalogError | None:
    """The error that a coordinator answered instead of a response; None for a response."""
    return answer.as_value() if isinstance(answer, StratalogError) else None


def failed(error: StratalogError | None) -> dict[str, Any]:
    """Code and message of an error, or of success for None, as fields of a response or a part of one."""
    return {"error_code": error, "error_message": None if error is None else str(error)}


def top_level_error(_call: Call, error: StratalogError) -> Values:
    """The answer to a request that is refused as a whole, for a response with a code and a message."""
    return failed(error)


def error_only(_call: Call, error: StratalogError) -> Values:
    """As `top_level_error`, for a response without a message."""
    return {"error_code": error}


def top_level_refusal(response: EntityType, error: StratalogError) -> Values | None:
    """A response with the error for the whole request and nothing else; None for one that has no place for it."""
    names = {field.name for field in shape_of(response)}
    values = {name: value for name, value in failed(error).items() if name in names}
    return values if "error_code" in values else None


def _names_nothing(_call: Call) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Api:
    """One API of Kafka's, in all versions that are known.

    handle           returns the response, or None and answers later; or raises what `refuse` then answers
    advertised_from  the lowest version that ApiVersions names, if it is not the lowest one served
    newest           the highest version that is served, if it is not the highest one known
    is_quick         never waits: in the thread that reads the connection, up to a `Later`; others are in an io thread
    is_known         of a quick one: whether the metadata at hand has what the request names, else it is read first
    is_slow          waits long for storage or other brokers: in a thread of this API's own
    """

    key: int
    handle: Handle
    refuse: Refuse = top_level_error
    advertised_from: int | None = None
    newest: int | None = None
    is_quick: bool = False
    is_known: Callable[[Call], bool] = _names_nothing
    is_slow: bool = False

    @property
    def versions(self) -> range:
        """Those that are answered."""
        return served_versions(self.key, self.newest)


# -- parts of requests and responses -----------------------------------------------------------------------------


def topic_named(topic: Any) -> dict[str, Any]:
    """The id or the name of a request's topic as a field of the response."""
    field = next(each for each in ("topic_id", "name", "topic") if hasattr(topic, each))
    return {field: getattr(topic, field)}


def each_partition(
    topics: Iterable[Any], values: Callable[[Any, Any], Values], partitions: str = "partitions"
) -> list[Values]:
    """The topics of a response: `values(topic, partition)` for each partition of a request's topics."""
    return [
        {**topic_named(topic), "partitions": [values(topic, each) for each in getattr(topic, partitions)]}
        for topic in topics
    ]


def partition_error(partition: Any, error: StratalogError | None) -> Values:
    return {"partition_index": partition.partition_index, "error_code": error}


def refused_each(field: str, items: str, values: Callable[[Any, StratalogError], Values]) -> Refuse:
    """The error for each of the request's `items` by itself, as the response's `field`."""
    return lambda call, error: {field: [values(each, error) for each in getattr(call.request, items)]}


def refused_partitions(call: Call, error: StratalogError) -> Values:
    """The error for each partition of a request, by topic."""
    return {"topics": each_partition(call.request.topics, lambda _topic, each: partition_error(each, error))}


def repeated(keys: Iterable[K]) -> set[K]:
    """The keys that are named more than once."""
    return {key for key, count in Counter(keys).items() if count > 1}


def by_topic(values: Mapping[TopicPartition, V]) -> list[tuple[str, list[tuple[int, V]]]]:
    """Values in order of topic and partition.

    >>> by_topic({TopicPartition("b", 0): 1, TopicPartition("a", 2): 3, TopicPartition("b", 1): 2})
    [('a', [(2, 3)]), ('b', [(0, 1), (1, 2)])]
    """
    in_order = groupby(sorted(values), key=lambda named: named.topic)
    return [(topic, [(named.partition, values[named]) for named in group]) for topic, group in in_order]


@dataclass(slots=True)
class _Gathered:
    """Answers by key, in any order and from any thread. `list.append` is atomic, so there is no lock."""

    expected: int
    done: Callable[[dict[Any, Any]], None]
    answers: list[tuple[Any, Any]] = field(default_factory=list)
    not_done: list[None] = field(default_factory=lambda: [None])

    def put(self, key: Any, answer: Any) -> None:
        self.answers.append((key, answer.as_value() if isinstance(answer, StratalogError) else answer))
        if len(self.answers) >= self.expected:
            try:
                self.not_done.pop()
            except IndexError:
                return  # another thread saw the last answer, too
            self.done(dict(self.answers))


AT_A_TIME = 32
"""The questions of one request that are under way: those of others come in between."""


def _here(work: Callable[[], None]) -> None:
    work()


@dataclass(slots=True)
class _InTurns(Generic[K]):
    """Asks for some keys at a time. The next ones are asked for once half of them are answered, and not by whoever
    brings the answer, where that may be a broker's loop: `elsewhere` gets the work.

    Nothing here refers back to this object but the questions under way: when `elsewhere` drops the work, since nobody
    waits for the answer any more, all of it is freed.
    """

    waiting: deque[K]
    ask: Callable[[K, Callable[[Any], None]], None]
    gathered: _Gathered
    at_a_time: int
    elsewhere: Callable[[Callable[[], None]], None]
    under_way: int = 0
    is_asking: bool = True
    lock: threading.Lock = field(default_factory=threading.Lock)

    def begin(self) -> None:
        while True:
            with self.lock:  # the end of asking is decided where answers are counted: none is missed
                if self.under_way >= self.at_a_time or not self.waiting:
                    self.is_asking = False
                    return
                self.under_way += 1
                key = self.waiting.popleft()
            try:
                self.ask(key, partial(self._put, key))
            except StratalogError as error:
                self._put(key, error)

    def _put(self, key: K, answer: Any) -> None:
        self.gathered.put(key, answer)
        with self.lock:
            self.under_way -= 1
            if self.is_asking or not self.waiting or self.under_way > self.at_a_time // 2:
                return
            self.is_asking = True
        self.elsewhere(self.begin)


def gather_in_turns(
    keys: Iterable[K],
    ask: Callable[[K, Callable[[Any], None]], None],
    done: Callable[[dict[K, Any]], None],
    at_a_time: int = AT_A_TIME,
    elsewhere: Callable[[Callable[[], None]], None] | None = None,
) -> None:
    """As `gather`, with so many questions under way: a request that names many does not delay those of others.

    elsewhere  runs work in another thread than the one that brings an answer: the next questions, and `done`. None: it
               is run at once. It may drop the work
    """
    asked, elsewhere = list(keys), elsewhere or _here
    if len(asked) <= at_a_time:
        gather(asked, ask, done)
        return
    gathered = _Gathered(len(asked), lambda answers: elsewhere(partial(done, answers)))
    _InTurns(deque(asked), ask, gathered, at_a_time, elsewhere).begin()


def gather(
    keys: Iterable[K], ask: Callable[[K, Callable[[Any], None]], None], done: Callable[[dict[K, Any]], None]
) -> None:
    """Ask for each of the keys; call `done` once, with all answers by key.

    ask   gets a key and a function for its answer, to be called now or later, from any thread. A StratalogError that
          it raises instead is the answer.
    """
    asked = list(keys)
    if not asked:
        done({})
    gathered = _Gathered(len(asked), done)
    for key in asked:
        try:
            ask(key, partial(gathered.put, key))
        except StratalogError as error:
            gathered.put(key, error)
