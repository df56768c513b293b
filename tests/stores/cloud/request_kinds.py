"""What a request asks of an object store: its kind, the key, and the prefix that it counts for. Pure.

Source: the REST APIs of S3 (path style) and of Azure Blob Storage.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Self
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import unescape

from tests.stores.cloud.http1 import Head

KINDS = ("put", "conditional_put", "copy", "get", "head", "list", "delete")
READS = frozenset({"get", "head", "list"})
AZURE_VERSION = "x-ms-version"
_S3_KEY = re.compile(rb"<Key>([^<]*)</Key>")
_AZURE_TARGET = re.compile(rb"^DELETE (\S+) HTTP/1\.1", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class StoreRequest:
    """One request.

    key    below the bucket or container; of a listing its prefix, of a deletion of many the first one's
    """

    kind: str
    key: str

    @classmethod
    def of(cls, head: Head, body: bytes = b"") -> Self:
        """From a request.

        >>> StoreRequest.of(Head.of(b"PUT /logs/a/b%20c HTTP/1.1\\r\\nIf-None-Match: *"))
        StoreRequest(kind='conditional_put', key='a/b c')
        """
        method, target, _ = head.parts
        url = urlsplit(target)
        query = parse_qs(url.query, keep_blank_values=True)
        is_azure = bool(head.get(AZURE_VERSION))
        kind, key = _kind(method, query, head), _key(url.path, is_azure=is_azure)
        if kind == "list":
            key = query.get("prefix", [""])[0]
        elif method == "POST" and (found := _AZURE_TARGET.search(body) if is_azure else _S3_KEY.search(body)):
            named = found[1].decode()
            key = _key(urlsplit(named).path, is_azure=True) if is_azure else unescape(named)
        return cls(kind, key)

    @property
    def is_read(self) -> bool:
        return self.kind in READS

    def prefix(self, depth: int) -> str:
        """The first `depth` folders of the key.

        >>> StoreRequest("put", "c/broker-1/orders-0/_delta_log/0.json").prefix(2)
        'c/broker-1'
        """
        return "/".join(self.key.split("/")[:-1][:depth])


def _key(path: str, *, is_azure: bool) -> str:
    """Behind the bucket, in Azure behind the account and the container."""
    rest = unquote(path).removeprefix("/")
    for _ in range(2 if is_azure else 1):
        rest = rest.partition("/")[2]
    return rest


def _kind(method: str, query: dict[str, list[str]], head: Head) -> str:
    if method == "GET":
        is_list = "list-type" in query or query.get("comp") == ["list"] or "prefix" in query
        return "list" if is_list else "get"
    if method == "HEAD":
        return "head"
    if method == "DELETE" or (method == "POST" and ("delete" in query or query.get("comp") == ["batch"])):
        return "delete"
    if head.get("x-amz-copy-source") or head.get("x-ms-copy-source"):
        return "copy"
    if head.get("if-none-match") or head.get("if-match"):
        return "conditional_put"
    return "put"
