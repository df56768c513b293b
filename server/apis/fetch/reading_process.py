"""A process that reads record batches from storage for a broker, so that old records do not hold up new ones.

I/O: a process, a socket pair; in the process, the tables. Decompressing, decoding and encoding a consumer's MiB takes
milliseconds, in which the broker's threads would compete with it for the interpreter at each of their system calls. The
process keeps no state but connections to storage: a request names the files, so it folds no log. It ends with its
broker, and by itself when it was idle for long.

A message is the length of its head, the length of its content, the head (pickled), the content. The head of a request
is its number and a `ReadRequest`; of an answer the same number and partition, and the batches as (base offset, last
offset, bytes), None when the read failed: then the broker reads itself, and finds out why. A stream that an error left
within a message is never read on: the process ends with it.
"""

from __future__ import annotations

import os
import pickle
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from itertools import accumulate, pairwise
from typing import Any, Final, NamedTuple

import numpy as np

from stratalog.replication.stores import DeltaStores
from stratalog.storage.clock import Clock, RandomIds
from stratalog.storage.delta.table import LogTable
from stratalog.storage.files.cache import FileCache
from stratalog.storage.files.data_file import FileEntry
from stratalog.storage.log.reader import PlannedRead
from stratalog.storage.log_lines import line_logger
from stratalog.storage.objects.store_settings import StoreSettings
from stratalog.storage.records import TopicPartition
from stratalog.wire.batches.headers import EncodedBatch
from stratalog.wire.batches.record_batches import encode_rows, part_of

_LOG = line_logger("stratalog.clients")

READ_S_MAX: Final = 10
"""After this time the process is taken for stuck: a root may answer nothing."""
IDLE_MS: Final = 60_000
END_WAIT_S: Final = 1
TABLES_KEPT: Final = 64
READY: Final = b"+"
RETRY_MS: Final = 60_000
"""Pause after a process that ended or was stuck, before the next one is started."""
_LENGTHS = struct.Struct(">QQ")


class ReadRequest(NamedTuple):
    """A `PlannedRead` of a replica; `max_bytes` bound what is decoded, too."""

    root: str
    topic_partition: TopicPartition
    settings: StoreSettings
    entries: tuple[FileEntry, ...]
    start_offset: int
    end_offset: int
    max_bytes: int


class ReadingProcess:
    """The broker's end: at most one process, started when it is first wanted. Any thread may use it.

    is_ready  whether a process waits for requests
    """

    def __init__(self, clock: Clock) -> None:
        self.is_ready = False
        self._clock = clock
        self._not_before_ms = clock.monotonic_ms()
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._number = 0
        self._is_closed = False

    def read(self, request: ReadRequest) -> list[EncodedBatch] | None:
        """The batches; None when the process is not ready yet, is busy for long, or could not read them."""
        if not self._lock.acquire(timeout=READ_S_MAX):
            return None
        try:
            stream = self._ready_socket()
            return None if stream is None else self._answered(stream, request)
        except OSError as reason:
            _LOG.info("the process that reads old records has ended: %s", reason)
            self._end()
            return None
        except Exception as reason:  # noqa: BLE001 - whatever it is, the rest of a message may be left in the stream
            _LOG.warning("the process that reads old records is ended: %r", reason)
            self._end()
            return None
        except BaseException:
            self._end()
            raise
        finally:
            self._lock.release()

    def _answered(self, stream: socket.socket, request: ReadRequest) -> list[EncodedBatch] | None:
        self._number += 1
        send(stream, (self._number, request))
        (number, named, places), content = receive(stream)
        if (number, named) != (self._number, request.topic_partition):
            raise ConnectionError(
                f"request {self._number} for {request.topic_partition} got the answer of {number} for {named}"
            )
        return None if places is None else _batches(places, content)

    def _ready_socket(self) -> socket.socket | None:
        """That of the process once it has loaded what it needs; starts one if there is none."""
        if self._socket is None and not self._is_closed and self._clock.monotonic_ms() >= self._not_before_ms:
            self._start()
        if self._socket is None:
            return None
        if not self.is_ready:
            with suppress(BlockingIOError):
                if self._socket.recv(len(READY), socket.MSG_DONTWAIT) != READY:
                    raise ConnectionResetError("it could not load")
                self.is_ready = True
        return self._socket if self.is_ready else None

    def _start(self) -> None:
        own, its = socket.socketpair()
        with its:
            own.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", READ_S_MAX, 0))
            path = os.pathsep.join([entry for entry in sys.path if entry])
            self._process = subprocess.Popen(
                [sys.executable, "-m", "stratalog.server.apis.fetch.reading_process", str(its.fileno())],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                pass_fds=[its.fileno()], env={**os.environ, "PYTHONPATH": path},
            )  # fmt: skip
        self._socket = own

    def _end(self) -> None:
        self.is_ready = False
        self._not_before_ms = self._clock.monotonic_ms() + RETRY_MS
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        if self._process is not None:
            self._process.kill()
            with suppress(subprocess.TimeoutExpired):  # in a call to a disk that answers nothing
                self._process.wait(END_WAIT_S)
            self._process = None

    def close(self) -> None:
        """End the process. Reads after that return None."""
        self._is_closed = True
        with self._lock:
            self._end()


