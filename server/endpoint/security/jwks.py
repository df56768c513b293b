"""The public keys that sign tokens, as a set of JSON Web Keys. I/O: a file, or HTTP by a thread of its own.

Keys are read again every `refresh_ms`, and soon when a token names one that is not known; while they cannot be read,
those that were read last count.
Source: Kafka's `RefreshingHttpsJwks`, `JwksFileVerificationKeyResolver`, `VerificationKeyResolverFactory`.
"""

from __future__ import annotations

import json
import threading
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from stratalog.server.http_redirects import SafeRedirects
from stratalog.storage.config_def import invalid_value
from stratalog.storage.errors import InvalidConfigError
from stratalog.storage.log_lines import line_logger

_LOG = line_logger("stratalog.network")
ENDPOINT_URL = "sasl.oauthbearer.jwks.endpoint.url"
TIMEOUT_S = 10.0
ASKED_PAUSE_S = 1.0
"""The least time between two fetches: anybody can name keys that are not known."""
BYTES_MAX = 1 << 20
"""The largest answer that is read."""


@dataclass(frozen=True, slots=True)
class JwksSource:
    """Where the keys are, and when they are fetched again."""

    url: str
    refresh_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int


class JwksKeys:
    """`SigningKeys` of a URL. Made at the start: InvalidConfigError when the keys cannot be read."""

    def __init__(self, source: JwksSource) -> None:
        self._source = source
        scheme = urlsplit(source.url).scheme.lower()
        if scheme not in ("file", "http", "https"):
            raise invalid_value(ENDPOINT_URL, source.url, "Value must be a URL of scheme https, http or file")
        self._is_file = scheme == "file"
        self._opener = urllib.request.build_opener(SafeRedirects())
        if scheme == "http":
            _LOG.warning(
                "%s=%s is not encrypted: who is on the way to it can sign tokens of any user; use https",
                ENDPOINT_URL,
                source.url,
            )
        try:
            self._keys = parse_keys(self._read())
        except (OSError, ValueError) as reason:
            raise InvalidConfigError(f"{ENDPOINT_URL}: {source.url} could not be read: {reason}") from reason
        self._asked = threading.Event()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._refresh, name="jwks", daemon=True)
        self._thread.start()

    def key(self, key_id: str | None) -> Any:
        """PyJWT's key; None for one that is not known, which is then asked for."""
        keys = self._keys
        if key_id is None:
            return next(iter(keys.values())) if len(keys) == 1 else None
        found = keys.get(key_id)
        if found is None:
            self._asked.set()
        return found

    def close(self) -> None:
        self._closed.set()
        self._asked.set()

    def _refresh(self) -> None:
        backoff_ms = self._source.retry_backoff_ms
        wait_ms = self._source.refresh_ms
        while True:
            self._asked.wait(wait_ms / 1_000)
            self._asked.clear()
            if self._closed.is_set():
                return
            try:
                self._keys = parse_keys(self._read())
                wait_ms, backoff_ms = self._source.refresh_ms, self._source.retry_backoff_ms
            except (OSError, ValueError) as reason:
                _LOG.warning("the keys at %s could not be read: %s", self._source.url, reason)
                wait_ms, backoff_ms = backoff_ms, min(2 * backoff_ms, self._source.retry_backoff_max_ms)
            self._closed.wait(ASKED_PAUSE_S)

    def _read(self) -> bytes:
        if self._is_file:
            return Path(unquote(urlsplit(self._source.url).path)).read_bytes()
        with self._opener.open(self._source.url, timeout=TIMEOUT_S) as answer:
            data: bytes = answer.read(BYTES_MAX)
            return data


def parse_keys(data: bytes) -> Mapping[str, Any]:
    """PyJWT's keys by id, of those that verify signatures. ValueError for what is no set of keys."""
    import jwt

    found: dict[str, Any] = {}
    listed = json.loads(data)
    for each in listed["keys"] if isinstance(listed, dict) and isinstance(listed.get("keys"), list) else []:
        if not isinstance(each, dict) or each.get("use", "sig") != "sig" or each.get("kty") == "oct":
            continue
        try:
            found[str(each.get("kid", ""))] = jwt.PyJWK.from_dict(each)
        except jwt.PyJWTError as reason:  # a key of a kind that is not known must not hide the others
            _LOG.info("a key of %s cannot be used: %s", each.get("kid"), reason)
    if not found:
        raise ValueError("no set of keys that verify signatures (JWKS)")
    return found
