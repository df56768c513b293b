"""A broker's face for Kafka's requests: frames in, frames out.

I/O: through the broker, a view of the cluster, and threads for slow requests. No socket: its owner calls `handle` with
each frame, in the order of the connection, and sends the frames that `answer` gets. An answer may come at once, in the
caller's thread, or later from another one: Produce with acks=all waits for the high watermark, Fetch for records.
Source: Kafka's `KafkaApis`, `RequestChannel`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import replace
from functools import partial

from stratalog.replication.config import BrokerConfig
from stratalog.replication.requests.messages import REQUEST_OF_API
from stratalog.replication.threads.free_memory import release_arrow_memory, release_free_memory
from stratalog.replication.threads.interpreter import LargeWork
from stratalog.server.apis.access.acls import AclApis
from stratalog.server.apis.access.sasl import SaslApis
from stratalog.server.apis.api_versions import ApiVersions, unsupported_version
from stratalog.server.apis.configs import ConfigApis
from stratalog.server.apis.delete_records import DeleteRecordsApis
from stratalog.server.apis.elections import ElectionApis, HeartbeatApis
from stratalog.server.apis.features import FeatureApis
from stratalog.server.apis.fetch.family import FetchApis
from stratalog.server.apis.fetch.memory import FetchMemory
from stratalog.server.apis.groups.classic import GroupApis
from stratalog.server.apis.groups.find_coordinator import CoordinatorApis
from stratalog.server.apis.groups.modern import ModernGroupApis
from stratalog.server.apis.groups.offsets import GroupOffsetApis
from stratalog.server.apis.list_offsets import OffsetApis
from stratalog.server.apis.log_dirs import LogDirApis
from stratalog.server.apis.metadata import MetadataApis
from stratalog.server.apis.produce import ProduceApis
from stratalog.server.apis.reassignments import ReassignmentApis
from stratalog.server.apis.topics import TopicApis
from stratalog.server.apis.transactions.admin import TransactionAdminApis
from stratalog.server.apis.transactions.producers import TransactionApis
from stratalog.server.audit.events import REFUSED_FRAME, AuditEvent, api_text
from stratalog.server.bootstrap import RunningCluster
from stratalog.server.quotas.client_apis import QuotaApis
from stratalog.server.quotas.client_quotas import ClientQuotas
from stratalog.server.quotas.rates import QuotaWindow
from stratalog.server.request.api import Api, Body, Call, Connection, Later, top_level_refusal
from stratalog.server.request.broker import ApiFamily, ServedBroker
from stratalog.server.request.endpoint import Endpoint
from stratalog.server.request.fair_threads import FairThreads, Line
from stratalog.server.request.large_requests import LargeRequests
from stratalog.server.request.limits import QUICK_ELEMENTS, bounds_before_login, is_quick, limits_by_api
from stratalog.server.request.quick_calls import QuickCalls
from stratalog.server.view.cluster_view import ClusterView
from stratalog.server.view.shared_read import one_reading
from stratalog.storage.clock import measured_ns
from stratalog.storage.errors import InvalidRequestError, StratalogError, UnknownServerError, UnsupportedVersionError
from stratalog.storage.log_lines import line_logger
from stratalog.wire.api_keys import ApiKey
from stratalog.wire.messages.frames import (
    Answer,
    Frame,
    RequestFrame,
    api_key_of,
    correlation_id_of,
    decode_request,
    encode_answer,
    encode_response,
    start_of,
)
from stratalog.wire.messages.response import Response
from stratalog.wire.messages.schema import Entity, response_type

_LOG = line_logger("stratalog.kafka")

SLOW_THREADS = 2
"""The number of threads of each API that waits long, such as CreateTopics: it does not hold up the others."""

COMPUTING_THREADS = 2
"""The number of threads for requests that name much. They take the interpreter, not storage."""
DECODING_THREADS = 2
"""The number of threads that decompress the batches of Produce requests, mostly outside of the interpreter."""

LARGE_ELEMENTS = 10_000
"""Of a large request: far fewer objects than a broker has anyway are made of others."""
LARGE_BYTES = 4 << 20
"""Size of a frame after which freed memory is returned to the system, also if it has few elements."""
WAITING_APIS = frozenset({ApiKey.FETCH, ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.DELETE_RECORDS})
"""Those that wait for others, a consumer's for most of its life: large is the work on them alone."""

