"""Connections over real sockets, in front of a handler that the test answers for."""

from __future__ import annotations

import gc
import logging
import resource
import socket
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from struct import pack

import pytest

from stratalog.replication.config import ASYNCIO, UVLOOP, BrokerConfig
from stratalog.replication.metrics import Histogram
from stratalog.server.endpoint import connection as connection_module
from stratalog.server.endpoint import loops
from stratalog.server.endpoint.admission import RequestBound
from stratalog.server.endpoint.connection import PIECES_MAX
from stratalog.server.endpoint.listeners import Listener, SecurityProtocol
from stratalog.server.endpoint.socket_server import SocketServer, bind
from stratalog.server.request.api import Connection
from stratalog.storage.errors import InvalidConfigError
from stratalog.wire.api_keys import ApiKey
from stratalog.wire.messages.frames import Answer, Frame
from tests.waiting import wait_until

WAIT_S = 60


class Requests:
    """Requests that arrived, in order; the test answers them, from its own thread, until it ends."""

    def __init__(self) -> None:
        self._open: dict[int, Callable[[Answer | None], None]] = {}
        self._is_over = False
        self._lock = threading.Lock()
        self.frames: list[Frame] = []
        self.answers: list[Callable[[Answer | None], None]] = []
        self.callers: list[Connection] = []

    def handle(self, frame: Frame, connection: Connection, answer: Callable[[Answer | None], None]) -> None:
        with self._lock:
            number = len(self.frames)
            self._open[number] = answer
            self.callers.append(connection)
            self.answers.append(partial(self._answer, number))
            self.frames.append(frame)
        if self._is_over:
            self._answer(number, b"")

    def _answer(self, number: int, content: Answer | None) -> None:
        with self._lock:
            answer = self._open.pop(number, None)
        if answer is not None:
            answer(content)

    def answer_the_rest(self) -> None:
        """The server waits for requests that it began."""
        self._is_over = True
        for number in list(self._open):
            self._answer(number, b"")

    def await_count(self, count: int) -> None:
        wait_until(lambda: len(self.frames) >= count)


class Client:
    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), WAIT_S)

    def send(self, *frames: bytes) -> None:
        self.socket.sendall(b"".join(pack(">i", len(frame)) + frame for frame in frames))

    def answer(self) -> bytes:
        """The next answer; b"" at the connection's end."""
        head = self._exactly(4)
        return self._exactly(int.from_bytes(head, "big")) if head else b""

    def _exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            try:
                more = self.socket.recv(count - len(data))
            except ConnectionResetError:
                more = b""
            if not more:
                return b""
            data += more
        return data

    def is_closed(self) -> bool:
        return self._exactly(1) == b""


def frame(api_key: int, text: bytes = b"") -> bytes:
    return pack(">hh", api_key, 0) + text


class Server:
    def __init__(self, settings: dict[str, object], host: str = "127.0.0.1") -> None:
        self.requests = Requests()
        config = BrokerConfig.from_properties(settings)
        (bound,) = bind([Listener("PLAINTEXT", SecurityProtocol.PLAINTEXT, host, 0)])
        self.port = bound.listener.port
        self.queued = RequestBound(config.queued_max_requests)
        self.server = SocketServer(config, self.queued)
        self.metrics = self.server.serve(1, [bound], self.requests)

    def client(self) -> Client:
        return Client(self.port)


