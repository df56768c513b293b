"""A broker's face for Kafka's requests: frames or messages in, frames or messages out.

I/O: through the broker, a view of the cluster, and threads for slow requests. No socket: its owner calls `handle` with
each frame, in the order of the connection, and sends the frames that `answer` gets. An answer may come at once, in the
caller's thread, or later from another one: Produce with acks=all waits for the high watermark, Fetch for records.
Source: Kafka's `KafkaApis`, `RequestChannel`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor

from stratalog.clients.bootstrap import RunningCluster
from stratalog.clients.kafka.apis.api_versions import ApiVersions, unsupported_version
from stratalog.clients.kafka.apis.configs import ConfigApis
from stratalog.clients.kafka.apis.delete_records import RecordApis
from stratalog.clients.kafka.apis.fetch import FetchApis
from stratalog.clients.kafka.apis.find_coordinator import CoordinatorApis
from stratalog.clients.kafka.apis.group_offsets import GroupOffsetApis
from stratalog.clients.kafka.apis.groups import GroupApis
from stratalog.clients.kafka.apis.list_offsets import OffsetApis
from stratalog.clients.kafka.apis.metadata import MetadataApis
from stratalog.clients.kafka.apis.modern_groups import ModernGroupApis
from stratalog.clients.kafka.apis.produce import ProduceApis
from stratalog.clients.kafka.apis.reassignments import ReassignmentApis
from stratalog.clients.kafka.apis.topics import TopicApis
from stratalog.clients.kafka.apis.transaction_admin import TransactionAdminApis
from stratalog.clients.kafka.apis.transactions import TransactionApis
from stratalog.clients.kafka.protocol.entities import Values
from stratalog.clients.kafka.protocol.frames import decode_request, encode_response
from stratalog.clients.kafka.protocol.schema import Entity
from stratalog.clients.kafka.request.api import Api, Call, Connection
from stratalog.clients.kafka.request.broker import ApiFamily, Endpoint, ServedBroker
from stratalog.clients.view.cluster_view import ClusterView
from stratalog.replication.config import BrokerConfig
from stratalog.storage.errors import StratalogError, UnknownServerError, UnsupportedVersionError

_LOG = logging.getLogger("stratalog.kafka")

SLOW_THREADS = 2
"""The number of threads of each API that waits long, such as DeleteRecords: it does not hold up the others."""

_FAMILIES: tuple[type[ApiFamily], ...] = (
    MetadataApis,
    ProduceApis,
    OffsetApis,
    TopicApis,
    RecordApis,
    ConfigApis,
    ReassignmentApis,
    CoordinatorApis,
    GroupApis,
    ModernGroupApis,
    GroupOffsetApis,
    TransactionApis,
    TransactionAdminApis,
)


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
        self._fetch = FetchApis(broker)
        families = (self._fetch, *(family(broker) for family in _FAMILIES))
        apis = [api for family in families for api in family.apis()]
        apis += ApiVersions(apis).apis()
        self._apis = {api.key: api for api in apis}
        self._served = {api.key: api.versions for api in apis}
        self._io = io
        self._slow = {
            api.key: ThreadPoolExecutor(SLOW_THREADS, thread_name_prefix=f"kafka-{broker_id}-api-{api.key}")
            for api in apis
            if api.is_slow
        }

    @property
    def apis(self) -> Iterable[Api]:
        """The APIs that are served."""
        return self._apis.values()

    def handle(self, frame: bytes, connection: Connection, answer: Callable[[bytes | None], None]) -> None:
        """Answer a request frame with a response frame, both without the length before them.

        `answer` is called once, possibly from another thread; with None if nothing is to be sent (acks=0). Bytes that
        are no request, or one of a version that is not served, close the connection instead, as in Kafka.
        """
        try:
            request = decode_request(frame, self._served)
        except UnsupportedVersionError as reason:
            connection.close(str(reason))
            return
        except StratalogError as reason:
            connection.close(f"unreadable request: {reason}")
            return
        if request.entity is None:
            answer(unsupported_version(request.correlation_id, self.apis))
            return
        correlation_id = request.correlation_id

        def encode(response: Entity | None) -> None:
            answer(None if response is None else encode_response(correlation_id, response))

        self.serve(request.entity, connection, encode, request.client_id)

    def serve(
        self,
        request: Entity,
        connection: Connection,
        answer: Callable[[Entity | None], None],
        client_id: str | None = None,
    ) -> None:
        """As `handle`, with kio's messages instead of frames."""
        call = Call(request, connection, client_id, answer)
        api = self._apis.get(call.api_key)
        if api is None or call.version not in self._served[call.api_key]:
            connection.close(f"API {call.api_key} version {call.version} is not served")
            return
        executor = self._slow.get(api.key, None if api.is_quick else self._io)
        if executor is None:
            self._run(api, call)
        else:
            executor.submit(self._run, api, call)

    def _run(self, api: Api, call: Call) -> None:
        try:
            values = self._answer_of(api, call)
        except Exception as defect:  # noqa: BLE001 - a request that cannot even be refused ends its connection
            _LOG.exception("broker %d: API %d version %d", self.broker.broker_id, call.api_key, call.version)
            call.connection.close(f"no answer could be made: {type(defect).__name__}: {defect}")
            return
        if values is not None:
            call.respond(values)

    def _answer_of(self, api: Api, call: Call) -> Values | None:
        try:
            return api.handle(call)
        except StratalogError as refusal:
            return api.refuse(call, refusal)
        except Exception as defect:  # noqa: BLE001 - the client gets an answer in any case
            _LOG.exception("broker %d: API %d version %d", self.broker.broker_id, call.api_key, call.version)
            return api.refuse(call, UnknownServerError(f"{type(defect).__name__}: {defect}"))

    def close(self) -> None:
        """Answer the fetches that wait, and end the threads."""
        self._fetch.close()
        self.broker.scheduler.close()
        for executor in self._slow.values():
            executor.shutdown(wait=True)