def send(stream: socket.socket, head: object, contents: Sequence[bytes | memoryview | bytearray] = ()) -> None:
    """Send one message."""
    pickled = pickle.dumps(head, pickle.HIGHEST_PROTOCOL)
    lengths = _LENGTHS.pack(len(pickled), sum(map(len, contents)))
    stream.sendall(b"".join((lengths, pickled, *contents)))


def receive(stream: socket.socket) -> tuple[Any, memoryview]:
    """One message's head and content. ConnectionResetError at the end of the stream, TimeoutError."""
    head_bytes, content_bytes = _LENGTHS.unpack(_received(stream, _LENGTHS.size))
    return pickle.loads(_received(stream, head_bytes)), _received(stream, content_bytes)


def _received(stream: socket.socket, size_bytes: int) -> memoryview:
    """In as few calls as possible: each gives up the interpreter, which other threads want. They would wait, too, while
    a `bytearray` is filled with zeros."""
    data = np.empty(size_bytes, np.uint8).data
    rest = data
    while rest:
        try:
            count = stream.recv_into(rest, len(rest), socket.MSG_WAITALL)
        except BlockingIOError:
            raise TimeoutError(f"no answer in {READ_S_MAX} s") from None
        if not count:
            raise ConnectionResetError("it closed its socket")
        rest = rest[count:]
    return data


def _batches(places: Sequence[tuple[int, int, int]], content: memoryview) -> list[EncodedBatch]:
    ends = accumulate((size_bytes for _, _, size_bytes in places), initial=0)
    return [
        EncodedBatch(base_offset, last_offset, content[start:end])
        for (base_offset, last_offset, _), (start, end) in zip(places, pairwise(ends), strict=True)
    ]


class Reader:
    """What the process keeps: the stores of a cluster's roots by their settings, and the tables that it read last with
    the footers of their files, so that the next read of a file fetches its part alone."""

    def __init__(self) -> None:
        self._stores: dict[StoreSettings, DeltaStores] = {}
        self._tables: OrderedDict[tuple[StoreSettings, str, TopicPartition], LogTable] = OrderedDict()

    def read(self, request: ReadRequest) -> list[EncodedBatch]:
        """The batches. Raises what the tables raise."""
        bounds = request.start_offset, request.end_offset, request.max_bytes
        planned = PlannedRead(self.table(request), request.entries, *bounds, decoded_bytes_max=request.max_bytes)
        return encode_rows(part_of(planned.read(), request.max_bytes))

    def table(self, request: ReadRequest) -> LogTable:
        """The table that is asked for, as it is kept, or a new handle."""
        key = request.settings, request.root, request.topic_partition
        found = self._tables.pop(key, None)
        if found is None:
            stores = self._stores.get(request.settings)
            if stores is None:
                stores = self._stores[request.settings] = DeltaStores(
                    RandomIds(), FileCache(0), settings=request.settings
                )
            found = stores.table(request.root, request.topic_partition)
        self._tables[key] = found
        if len(self._tables) > TABLES_KEPT:
            self._tables.popitem(last=False)
        return found


def main(number: int) -> None:
    """Answer requests until the broker's end is closed, or there was none for a while."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group: the broker ends this process
    reader = Reader()
    with socket.socket(fileno=number) as stream:
        stream.sendall(READY)
        waiting = select.poll()
        waiting.register(stream, select.POLLIN)
        while waiting.poll(IDLE_MS):
            try:
                (number, request), _ = receive(stream)
            except ConnectionResetError:
                return
            asked = number, request.topic_partition
            try:
                batches = reader.read(request)
            except Exception:  # noqa: BLE001 - the broker reads it again, and raises what it meets
                send(stream, (*asked, None))
                continue
            places = [(b.base_offset, b.last_offset, len(b.data)) for b in batches]
            send(stream, (*asked, places), [b.data for b in batches])


if __name__ == "__main__":
    with suppress(BrokenPipeError, ConnectionResetError):
        main(int(sys.argv[1]))
