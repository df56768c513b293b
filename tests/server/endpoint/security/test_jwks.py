"""Keys of token issuers over HTTP: fetched again when a token names an unknown one, kept while nobody answers."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from stratalog.server.endpoint.security.jwks import JwksKeys, JwksSource
from stratalog.storage.errors import InvalidConfigError

WAIT_S = 60


def key(kid: str) -> dict[str, Any]:
    public = ec.generate_private_key(ec.SECP256R1()).public_key()
    return {**json.loads(jwt.algorithms.ECAlgorithm.to_jwk(public)), "kid": kid}


class Issuer:
    """An HTTP server with keys; without any it answers with an error."""

    def __init__(self) -> None:
        self.keys: list[dict[str, Any]] = [key("one")]
        self.asked = 0
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                issuer.asked += 1
                body = json.dumps({"keys": issuer.keys}).encode()
                self.send_response(200 if issuer.keys else 503)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_arguments: Any) -> None:
                """Nothing."""

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/keys"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    made = Issuer()
    yield made
    made.stop()


def keys_of(issuer: Issuer, refresh_ms: int = 3_600_000) -> JwksKeys:
    return JwksKeys(JwksSource(issuer.url, refresh_ms, 10, 20))


def wait_until(is_so: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + WAIT_S
    while not is_so():
        assert time.monotonic() < deadline_s
        time.sleep(0.005)


def test_a_key_that_is_not_known_is_asked_for(issuer: Issuer) -> None:
    keys = keys_of(issuer)
    assert keys.key("one") is not None
    assert keys.key(None) is not None
    issuer.keys.append(key("two"))
    wait_until(lambda: keys.key("two") is not None)
    assert keys.key(None) is None, "one of two keys is not meant without an id"
    keys.close()


def test_keys_stay_while_the_issuer_does_not_answer(issuer: Issuer) -> None:
    keys = keys_of(issuer, refresh_ms=10)
    issuer.keys = []
    asked = issuer.asked
    wait_until(lambda: issuer.asked > asked)
    assert keys.key("one") is not None
    issuer.keys = [key("three")]
    wait_until(lambda: keys.key("three") is not None)
    assert keys.key("one") is None
    keys.close()


def test_unknown_ids_do_not_make_a_storm_of_requests(issuer: Issuer) -> None:
    keys = keys_of(issuer)
    end_s = time.monotonic() + 0.5
    while time.monotonic() < end_s:
        assert keys.key("unknown") is None
    assert issuer.asked <= 3
    keys.close()


def test_keys_over_http_are_warned_of(issuer: Issuer, caplog: pytest.LogCaptureFixture) -> None:
    keys_of(issuer).close()
    (line,) = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert issuer.url in line
    assert "use https" in line


def test_keys_of_a_file_are_read_again(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    path.write_text(json.dumps({"keys": [key("one")]}))
    keys = JwksKeys(JwksSource(path.as_uri(), 3_600_000, 10, 20))
    path.write_text(json.dumps({"keys": [key("one"), key("two")]}))
    wait_until(lambda: keys.key("two") is not None)
    keys.close()


def test_an_issuer_that_does_not_answer_at_the_start_is_refused(issuer: Issuer) -> None:
    issuer.keys = []
    with pytest.raises(InvalidConfigError, match="could not be read: HTTP Error 503"):
        keys_of(issuer)
