"""An S3 server for tests that injects faults: throttling, lost requests, lost answers, late requests.

I/O: a TCP port of the loopback. It implements the part of the protocol that stratalog uses (conditional put, get, head,
delete, list), without signatures. An injected fault applies to the next requests that match it.
"""

from __future__ import annotations

import hashlib
import re
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import takewhile
from xml.sax.saxutils import escape, unescape

from sortedcontainers import SortedDict

BUCKET = "bucket"
XML = {"Content-Type": "application/xml"}
DATE = "Sat, 21 Nov 2026 12:00:00 GMT"


class Wrong(Enum):
    """The faults of a request."""

    SLOW_DOWN = "refused with 503 SlowDown, not applied"
    TOO_MANY = "refused with 429, not applied"
    LOSE_REQUEST = "the connection ends, nothing was applied"
    LOSE_ANSWER = "applied, then the connection ends without an answer"
    FAIL_AFTER = "applied, then answered with 500: a retry finds the object of its first try"
    DOUBLE = "applied twice, as by a network that repeats it; the second answer is returned"
    LATE = "waits until `arrive` is set, and is applied then"


class ConditionalPut(Enum):
    """What a server makes of a put with `If-None-Match: *`."""

    KEPT = "412 PreconditionFailed when the object exists"
    IGNORED = "the object is replaced"
    NOT_IMPLEMENTED = "501 NotImplemented"
    BAD_REQUEST = "400 InvalidArgument"
    REFUSED_BUT_APPLIED = "412 PreconditionFailed, and the object is replaced"


@dataclass
class Fault:
    """Applies to the next `times` requests of this method whose path ends with `suffix`."""

    wrong: Wrong
    method: str
    suffix: str
    times: int = 1


@dataclass
class S3Double:
    """The server's state. `requests` are (method, path) in the order of their arrival, at the times `arrived_s`.

    objects          bodies by path, in order, so that a listing does not look at what it does not list
    signers          the ids of the access keys that signed a request
    conditional_put  what the server makes of `If-None-Match: *`
    """

    endpoint: str = ""
    objects: SortedDict = field(default_factory=SortedDict)
    requests: list[tuple[str, str]] = field(default_factory=list)
    arrived_s: list[float] = field(default_factory=list)
    signers: set[str] = field(default_factory=set)
    headers: dict[str, dict[str, str]] = field(default_factory=dict)
    """Those of the newest put of a path, in lower case."""
    faults: list[Fault] = field(default_factory=list)
    conditional_put: ConditionalPut = ConditionalPut.KEPT
    arrive: threading.Event = field(default_factory=threading.Event)
    applied_late: threading.Event = field(default_factory=threading.Event)
    silent_below: str = ""
    """Paths that begin with this are never answered, as if a network swallowed the requests; empty: none."""
    answers_again: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def fault(self, wrong: Wrong, method: str, suffix: str, times: int = 1) -> None:
        self.faults.append(Fault(wrong, method, suffix, times))

    def environment(self) -> dict[str, str]:
        """The environment variables by which a client finds it."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "any",
            "AWS_SECRET_ACCESS_KEY": "any",
        }

    def count(self, method: str, suffix: str) -> int:
        """How many requests of this kind arrived."""
        return sum(1 for m, path in self.requests if m == method and path.endswith(suffix))

    def met_by(self, method: str, path: str) -> Wrong | None:
        with self.lock:
            self.requests.append((method, path))
            self.arrived_s.append(time.monotonic())
            for fault in self.faults:
                if fault.times and fault.method == method and path.endswith(fault.suffix):
                    fault.times -= 1
                    return fault.wrong
        return None

    def apply(self, method: str, path: str, query: dict[str, list[str]], data: bytes, is_create: bool) -> _Answer:
        with self.lock:
            if method == "PUT":
                refusal = self._refusal(path, data) if is_create else None
                if refusal is not None:
                    return refusal
                self.objects[path] = data
                return _Answer(200, b"", {"ETag": _etag(data)})
            if method == "POST":  # the only request of this kind: delete these objects
                keys = re.findall(r"<Key>(.*?)</Key>", data.decode())
                for key in keys:
                    self.objects.pop(unescape(key), None)
                deleted = "".join(f"<Deleted><Key>{key}</Key></Deleted>" for key in keys)
                return _Answer(200, f"<DeleteResult>{deleted}</DeleteResult>".encode(), XML)
            if "list-type" in query:
                return _listing(self.objects, query)
            if path not in self.objects:
                return _error(404, "NoSuchKey")
            found = self.objects[path]
            return _Answer(200, found, {"ETag": _etag(found), "Last-Modified": DATE})

    def copy(self, source: str, path: str) -> _Answer:
        """CopyObject."""
        with self.lock:
            if source not in self.objects:
                return _error(404, "NoSuchKey")
            self.objects[path] = self.objects[source]
            text = f"<CopyObjectResult><ETag>{escape(_etag(self.objects[path]))}</ETag></CopyObjectResult>"
            return _Answer(200, text.encode(), XML)

    def _refusal(self, path: str, data: bytes) -> _Answer | None:
        """The answer to a conditional put that does not create the object."""
        if self.conditional_put is ConditionalPut.NOT_IMPLEMENTED:
            return _error(501, "NotImplemented")
        if self.conditional_put is ConditionalPut.BAD_REQUEST:
            return _error(400, "InvalidArgument")
        if path not in self.objects or self.conditional_put is ConditionalPut.IGNORED:
            return None
        if self.conditional_put is ConditionalPut.REFUSED_BUT_APPLIED:
            self.objects[path] = data
        return _error(412, "PreconditionFailed")


@dataclass
class _Answer:
    status: int
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)

    def part(self, asked: str) -> _Answer:
        """The part that a request's header `Range: bytes=<first>-<last>` asks for."""
        if not asked or self.status != 200:
            return self
        first, last = (int(text) for text in asked.removeprefix("bytes=").split("-"))
        body = self.body[first : last + 1]
        shown = f"bytes {first}-{first + len(body) - 1}/{len(self.body)}"
        return _Answer(206, body, {**self.headers, "Content-Range": shown})


