"""Clients of a fuzzed broker: those that send bad frames, and one that asks and waits for the answer. I/O: sockets."""

from __future__ import annotations

import socket
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from struct import pack
from typing import Any

from stratalog.wire.api_keys import ApiKey
from stratalog.wire.messages.frames import decode_response, encode_request
from stratalog.wire.messages.schema import request_type
from tests.lab.real.harness.cluster_process import Address

CONNECT_S = 10
ANSWER_S = 30
NEIGHBOUR = "neighbour"
SOFTWARE = {"client_software_name": NEIGHBOUR, "client_software_version": "1"}


class BadClient(threading.Thread):
    """Sends frames one after the other, on a new connection whenever one has ended; leaves when it is not answered.

    wait_s  limit of the wait for one answer: some requests wait by right, as JoinGroup
    """

    def __init__(self, address: Address, frames: Iterator[bytes], wait_s: float) -> None:
        super().__init__(name="bad-client", daemon=True)
        self._address = address
        self._frames = frames
        self._wait_s = wait_s
        self.opened: Counter[int] = Counter()
        """Connections by local port, as are those that the broker closed."""
        self.closed: Counter[int] = Counter()
        self.answered = 0
        self.left = 0
        self.failure: BaseException | None = None

    def run(self) -> None:
        client: socket.socket | None = None
        try:
            for frame in self._frames:
                client = client or self._connect()
                client = self._send(client, frame)
        except BaseException as failure:  # noqa: BLE001 - reported by the run
            self.failure = failure
        finally:
            if client is not None:
                client.close()

    def _connect(self) -> socket.socket:
        client = socket.create_connection(self._address, CONNECT_S)
        self.opened[client.getsockname()[1]] += 1
        return client

    def _send(self, client: socket.socket, frame: bytes) -> socket.socket | None:
        """The connection, if it goes on."""
        client.settimeout(self._wait_s)
        try:
            client.sendall(frame)
            head = _exactly(client, 4)
            if head and _exactly(client, int.from_bytes(head, "big")):
                self.answered += 1
                return client
        except TimeoutError:
            self.left += 1
            client.close()
            return None
        except OSError:
            pass
        self.closed[client.getsockname()[1]] += 1
        client.close()
        return None


class OneConnection:
    """Requests and responses, one at a time. ConnectionError at the connection's end, TimeoutError."""

    def __init__(self, address: Address) -> None:
        self._socket = socket.create_connection(address, CONNECT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.settimeout(ANSWER_S)

    def ask(self, key: int, version: int, values: dict[str, Any]) -> Any:
        frame = encode_request(5, NEIGHBOUR, values, request_type(key, version))
        self._socket.sendall(pack(">i", len(frame)) + frame)
        head = _exactly(self._socket, 4)
        answer = _exactly(self._socket, int.from_bytes(head, "big")) if head else b""
        if not answer:
            raise ConnectionError(f"the connection ended at API {key}")
        return decode_response(answer, key, version)[1]

    def close(self) -> None:
        with suppress(OSError):
            self._socket.close()


def served_by(address: Address) -> dict[int, range]:
    """The versions of each API that a broker names."""
    asked = OneConnection(address)
    answer = asked.ask(ApiKey.API_VERSIONS, 3, SOFTWARE)
    asked.close()
    return {int(each.api_key): range(each.min_version, each.max_version + 1) for each in answer.api_keys}


def _exactly(client: socket.socket, count: int) -> bytes:
    """Read `count` bytes; b"" if the connection ends before."""
    data = bytearray()
    while len(data) < count:
        more = client.recv(min(count - len(data), 1 << 20))
        if not more:
            return b""
        data += more
    return bytes(data)
