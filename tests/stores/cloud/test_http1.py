"""Where messages of HTTP/1.1 end, and what requests ask of a store."""

from __future__ import annotations

import pytest

from tests.stores.cloud.http1 import Message, NotHttpError, answer_in, request_in
from tests.stores.cloud.request_kinds import StoreRequest

PUT = b"PUT /tests/a HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello"
CHUNKED = (
    b"PUT /tests/a HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"3\r\nhel\r\n2;chunk-signature=0\r\nlo\r\n0\r\nx-amz-checksum: 1\r\n\r\n"
)


@pytest.mark.parametrize("raw", [PUT, CHUNKED])
def test_a_request_is_whole_at_its_last_byte_and_not_before(raw: bytes) -> None:
    assert [request_in(raw[:count]) for count in range(len(raw))] == [None] * len(raw)
    request = request_in(raw + b"GET /next HTTP/1.1\r\n")
    assert request is not None
    assert (request.raw, request.body) == (raw, b"hello")


def answered(raw: bytes, method: str = "GET", *, is_closed: bool = False) -> Message:
    answer = answer_in(raw, method, is_closed=is_closed)
    assert answer is not None
    return answer


def test_an_answer_ends_as_its_status_its_request_and_its_head_say() -> None:
    assert answered(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n", "HEAD").body == b""
    assert answered(b"HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n").body == b""
    assert answered(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n\r\n", "PUT").head.status == 100
    assert answered(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n").body == b"a"
    of_unknown_length = b"HTTP/1.1 200 OK\r\n\r\nabc"
    assert answer_in(of_unknown_length, "GET") is None
    assert answered(of_unknown_length, is_closed=True).is_last


@pytest.mark.parametrize(
    "raw",
    [
        b"nothing of the kind\r\n\r\n",
        b"GET / HTTP/1.1\r\nno field\r\n\r\n",
        b"PUT / HTTP/1.1\r\nContent-Length: five\r\n\r\n",
        b"PUT / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"PUT / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabc\r\n",
    ],
)
def test_what_is_no_message_is_an_error(raw: bytes) -> None:
    with pytest.raises(NotHttpError):
        request_in(raw)


AZURE = b"x-ms-version: 2023-11-03"


@pytest.mark.parametrize(
    ("line", "field", "kind", "key"),
    [
        (b"PUT /tests/c/a.parquet", b"", "put", "c/a.parquet"),
        (b"PUT /tests/c/0.json", b"If-None-Match: *", "conditional_put", "c/0.json"),
        (b"PUT /tests/c/0.json", b'If-Match: "e"', "conditional_put", "c/0.json"),
        (b"PUT /tests/c/a?partNumber=1&uploadId=x", b"", "put", "c/a"),
        (b"POST /tests/c/a?uploads", b"", "put", "c/a"),
        (b"PUT /tests/c/a", b"x-amz-copy-source: /tests/b", "copy", "c/a"),
        (b"GET /tests/c/a%3D1", b"", "get", "c/a=1"),
        (b"HEAD /tests/c/a", b"", "head", "c/a"),
        (b"GET /tests?list-type=2&prefix=c%2F_delta_log%2F", b"", "list", "c/_delta_log/"),
        (b"GET /tests/?list-type=2", b"", "list", ""),
        (b"DELETE /tests/c/a", b"", "delete", "c/a"),
        (b"POST /tests?delete", b"", "delete", ""),
        (b"PUT /account/tests/c/a", AZURE, "put", "c/a"),
        (b"GET /account/tests?restype=container&comp=list&prefix=c/", AZURE, "list", "c/"),
    ],
)
def test_a_request_has_a_kind_and_a_key(line: bytes, field: bytes, kind: str, key: str) -> None:
    fields = field + b"\r\n" if field else b""
    request = request_in(line + b" HTTP/1.1\r\n" + fields + b"\r\n")
    assert request is not None
    assert StoreRequest.of(request.head) == StoreRequest(kind, key)


@pytest.mark.parametrize(
    ("line", "body"),
    [
        (b"POST /tests?delete HTTP/1.1", b"<Delete><Object><Key>c/a&amp;b</Key></Object></Delete>"),
        (
            b"POST /account/tests?comp=batch HTTP/1.1\r\n" + AZURE,
            b"--x\r\n\r\nDELETE /account/tests/c/a%26b HTTP/1.1\r\n",
        ),
    ],
)
def test_a_deletion_of_many_has_the_key_of_the_first(line: bytes, body: bytes) -> None:
    request = request_in(line + b"\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    assert request is not None
    assert StoreRequest.of(request.head, request.body) == StoreRequest("delete", "c/a&b")
