"""Calls to brokers in other processes, as pickled values over local sockets, in place of frames of Kafka's protocol.

A broker's process opens a `WireServer`. A process that calls brokers, as a client or as a coordinator that sends
markers, uses a `WiredCluster`. As over any connection, calls to a process that died are answered with an error, and
calls to a paused process are not answered.
"""

from __future__ import annotations

import pickle
import threading
import time
import zlib
from collections.abc import Callable, Iterator, MutableMapping
from itertools import count
from multiprocessing.connection import Client, Connection, Listener
from queue import SimpleQueue

from stratalog.clients.bootstrap import BrokerFace
from stratalog.replication.broker.broker import Broker
from stratalog.replication.broker.calls import BrokerCalls
from stratalog.replication.coordinator.runtime.find_coordinator import no_coordinators
from stratalog.replication.coordinator.runtime.remote_appends import Appends
from stratalog.replication.requests.coordinators import CoordinatorType, FindCoordinatorRequest, FindCoordinatorResponse
from stratalog.replication.requests.produce import ProduceRequest, ProduceResponse
from stratalog.storage.errors import CoordinatorNotAvailableError, RequestTimedOutError
from tests.real.processes.broker_processes import BROKERS

CONNECT_EVERY_S = 0.05
WAITING_MAX = 64


def address_of(metadata_root: str, broker_id: int) -> str:
    """A name for Linux's abstract sockets: they are not on disk, and end with their process."""
    return f"\0stratalog-{zlib.crc32(metadata_root.encode())}-{broker_id}"


class Line:
    """A connection whose `send` never blocks: a thread writes, a thread reads and calls `received`."""

    def __init__(self, connection: Connection, received: Callable[[tuple], None], ended: Callable[[], None]) -> None:
        self._connection = connection
        self._outgoing: SimpleQueue[object] = SimpleQueue()
        self._received = received
        self._ended = ended

    def begin(self) -> None:
        """Start the threads, once `received` and `ended` can be called."""
        for work in (self._write, self._read):
            threading.Thread(target=work, name="wire", daemon=True).start()

    def send(self, value: object) -> None:
        self._outgoing.put(value)

    def _write(self) -> None:
        try:
            while True:
                self._connection.send_bytes(pickle.dumps(self._outgoing.get(), pickle.HIGHEST_PROTOCOL))
        except OSError:
            return  # the reading thread gets the same error

    def _read(self) -> None:
        try:
            while True:
                self._received(pickle.loads(self._connection.recv_bytes()))
        except (OSError, EOFError):
            self._ended()


class WireServer:
    """Receives calls for one broker in threads of this process, until that ends."""

    def __init__(self, broker: Broker, metadata_root: str) -> None:
        self._broker = broker
        self._listener = Listener(address_of(metadata_root, broker.broker_id), "AF_UNIX", WAITING_MAX)
        threading.Thread(target=self._accept, name="wire-server", daemon=True).start()

    def _accept(self) -> None:
        while True:
            _Caller(self._broker.calls, self._listener.accept())


class _Caller:
    """One connection to this broker."""

    def __init__(self, broker: BrokerCalls, connection: Connection) -> None:
        self._broker = broker
        self._line = Line(connection, self._receive, lambda: None)
        self._line.begin()

    def _receive(self, call: tuple) -> None:
        number, name, arguments = call
        getattr(self._broker, name)(*arguments, lambda answer: self._line.send((number, answer)))


class WiredBroker:
    """A broker in another process (`BrokerFace`)."""

    def __init__(self, broker_id: int, connection: Connection) -> None:
        self.broker_id = broker_id
        self.is_gone = False
        self._numbers = count()
        self._open: dict[int, tuple[Callable[[object], None], Callable[[], object]]] = {}
        self._line = Line(connection, self._answered, self._ended)
        self._line.begin()

    def produce_then(self, request: ProduceRequest, complete: Callable[[ProduceResponse], None]) -> None:
        error = RequestTimedOutError(f"broker {self.broker_id} is gone; whether it stored the batch is unknown")
        self._call("produce_then", (request,), complete, lambda: ProduceResponse(request.topic_partition, error=error))

    def find_coordinator(
        self, request: FindCoordinatorRequest, answer: Callable[[FindCoordinatorResponse], None]
    ) -> None:
        self._call("find_coordinator", (request,), answer, lambda: no_coordinators(request, self._away()))

    def coordinator(
        self, kind: CoordinatorType, key: str | int, request: object, answer: Callable[[object], None]
    ) -> None:
        self._call("coordinator", (kind, key, request), answer, self._away)

    def every_coordinator(self, kind: CoordinatorType, request: object, answer: Callable[[list[object]], None]) -> None:
        self._call("every_coordinator", (kind, request), answer, lambda: [self._away()])

    def _away(self) -> CoordinatorNotAvailableError:
        return CoordinatorNotAvailableError(f"broker {self.broker_id} is gone")

    def _call(self, name: str, arguments: tuple, answer: Callable, lost: Callable[[], object]) -> None:
        number = next(self._numbers)
        self._open[number] = answer, lost
        self._line.send((number, name, arguments))
        if self.is_gone:
            self._ended()

    def _answered(self, answer: tuple) -> None:
        number, value = answer
        if (waiting := self._open.pop(number, None)) is not None:
            waiting[0](value)

    def _ended(self) -> None:
        self.is_gone = True
        for number in list(self._open):
            if (waiting := self._open.pop(number, None)) is not None:
                waiting[0](waiting[1]())


class WiredCluster:
    """A `RunningCluster` whose brokers are other processes."""

    def __init__(self, metadata_root: str) -> None:
        self.root = metadata_root
        self._lock = threading.Lock()
        self._brokers: dict[int, WiredBroker] = {}
        self._tried_s = dict.fromkeys(BROKERS, 0.0)

    def brokers(self) -> dict[int, BrokerFace]:
        """The brokers that can be reached, a paused process included."""
        found = ((broker_id, self.broker(broker_id)) for broker_id in BROKERS)
        return {broker_id: broker for broker_id, broker in found if broker is not None}

    def hosts(self, broker_id: int) -> bool:
        return broker_id in BROKERS

    def broker(self, broker_id: int) -> WiredBroker | None:
        known = self._brokers.get(broker_id)
        if known is not None and not known.is_gone:
            return known
        with self._lock:
            if time.monotonic() - self._tried_s[broker_id] < CONNECT_EVERY_S:
                return None
            self._tried_s[broker_id] = time.monotonic()
            try:
                connection = Client(address_of(self.root, broker_id), "AF_UNIX")
            except OSError:
                return None
            made = self._brokers[broker_id] = WiredBroker(broker_id, connection)
            return made


class WiredPeers(MutableMapping[int, Appends]):
    """The brokers that one broker can call: itself, and others over wires."""

    def __init__(self, metadata_root: str) -> None:
        self._own: dict[int, Appends] = {}
        self._cluster = WiredCluster(metadata_root)

    def __getitem__(self, broker_id: int) -> Appends:
        found = self._own.get(broker_id) or self._cluster.broker(broker_id)
        if found is None:
            raise KeyError(broker_id)
        return found

    def __setitem__(self, broker_id: int, broker: Appends) -> None:
        self._own[broker_id] = broker

    def __delitem__(self, broker_id: int) -> None:
        del self._own[broker_id]

    def __iter__(self) -> Iterator[int]:
        return iter(BROKERS)

    def __len__(self) -> int:
        return len(BROKERS)
