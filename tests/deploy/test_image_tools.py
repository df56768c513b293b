"""What the image brings along: what a pod asks before it is stopped, and what is deleted from the packages."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

IMAGE = Path(__file__).resolve().parents[2] / "deploy" / "image"


def loaded(name: str) -> ModuleType:
    """A file of deploy/image as a module."""
    spec = spec_from_file_location(name, IMAGE / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@contextmanager
def answering(*codes: int) -> Iterator[tuple[str, list[int]]]:
    """A server that answers with these codes, one after the other; its URL, and the codes that are left."""
    left = list(codes)

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            code = left.pop(0) if len(left) > 1 else left[0]
            self.send_response(code)
            self.end_headers()
            self.wfile.write(b"orders-0 is at its min.insync.replicas" if code == 503 else b"safe")

        def log_message(self, *_arguments: object) -> None:
            """Nothing."""

    server = HTTPServer(("127.0.0.1", 0), Answers)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/safe-to-restart", left
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_pod_waits_until_its_broker_may_be_restarted() -> None:
    hook = loaded("await_safe_to_restart")
    hook.PAUSE_S = 0.001
    with answering(503, 503, 200) as (url, left):
        assert hook.await_safe(url, 30.0) == "safe to restart: safe"
    assert left == [200]


@pytest.mark.parametrize(
    ("code", "found"),
    [
        (503, "not safe to restart after 0 s, stopping all the same: orders-0 is at its min.insync.replicas"),
        (401, "not safe to restart after 0 s, stopping all the same: safe"),
        (404, "safe to restart: safe"),  # a broker without the probe
    ],
)
def test_a_pod_is_stopped_in_the_end(code: int, found: str) -> None:
    hook = loaded("await_safe_to_restart")
    with answering(code) as (url, _left):
        assert hook.await_safe(url, 0.0) == found


def test_a_pod_logs_in_as_its_secret_says(tmp_path: Path) -> None:
    (tmp_path / "username").write_text("scraper\n")
    (tmp_path / "password").write_text("secret")
    hook = loaded("await_safe_to_restart")
    assert hook.authorization(tmp_path) == {"Authorization": "Basic c2NyYXBlcjpzZWNyZXQ="}
    assert hook.authorization(None) == {}


def test_a_broker_that_does_not_answer_may_be_stopped() -> None:
    hook = loaded("await_safe_to_restart")
    assert "does not answer" in hook.await_safe("http://127.0.0.1:1/safe-to-restart", 30.0)


def test_only_what_no_broker_loads_is_deleted(tmp_path: Path) -> None:
    packages = tmp_path / "lib" / "python3.12" / "site-packages"
    kept = ("pyarrow/lib.so", "pyarrow/libarrow.so.2600", "numpy/core.py", "stratalog/clients/testing/plugin.py")
    deleted = ("pip/main.py", "pyarrow/include/arrow/api.h", "pyarrow/libarrow_flight.so.2600", "pyarrow/tests/a.py")
    for path in (*kept, *deleted):
        (packages / path).parent.mkdir(parents=True, exist_ok=True)
        (packages / path).write_bytes(b"1234")
    freed = loaded("strip_packages").strip(tmp_path)
    assert freed == 4 * len(deleted)
    assert {str(path.relative_to(packages)) for path in packages.rglob("*") if path.is_file()} == set(kept)
