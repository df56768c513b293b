"""A SQL statement in a child process, which can be ended: fed with the rows that it asks for, within bounds.

I/O: the child. It is isolated from this process's environment and has no secret of it.
"""

from __future__ import annotations

import base64
import io
import json
import os
import select
import signal
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from threading import BoundedSemaphore
from typing import Any, Protocol

import pyarrow as pa

from stratalog.clients.console.sql.bounds import STATEMENTS_AT_ONCE, SqlBounds, TableScan
from stratalog.storage import errors
from stratalog.storage.clock import Clock
from stratalog.storage.extras import explained

ENGINE = Path(__file__).with_name("engine.py")
FRAME_BYTES = 1 << 20
_RUNNING = BoundedSemaphore(STATEMENTS_AT_ONCE)


class FedTables(Protocol):
    """What a statement may read."""

    def named_in(self, sql: str) -> dict[str, pa.Schema]: ...

    def qualified(self, name: str) -> tuple[str, str] | None: ...

    def batches(self, name: str, scan: TableScan) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]: ...


def answered(sql: str, tables: FedTables, bounds: SqlBounds, clock: Clock) -> dict[str, Any]:
    """The result of a statement: `columns`, `types`, `rows`, `is_cut`.

    InvalidRequestError with the reason for a statement that is refused, RequestTimedOutError and PolicyViolationError
    for one that takes more than its bounds. InvalidRequestError names the extra where the engine is not installed.
    """
    _check(sql, bounds)
    named = tables.named_in(sql)
    deadline_ms = clock.monotonic_ms() + round(bounds.seconds * 1_000)
    if not _RUNNING.acquire(timeout=bounds.seconds):
        raise errors.RequestTimedOutError(
            f"{STATEMENTS_AT_ONCE} other statements ran for {bounds.seconds:g} s: ask again"
        )
    try:
        with _child() as child:
            return _Statement(child, tables, bounds, clock, deadline_ms).run(sql, named)
    finally:
        _RUNNING.release()


def _check(sql: str, bounds: SqlBounds) -> None:
    if not sql.strip():
        raise errors.InvalidRequestError("the statement is empty: SELECT … FROM a table of sql_tables")
    if len(sql.encode("utf-8", "replace")) > bounds.text_bytes:
        raise errors.InvalidRequestError(f"the statement has more than {bounds.text_bytes} bytes")
    if "\x00" in sql:
        raise errors.InvalidRequestError("the statement has a NUL character")