def _error(status: int, code: str) -> _Answer:
    return _Answer(status, f"<Error><Code>{code}</Code><Message>{code}</Message></Error>".encode())


def _etag(data: bytes) -> str:
    return f'"{hashlib.md5(data, usedforsecurity=False).hexdigest()}"'


def _listing(objects: SortedDict, query: dict[str, list[str]]) -> _Answer:
    prefix, delimiter = query.get("prefix", [""])[0], query.get("delimiter", [""])[0]
    after = max(prefix, query.get("start-after", [""])[0])
    found = takewhile(lambda key: key.startswith(prefix), objects.irange(minimum=after))
    keys = [key for key in found if key != query.get("start-after", [""])[0]]
    folded = {
        prefix + key.removeprefix(prefix).split(delimiter)[0] + delimiter
        for key in keys
        if delimiter and delimiter in key.removeprefix(prefix)
    }
    rows = [
        f"<Contents><Key>{escape(key)}</Key><Size>{len(objects[key])}</Size>"
        f"<LastModified>2026-11-21T12:00:00.000Z</LastModified><ETag>{escape(_etag(objects[key]))}</ETag></Contents>"
        for key in keys
        if not any(key.startswith(each) for each in folded)
    ]
    rows += [f"<CommonPrefixes><Prefix>{escape(each)}</Prefix></CommonPrefixes>" for each in sorted(folded)]
    text = f"<ListBucketResult><IsTruncated>false</IsTruncated>{''.join(rows)}</ListBucketResult>"
    return _Answer(200, text.encode(), XML)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128  # 5 where it is not said: of more connections at once, each tries again after a second

    def __init__(self, state: S3Double) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.state = state
        state.endpoint = f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else each answer waits for the client's delayed acknowledgement
    server: _Server

    def _serve(self) -> None:
        url, state = urllib.parse.urlsplit(self.path), self.server.state
        path = urllib.parse.unquote(url.path).removeprefix(f"/{BUCKET}").removeprefix("/")
        query = urllib.parse.parse_qs(url.query, keep_blank_values=True)
        data = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        is_create = self.headers.get("If-None-Match") == "*"
        asked = query.get("prefix", [path])[0] or path
        signer = re.search(r"Credential=([^/]+)/", self.headers.get("Authorization", ""))
        state.signers.add(signer[1] if signer else "")
        if self.command == "PUT":
            state.headers[path] = {name.lower(): value for name, value in self.headers.items()}
        if state.silent_below and asked.startswith(state.silent_below):
            state.answers_again.wait()
        copied = urllib.parse.unquote(self.headers.get("x-amz-copy-source", "")).removeprefix("/")
        wrong = state.met_by(self.command, path)

        def apply() -> _Answer:
            if copied:
                return state.copy(copied.removeprefix(f"{BUCKET}/"), path)
            return state.apply(self.command, path, query, data, is_create).part(self.headers.get("Range", ""))

        answer = _given(wrong, state, apply)
        if answer is None:
            self.close_connection = True
            self.connection.close()
        else:
            self._send(answer)

    def _send(self, answer: _Answer) -> None:
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)

    do_PUT = do_GET = do_HEAD = do_POST = _serve  # noqa: N815 - the names that http.server calls

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - http.server's name
        pass


def _given(wrong: Wrong | None, state: S3Double, apply: Callable[[], _Answer]) -> _Answer | None:
    """Apply the request as often as it arrives, and return the answer to it; None: no answer."""
    if wrong in {Wrong.SLOW_DOWN, Wrong.TOO_MANY}:
        return _error(503, "SlowDown") if wrong is Wrong.SLOW_DOWN else _error(429, "TooManyRequests")
    if wrong is Wrong.LOSE_REQUEST:
        return None
    if wrong is Wrong.LATE:
        state.arrive.wait(30)
    if wrong is Wrong.DOUBLE:
        apply()
    answer = apply()
    if wrong is Wrong.LATE:
        state.applied_late.set()
    if wrong is Wrong.FAIL_AFTER:
        return _error(500, "InternalError")
    return None if wrong is Wrong.LOSE_ANSWER else answer


@contextmanager
def s3_double() -> Iterator[S3Double]:
    """A server that runs as long as the block."""
    state = S3Double()
    server = _Server(state)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield state
    finally:
        state.arrive.set()
        server.shutdown()
        server.server_close()
        thread.join()