@pytest.fixture(params=[ASYNCIO, UVLOOP])
def event_loop(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def server(request: pytest.FixtureRequest, event_loop: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(loops, "IDLE_CHECK_S", 0.05)
    made = Server({"stratalog.event.loop": event_loop, **getattr(request, "param", {})})
    yield made
    made.requests.answer_the_rest()
    made.server.stop()


def test_a_request_is_answered(server: Server) -> None:
    client = server.client()
    client.send(frame(ApiKey.METADATA, b"hello"))
    server.requests.await_count(1)
    assert server.requests.frames == [frame(ApiKey.METADATA, b"hello")]
    assert server.requests.callers[0].listener == "PLAINTEXT"
    server.requests.answers[0](b"world")
    assert client.answer() == b"world"


def test_requests_bytes_and_connections_are_counted(server: Server) -> None:
    client = server.client()
    client.send(frame(ApiKey.METADATA, b"hello"), frame(ApiKey.METADATA, b"more"))
    for number, answer in enumerate((b"world", None)):
        server.requests.await_count(number + 1)
        server.requests.answers[number](answer)
    assert client.answer() == b"world"
    traffic = server.metrics.listener("PLAINTEXT")
    wait_until(lambda: counted(server, "requestmetrics_requests_total") == 2, "the request without an answer")
    assert (traffic.request, traffic.incoming_byte, traffic.outgoing_byte) == (2, 17, 5)
    assert (traffic.connection_creation, traffic.successful_authentication) == (1, 0)
    assert counted(server, "connection_count") == 1
    client.socket.close()
    wait_until(lambda: counted(server, "connection_count") == 0, "the connection's end")


def counted(server: Server, name: str) -> float:
    """The sum of a metric's values."""
    (metric,) = [each for each in server.metrics.metrics() if each.name.endswith(name)]
    return sum(float(value) for value in metric.values.values() if not isinstance(value, Histogram))


def test_produce_requests_run_together_and_are_answered_in_order(server: Server) -> None:
    client = server.client()
    client.send(frame(ApiKey.PRODUCE, b"1"), frame(ApiKey.PRODUCE, b"2"), frame(ApiKey.METADATA, b"3"))
    server.requests.await_count(2)
    first, second = server.requests.answers
    second(b"b")
    first(b"a")
    assert [client.answer(), client.answer()] == [b"a", b"b"]
    server.requests.await_count(3)
    server.requests.answers[2](b"c")
    assert client.answer() == b"c"


@pytest.mark.parametrize("piece_bytes", [10, 70_000, 3_000_000])
def test_an_answer_of_many_pieces_arrives_whole_and_before_the_next(server: Server, piece_bytes: int) -> None:
    """The client reads late: the kernel takes a part of the pieces, the rest follows in order."""
    client = server.client()
    client.send(frame(ApiKey.PRODUCE), frame(ApiKey.PRODUCE))
    server.requests.await_count(2)
    pieces = [bytes([which]) * piece_bytes for which in range(5)]
    first, second = server.requests.answers
    first([pieces[0], memoryview(pieces[1]), *pieces[2:]])
    second(b"next")
    assert client.answer() == b"".join(pieces)
    assert client.answer() == b"next"


def test_an_answer_of_more_pieces_than_the_kernel_takes_at_once(server: Server) -> None:
    client = server.client()
    client.send(frame(ApiKey.METADATA))
    server.requests.await_count(1)
    piece = bytes(range(256)) * 160
    server.requests.answers[0]([piece] * (2 * PIECES_MAX // 3))
    assert client.answer() == piece * (2 * PIECES_MAX // 3)


def test_a_request_without_an_answer_lets_the_next_one_begin(server: Server) -> None:
    client = server.client()
    client.send(frame(ApiKey.METADATA), frame(ApiKey.METADATA))
    server.requests.await_count(1)
    server.requests.answers[0](None)
    server.requests.await_count(2)
    server.requests.answers[1](b"x")
    assert client.answer() == b"x"


def test_a_client_over_its_quota_waits_for_its_next_request(server: Server) -> None:
    """The answer is sent at once; requests that are here already begin when the time is over. Others are not held."""
    client, other = server.client(), server.client()
    client.send(frame(ApiKey.METADATA, b"1"), frame(ApiKey.METADATA, b"2"))
    server.requests.await_count(1)
    begun_s = time.monotonic()
    server.requests.callers[0].throttle(200)
    server.requests.callers[0].throttle(50)
    server.requests.answers[0](b"a")
    assert client.answer() == b"a"
    other.send(frame(ApiKey.METADATA, b"3"))
    server.requests.await_count(2)
    assert server.requests.frames[1] == frame(ApiKey.METADATA, b"3")
    server.requests.await_count(3)
    assert server.requests.frames[2] == frame(ApiKey.METADATA, b"2")
    assert time.monotonic() - begun_s >= 0.19


def test_what_a_client_sent_before_it_left_is_still_done(server: Server) -> None:
    """A consumer's leave behind a commit, the last batches of a producer with acks=0."""
    client = server.client()
    client.send(frame(ApiKey.METADATA, b"commit"), frame(ApiKey.METADATA, b"leave"), frame(ApiKey.METADATA, b"more"))
    server.requests.await_count(1)
    client.socket.close()
    for number in range(3):
        server.requests.await_count(number + 1)
        server.requests.answers[number](b"answer")
    assert server.requests.frames[1:] == [frame(ApiKey.METADATA, b"leave"), frame(ApiKey.METADATA, b"more")]


def test_a_large_answer_and_a_large_request_arrive_whole(server: Server) -> None:
    client = server.client()
    large = bytes(range(256)) * 20_000
    client.send(frame(ApiKey.METADATA, large))
    server.requests.await_count(1)
    assert server.requests.frames[0] == frame(ApiKey.METADATA, large)
    server.requests.answers[0](large)
    assert client.answer() == large


@pytest.mark.parametrize("server", [{"socket.request.max.bytes": 100}], indirect=True)
def test_a_frame_above_the_limit_closes_its_connection_alone(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    other, client = server.client(), server.client()
    with caplog.at_level(logging.WARNING, "stratalog.network"):
        client.socket.sendall(pack(">i", 101))
        assert client.is_closed()
    (line,) = [record.message for record in caplog.records]
    assert line.startswith("connection of 127.0.0.1:")
    assert line.endswith("Invalid receive (size = 101; it must be between 0 and 100)")
    other.send(frame(ApiKey.METADATA))
    server.requests.await_count(1)


def test_the_handler_closes_a_connection_from_another_thread(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    client = server.client()
    client.send(frame(99))
    server.requests.await_count(1)
    with caplog.at_level(logging.WARNING, "stratalog.network"):
        threading.Thread(target=server.requests.callers[0].close, args=("API 99: it is not served",)).start()
        assert client.is_closed()
    (line,) = [record.message for record in caplog.records]
    assert "closed at API 99: API 99: it is not served" in line


@pytest.mark.parametrize("server", [{"max.connections.per.ip": 1}, {"max.connections": 1}], indirect=True)
def test_a_connection_beyond_the_limit_is_closed(server: Server) -> None:
    first = server.client()
    first.send(frame(ApiKey.METADATA))
    server.requests.await_count(1)
    assert server.client().is_closed()
    first.socket.close()
    server.requests.answers[0](b"")

    def is_served() -> bool:
        client = server.client()
        client.send(frame(ApiKey.METADATA))
        client.socket.settimeout(0.2)
        try:
            return not client.is_closed()
        except TimeoutError:
            return True

    wait_until(is_served)


@pytest.mark.parametrize("throttle_ms", [0, 60_000])
def test_a_request_that_was_read_is_answered_although_the_server_stops_before_its_turn(
    event_loop: str, throttle_ms: int
) -> None:
    """A consumer's heartbeat behind its fetch, also where a quota holds it up: left alone, it would hold up the
    broker's end for `DRAIN_S`."""
    server = Server({"stratalog.event.loop": event_loop})
    client = server.client()
    client.send(frame(ApiKey.FETCH, b"1"), frame(ApiKey.HEARTBEAT, b"2"))
    server.requests.await_count(1)
    if throttle_ms:
        server.requests.callers[0].throttle(throttle_ms)
    stopping = threading.Thread(target=server.server.stop)
    stopping.start()

    def accepts_nobody() -> bool:
        try:
            server.client().socket.close()
        except OSError:  # refused, or reset by the end that has begun
            return True
        return False

    wait_until(accepts_nobody)
    server.requests.answers[0](b"1")
    server.requests.await_count(2)
    server.requests.answers[1](b"2")
    assert [client.answer(), client.answer(), client.answer()] == [b"1", b"2", b""]
    stopping.join(WAIT_S)
    assert not stopping.is_alive()


def test_a_client_of_ipv4_at_a_socket_of_ipv6_has_its_own_address() -> None:
    """For ACLs by host, and for the limit of its connections."""
    server = Server({"max.connections.per.ip.overrides": "127.0.0.1:1"}, host="::")
    try:
        client = server.client()
        client.send(frame(ApiKey.METADATA))
        server.requests.await_count(1)
        assert server.requests.callers[0].principal.host == "127.0.0.1"
        assert server.client().is_closed()
    finally:
        server.requests.answer_the_rest()
        server.server.stop()


def test_a_process_with_sockets_has_all_the_open_files_that_the_system_allows() -> None:
    before, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(256, before // 2), most))
        Server({}).server.stop()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (most, most)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (before, most))


@pytest.mark.parametrize("server", [{"queued.max.request.bytes": 1_000}], indirect=True)
def test_beyond_the_memory_bound_clients_are_not_read_until_others_are_answered(server: Server) -> None:
    first, second = server.client(), server.client()
    first.send(frame(ApiKey.METADATA, b"x" * 1_000))
    server.requests.await_count(1)
    second.send(frame(ApiKey.METADATA, b"y"), frame(ApiKey.METADATA, b"z"))
    server.requests.await_count(2)  # the request that meets the bound begins; those behind it do not
    server.requests.answers[1](b"2")
    assert second.answer() == b"2"
    assert len(server.requests.frames) == 2
    server.requests.answers[0](b"1")
    server.requests.await_count(3)
    server.requests.answers[2](b"3")
    assert second.answer() == b"3"


@pytest.mark.parametrize("server", [{"queued.max.request.bytes": 4 << 20}], indirect=True)
def test_a_large_frame_is_not_read_on_while_the_memory_is_taken(server: Server) -> None:
    """It counts whole while it arrives; a second one waits, and small requests of others are answered meanwhile."""
    size = 16 << 20
    first, second, small = server.client(), server.client(), server.client()
    first.socket.sendall(pack(">i", size) + bytes(2 << 20))
    wait_until(lambda: server.server.limits.bytes_under_way.taken == size)
    sending = threading.Thread(target=second.send, args=(bytes(size),), daemon=True)
    sending.start()
    wait_until(lambda: server.server.limits.bytes_under_way.waiting == 1)
    small.send(frame(ApiKey.METADATA))
    server.requests.await_count(1)
    assert server.requests.frames == [frame(ApiKey.METADATA)]
    first.socket.close()
    server.requests.await_count(2)
    assert len(server.requests.frames[1]) == size
    for answer in server.requests.answers:
        answer(b"")
    wait_until(lambda: server.server.limits.bytes_under_way.taken == 0)


def test_a_connection_that_ended_is_freed_without_a_garbage_collection(server: Server) -> None:
    """With the buffer of a frame that did not come; a broker seldom collects garbage."""
    gc.disable()
    try:
        client = server.client()
        client.send(frame(ApiKey.METADATA))
        server.requests.await_count(1)
        server.requests.answers[0](b"")
        connections = [server.requests.callers.pop().close.__self__]  # type: ignore[attr-defined]  # a bound method
        client.socket.sendall(pack(">i", 50 << 20) + bytes(100 << 10))
        wait_until(lambda: connections[0].get_buffer(0).nbytes > 1 << 20)
        freed = weakref.ref(connections[0]), weakref.ref(connections.pop().get_buffer(0).obj)
        client.socket.close()
        wait_until(lambda: [each() for each in freed] == [None, None])
    finally:
        gc.enable()


def test_while_too_many_requests_wait_for_an_io_thread_none_begins(server: Server) -> None:
    server.queued.add(500)
    client = server.client()
    client.send(frame(ApiKey.METADATA))
    wait_until(lambda: server.queued.waiting == 1)
    assert server.requests.frames == []
    server.queued.release(1)
    server.requests.await_count(1)


def test_a_client_that_does_not_read_its_answers_is_not_read_from(server: Server) -> None:
    client, large = server.client(), bytes(4 << 20)
    client.send(*[frame(ApiKey.PRODUCE)] * 40)
    answered = 0
    while answered < 40:
        count = len(server.requests.answers)
        for answer in server.requests.answers[answered:count]:
            answer(large)
        if count == answered and answered:
            break
        answered = count
        if answered < 5:
            server.requests.await_count(answered + 1)
    assert len(server.requests.frames) < 40
    for _ in range(answered):
        assert client.answer() == large


def test_a_connection_that_the_broker_closes_ends_even_if_its_answers_are_not_read(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_module, "LINGER_S", 0.1)
    client = server.client()
    client.send(frame(ApiKey.METADATA))
    server.requests.await_count(1)
    server.requests.answers[0](bytes(64 << 20))
    quotas = server.server.limits.quotas
    assert quotas.count == 1
    server.requests.callers[0].close("enough")
    wait_until(lambda: quotas.count == 0)


@pytest.mark.parametrize("server", [{"connections.max.idle.ms": 100}], indirect=True)
def test_a_connection_is_closed_without_a_line_when_it_is_idle(
    server: Server, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One whose request is under way is not idle; one whose answer is not read is."""
    monkeypatch.setattr(connection_module, "LINGER_S", 0.1)
    idle, busy, deaf = (server.client() for _ in range(3))
    busy.send(frame(ApiKey.METADATA))
    server.requests.await_count(1)
    deaf.send(frame(ApiKey.METADATA))
    server.requests.await_count(2)
    server.requests.answers[1](bytes(64 << 20))
    assert idle.is_closed()
    wait_until(lambda: server.server.limits.quotas.count == 1)
    server.requests.answers[0](b"late")
    assert busy.answer() == b"late"
    assert caplog.records == []


def test_at_the_end_requests_that_were_read_are_answered(server: Server) -> None:
    client = server.client()
    client.send(frame(ApiKey.METADATA))
    server.requests.await_count(1)
    stopping = threading.Thread(target=server.server.stop)
    stopping.start()
    server.requests.answers[0](b"last")
    assert client.answer() == b"last"
    assert client.is_closed()
    stopping.join(WAIT_S)
    with pytest.raises(OSError, match="refused"):
        server.client()


def test_a_client_that_does_not_read_its_answers_does_not_hold_up_the_end(server: Server) -> None:
    reading, deaf, large = server.client(), server.client(), bytes(64 << 20)
    deaf.send(frame(ApiKey.METADATA), frame(ApiKey.METADATA))
    reading.send(frame(ApiKey.METADATA))
    server.requests.await_count(2)
    begun_s = time.monotonic()
    stopping = threading.Thread(target=server.server.stop)
    stopping.start()
    for answer in server.requests.answers:
        answer(large)
    assert reading.answer() == large
    stopping.join(WAIT_S)
    assert not stopping.is_alive()
    assert time.monotonic() - begun_s < 5


def test_a_withdrawn_broker_closes_its_connections_and_its_port(server: Server) -> None:
    client = server.client()
    client.send(frame(ApiKey.METADATA))
    server.requests.await_count(1)
    server.server.withdraw(1)
    assert client.is_closed()
    with pytest.raises(OSError, match="refused"):
        server.client()


def test_a_port_in_use_is_refused_in_kafkas_words() -> None:
    (bound,) = bind([Listener("PLAINTEXT", SecurityProtocol.PLAINTEXT, "127.0.0.1", 0)])
    try:
        with pytest.raises(InvalidConfigError, match=r"Socket server failed to bind to 127\.0\.0\.1:\d+: Address"):
            bind([bound.listener])
    finally:
        bound.close()


def test_a_loop_that_is_not_installed_is_refused_with_what_to_do() -> None:
    with pytest.raises(InvalidConfigError, match=r"is no_such_loop, which is not installed .* pip install"):
        loops.new_event_loop("no_such_loop")