@contextmanager
def _child() -> Iterator[subprocess.Popen[bytes]]:
    """A child that is gone afterwards, whatever it did."""
    if find_spec("datafusion") is None:
        missing = ModuleNotFoundError("no datafusion", name="datafusion")
        raise errors.InvalidRequestError(str(explained("SQL", missing)))
    paths = [*(each for each in sys.path if each), str(ENGINE.parent)]
    code = f"import runpy, sys; sys.path[:] = {paths!r}; runpy.run_path({str(ENGINE)!r}, run_name='__main__')"
    child = subprocess.Popen(
        [sys.executable, "-I", "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={"PATH": os.defpath, "TZ": "UTC"},
        cwd="/",
        bufsize=0,
    )
    try:
        yield child
    finally:
        child.kill()
        for pipe in (child.stdin, child.stdout):
            if pipe is not None:
                pipe.close()
        child.wait()


class _FrameSink(io.RawIOBase):
    """A file whose bytes are frames."""

    def __init__(self, send: Callable[[bytes], None]) -> None:
        super().__init__()
        self._send = send

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        for start in range(0, len(view), FRAME_BYTES):
            self._send(bytes(view[start : start + FRAME_BYTES]))
        return len(view)


class _Statement:
    """The conversation with one child. No call outlasts the deadline."""

    def __init__(
        self, child: subprocess.Popen[bytes], tables: FedTables, bounds: SqlBounds, clock: Clock, deadline_ms: int
    ) -> None:
        assert child.stdin is not None
        assert child.stdout is not None
        self._child, self._in, self._out = child, child.stdin.fileno(), child.stdout.fileno()
        os.set_blocking(self._in, False)
        self._tables, self._bounds = tables, bounds
        self._clock, self._deadline_ms = clock, deadline_ms

    def run(self, sql: str, named: Mapping[str, pa.Schema]) -> dict[str, Any]:
        schemas = list({id(schema): schema for schema in named.values()}.values())
        numbers = {id(schema): number for number, schema in enumerate(schemas)}
        request = {
            "sql": sql,
            "tables": {name: numbers[id(schema)] for name, schema in named.items()},
            "qualified": {name: parts for name in named if (parts := self._tables.qualified(name)) is not None},
            "schemas": [base64.b64encode(schema.serialize().to_pybytes()).decode() for schema in schemas],
            "bounds": asdict(self._bounds),
        }
        self._send(json.dumps(request).encode())
        read_bytes = 0
        for name, scan in self._receive()["scans"].items():
            wanted = TableScan(tuple(scan["columns"]), scan["start"], scan["end"], scan["limit"])
            read_bytes = self._feed(name, wanted, read_bytes)
        return self._receive()

    def _feed(self, name: str, scan: TableScan, read_bytes: int) -> int:
        schema, batches = self._tables.batches(name, scan)
        with pa.ipc.new_stream(pa.PythonFile(_FrameSink(self._send), "w"), schema) as writer:
            for batch in batches:
                read_bytes += batch.nbytes
                if read_bytes > self._bounds.read_bytes:
                    raise errors.PolicyViolationError(
                        f"the statement reads more than {self._bounds.read_bytes} bytes: name fewer columns of "
                        f"{name}, or bound its partition, offset or timestamp"
                    )
                self._check_time()
                writer.write_batch(batch)
        self._send(b"")
        return read_bytes

    def _check_time(self) -> None:
        if self._clock.monotonic_ms() >= self._deadline_ms:
            raise errors.RequestTimedOutError(
                f"the statement took more than {self._bounds.seconds:g} s and was ended: read less, or aggregate less"
            )

    def _left_s(self) -> float:
        self._check_time()
        return max(0.001, (self._deadline_ms - self._clock.monotonic_ms()) / 1_000)

    def _send(self, data: bytes) -> None:
        left = memoryview(struct.pack(">I", len(data)) + data)
        while left:
            if not select.select([], [self._in], [], self._left_s())[1]:
                continue
            try:
                left = left[os.write(self._in, left) :]
            except BlockingIOError:
                continue
            except BrokenPipeError as reason:
                raise self._gone() from reason

    def _receive(self) -> dict[str, Any]:
        (length,) = struct.unpack(">I", self._read(4))
        answer: dict[str, Any] = json.loads(self._read(length))
        if "error" not in answer:
            return answer
        if answer["error"] == "memory":
            raise self._too_large()
        reason = str(answer["reason"]).replace("datafusion.public.", "").replace("datafusion.", "")
        raise errors.InvalidRequestError(f"the statement is refused: {reason}")

    def _read(self, count: int) -> bytes:
        found = b""
        while len(found) < count:
            if not select.select([self._out], [], [], self._left_s())[0]:
                continue
            data = os.read(self._out, min(count - len(found), FRAME_BYTES))
            if not data:
                raise self._gone()
            found += data
        return found

    def _gone(self) -> errors.StratalogError:
        """Why the child ended: of what bounds it, memory or processor time."""
        code = self._child.wait(timeout=self._left_s())
        if code == -signal.SIGXCPU:
            return errors.RequestTimedOutError("the statement took more processor time than it may have")
        if code == -signal.SIGSEGV:  # of its stack
            return errors.InvalidRequestError("the statement is refused: it has too many operators in one expression")
        if code < 0:
            return self._too_large()
        return errors.UnknownServerError(f"the engine of SQL ended with {code}")

    def _too_large(self) -> errors.PolicyViolationError:
        return errors.PolicyViolationError(
            f"the statement needs more than {self._bounds.memory_bytes} bytes of memory: read or sort less"
        )