_FAMILIES: tuple[type[ApiFamily], ...] = (
    MetadataApis,
    ProduceApis,
    OffsetApis,
    TopicApis,
    DeleteRecordsApis,
    LogDirApis,
    ConfigApis,
    FeatureApis,
    ReassignmentApis,
    ElectionApis,
    CoordinatorApis,
    GroupApis,
    ModernGroupApis,
    GroupOffsetApis,
    TransactionApis,
    TransactionAdminApis,
    QuotaApis,
    AclApis,
    SaslApis,
    HeartbeatApis,
)


def _nothing() -> None:
    """Nobody waits for its end."""


class KafkaHandler:
    """Answers Kafka's requests for one broker of a cluster that runs in this process. Any thread may call it."""

    def __init__(
        self,
        cluster: RunningCluster,
        broker_id: int,
        *,
        config: BrokerConfig | None = None,
        view: ClusterView | None = None,
        advertised: Mapping[int, Endpoint] | None = None,
        io: Executor | None = None,
    ) -> None:
        """As for `ServedBroker`. Close the handler before the cluster stops.

        io  runs requests that read storage, so that the caller's thread never waits; None: the caller's thread does
        """
        broker = self.broker = ServedBroker(cluster, broker_id, config=config, view=view, advertised=advertised)
        self._quotas = ClientQuotas(
            lambda: broker.view.image,
            lambda: broker.view.metadata.log.log_end_offset,
            broker.view.clock,
            QuotaWindow(broker.config.quota_window_num, 1_000 * broker.config.quota_window_size_seconds),
        )
        self._fetch = FetchApis(broker, io)
        families = (self._fetch, *(family(broker) for family in _FAMILIES))
        apis = [api for family in families for api in family.apis()]
        apis += ApiVersions(apis).apis()
        self._apis = {api.key: api for api in apis}
        self._served = {api.key: api.versions for api in apis}
        self._limits = limits_by_api(broker.config, self._served)
        self._io = io
        self._quick = None if io is None else QuickCalls(broker)
        self._computing = None if io is None else FairThreads(COMPUTING_THREADS, f"kafka-{broker_id}-computing")
        self._decoding = None if io is None else FairThreads(DECODING_THREADS, f"kafka-{broker_id}-decoding")
        broker.computing = self._computing
        self._large = LargeRequests(broker.scheduler, self._release_memory)
        self._slow = {
            api.key: ThreadPoolExecutor(SLOW_THREADS, thread_name_prefix=f"kafka-{broker_id}-api-{api.key}")
            for api in apis
            if api.is_slow
        }

    @property
    def apis(self) -> Iterable[Api]:
        """The APIs that are served."""
        return self._apis.values()

    @property
    def waiting_fetches(self) -> int:
        """The number of fetches that wait for records."""
        return self._fetch.waiting_count

    def handle(self, frame: Frame, connection: Connection, answer: Callable[[Answer | None], None]) -> None:
        """Answer a request frame with a response frame, both without the length before them.

        The batches of a Produce request are slices of its frame, which nobody may change afterwards.

        `answer` is called once, possibly from another thread; with None if nothing is to be sent (acks=0). Bytes that
        are no request, or one of a version that is not served, close the connection instead, as in Kafka.
        """
        if self._is_repeated(frame, connection, answer):
            return
        api_key, size_bytes = api_key_of(frame), len(frame)
        limits = self._limits.get(api_key)
        if limits is not None and size_bytes > limits.bytes_max:
            self._too_large(frame, f"it has {size_bytes} bytes > {limits.bytes_max}", connection, answer)
        elif self._computing is None:
            self._begin(frame, connection, answer, elements_max=None)
        elif api_key == ApiKey.PRODUCE:
            line = connection.memory.produce = connection.memory.produce or Line()
            line.put(partial(self._begin_produce, frame, connection, answer))
        elif not is_quick(size_bytes) or not self._begin(frame, connection, answer, elements_max=QUICK_ELEMENTS):
            self._computing.submit(connection, partial(self._begin, frame, connection, answer, elements_max=None))

    def _begin_produce(
        self, frame: Frame, connection: Connection, answer: Callable[[Answer | None], None], done: Callable[[], None]
    ) -> None:
        """The next request in a connection's line: its batches are queued in this order, whoever decodes them."""
        assert self._decoding is not None
        if not self._begin(frame, connection, answer, elements_max=QUICK_ELEMENTS, done=done):
            begin = partial(self._begin, frame, connection, answer, elements_max=None, done=done)
            self._decoding.submit(connection, begin)

    def _begin(
        self,
        frame: Frame,
        connection: Connection,
        answer: Callable[[Answer | None], None],
        *,
        elements_max: int | None,
        done: Callable[[], None] = _nothing,
    ) -> bool:
        """Decode a request and begin it; False, and nothing happened, when it has more elements than `elements_max`.

        elements_max  None: as many as its API may have, in a thread where it may take long
        done          called when it has been worked on; it may be answered later
        """
        limits = self._limits.get(api_key_of(frame))
        bounds = None if limits is None else limits.bounds(elements_max)
        decoding = LargeWork() if elements_max is None else None  # it is not known yet how many elements there are
        try:
            request = decode_request(frame, self._served, bounds, REQUEST_OF_API)
        except UnsupportedVersionError as reason:
            connection.close(str(reason))
        except StratalogError as reason:
            if bounds is not None and bounds.elements_left < 0 and elements_max is not None:
                return False
            if bounds is not None and bounds.is_exceeded:
                self._too_large(frame, str(reason), connection, answer)
            else:
                connection.close(f"unreadable request: {reason}")
        else:
            if request.entity is None:
                answer(unsupported_version(request.correlation_id, self.apis))
            else:
                call = self._call(request, connection, answer, frame)
                if elements_max is None and self._computing is not None:
                    call.aside = partial(self._computing.take_over, connection)
                if decoding is not None and bounds is not None and bounds.elements_taken >= LARGE_ELEMENTS:
                    call.large = self._holds(connection)
                elif len(frame) >= LARGE_BYTES:
                    self._large.release_later()
                self._serve(call, done, is_own_thread=elements_max is None)
                return True
        done()
        return True

    def _too_large(
        self, frame: Frame, reason: str, connection: Connection, answer: Callable[[Answer | None], None]
    ) -> None:
        """Refuse a request beyond its bounds, of which only the header is read: where its API has one error for all of
        it by INVALID_REQUEST, else, as bytes that are no request, by the end of the connection."""
        api_key, version, correlation_id = start_of(frame)
        error = InvalidRequestError(f"the request is too large: {reason}")
        is_served = version in self._served.get(api_key, ())
        kios = response_type(api_key, version) if is_served else None
        values = None if kios is None else top_level_refusal(kios, error)
        if values is None:
            connection.close(f"a request of API {api_key} is too large: {reason}")
        else:
            _LOG.warning("broker %d: API %d of %s: %s", self.broker.broker_id, api_key, connection.peer, error)
            if connection.audit is not None:
                connection.audit(refused_frame(connection, api_key, version, str(error)))
            answer(encode_response(correlation_id, values, kios))

    def _call(
        self, request: RequestFrame, connection: Connection, answer: Callable[[Answer | None], None], frame: Frame
    ) -> Call:
        correlation_id, kios = request.correlation_id, response_type(request.api_key, request.version)
        use = self._quotas.of_request(connection.principal, request.client_id, request.api_key, len(frame))

        def encode(response: Entity | None) -> None:
            encoded = None if response is None else encode_answer(correlation_id, response, kios)
            if use is not None:
                throttle_ms = use.answered(_size_bytes(encoded))
                if throttle_ms:
                    connection.throttle(throttle_ms)
                    if response is not None and hasattr(kios, "throttle_time"):
                        encoded = encode_answer(correlation_id, _told(response, throttle_ms), kios)
            answer(encoded)

        return Call(request, connection, encode, use, frame)

    def _is_repeated(self, frame: Frame, connection: Connection, answer: Callable[[Answer | None], None]) -> bool:
        """Serve a Fetch with the bytes of the connection's last one, which is not decoded again; False for others."""
        known: FetchMemory | None = connection.memory.fetch
        if known is None or known.repeat is None or not known.repeat.is_same(frame) or not self._quotas.is_empty:
            return False
        correlation_id, request = correlation_id_of(frame), known.repeat.request
        kios = response_type(request.api_key, request.version)

        def encode(response: Entity | None) -> None:
            answer(None if response is None else encode_answer(correlation_id, response, kios))

        self._serve(Call(request, connection, encode, None, frame))
        return True

    def refuse(
        self, frame: Frame, error: StratalogError, connection: Connection, answer: Callable[[Answer | None], None]
    ) -> None:
        """Answer a request frame with this error, without doing what it asks for."""
        try:
            request = decode_request(frame, self._served, bounds_before_login(), REQUEST_OF_API)
        except StratalogError:
            answer(None)
            return
        if request.entity is None:
            answer(unsupported_version(request.correlation_id, self.apis))
            return

        kios = response_type(request.api_key, request.version)

        def encode(response: Entity | None) -> None:
            answer(None if response is None else encode_response(request.correlation_id, response, kios))

        call = Call(request, connection, encode)
        call.respond_with(lambda: self._apis[call.api_key].refuse(call, error))

    def _serve(self, call: Call, done: Callable[[], None] = _nothing, *, is_own_thread: bool = False) -> None:
        api = self._apis.get(call.api_key)
        if api is None or call.version not in self._served[call.api_key]:
            call.connection.close(f"API {call.api_key} version {call.version} is not served")
            done()
            return
        executor = self._slow.get(api.key, None if is_own_thread else self._io)
        if api.is_quick and self._quick is not None and not is_own_thread:
            self._quick.run(partial(self._run, api, call, done), call.connection, is_known=api.is_known(call))
            return
        if executor is None:
            self._run(api, call, done)
        else:
            executor.submit(self._run, api, call, done)

    def _run(self, api: Api, call: Call, done: Callable[[], None]) -> None:
        if api.is_slow and call.aside is not None and call.connection.memory.is_over:
            done()  # a large request that waited for a thread: nobody gets its answer
            return
        self._work(api, call, partial(api.handle, call), done)

    def _work(self, api: Api, call: Call, work: Callable[[], Body | Later | None], done: Callable[[], None]) -> None:
        begun_ns = 0 if call.use is None else measured_ns()
        call.begins()
        try:
            body = self._answer_of(api, call, work)
        except Exception as defect:  # noqa: BLE001 - a request that cannot even be refused ends its connection
            _LOG.exception("broker %d: API %d version %d", self.broker.broker_id, call.api_key, call.version)
            call.connection.close(f"no answer could be made: {type(defect).__name__}: {defect}")
            done()
            return
        call.worked()
        if api.key in WAITING_APIS:
            call.large = None
        if call.use is not None:
            call.use.worked(measured_ns() - begun_ns)
        if isinstance(body, Later):
            self._continue(api, call, body, done)
            return
        if body is not None:
            call.respond(body)
        done()

    def _continue(self, api: Api, call: Call, later: Later, done: Callable[[], None]) -> None:
        if self._io is None or self._decoding is None:
            self._work(api, call, later.work, done)
            return
        if later.computes:
            call.large = call.large or self._holds(call.connection)
            self._decoding.submit(call.connection, partial(self._work, api, call, later.work, done))
            return
        try:
            self._io.submit(self._work, api, call, later.work, done)
        except RuntimeError:  # its threads have ended
            call.connection.close("the broker stops")

    def _holds(self, connection: Connection) -> object:
        """What lives as long as a large request of this connection is under way."""
        held = None if self._computing is None else self._computing.hold(connection)
        return self._large.begins(), held

    def _answer_of(self, api: Api, call: Call, work: Callable[[], Body | Later | None]) -> Body | Later | None:
        try:
            with one_reading():
                return work()
        except StratalogError as refusal:
            return api.refuse(call, refusal.as_value())
        except Exception as defect:  # noqa: BLE001 - the client gets an answer in any case
            _LOG.exception("broker %d: API %d version %d", self.broker.broker_id, call.api_key, call.version)
            return api.refuse(call, UnknownServerError(f"{type(defect).__name__}: {defect}"))

    def _release_memory(self) -> None:
        """Return freed memory to the system; each thread returns what Arrow's allocator keeps for it."""
        for threads in (self._computing, self._decoding):
            if threads is not None:
                threads.run_in_each(release_arrow_memory)
        release_free_memory()

    def close(self) -> None:
        """Answer the fetches that wait, and end the threads."""
        self._fetch.close()
        if self._quick is not None:
            self._quick.close()
        for threads in (self._computing, self._decoding):
            if threads is not None:
                threads.close()
        self.broker.scheduler.close()
        for executor in self._slow.values():
            executor.shutdown(wait=True)


def refused_frame(connection: Connection, api_key: int, version: int, reason: str) -> AuditEvent:
    """A frame that is answered by an error without being read."""
    principal = connection.principal
    return AuditEvent(
        REFUSED_FRAME,
        principal.name,
        connection.peer or principal.host,
        connection.listener,
        api=api_text(api_key),
        api_version=version,
        outcome="INVALID_REQUEST",
        detail=reason,
    )


def _size_bytes(answer: Answer | None) -> int:
    return len(answer) if isinstance(answer, bytes) else sum(map(len, answer or ()))


def _told(response: Entity, throttle_ms: int) -> Entity:
    """The response with the time for which its client is throttled."""
    if isinstance(response, Response):
        return replace(response, throttle_time_ms=throttle_ms)
    return {**response, "throttle_time": throttle_ms}
