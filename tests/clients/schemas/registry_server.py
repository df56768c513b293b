"""A web server that answers from a table and keeps what it was asked. I/O: a thread and a port of its own."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple, Self
from urllib.parse import parse_qsl, unquote, urlsplit
from uuid import UUID

from stratalog.clients.schemas.errors import SchemaRegistryError
from stratalog.clients.schemas.registry_state import RegistryState
from stratalog.clients.schemas.schema import RegisteredSchema, Schema


class Asked(NamedTuple):
    """A request: method, path, query in order of names, body."""

    method: str
    path: str
    query: tuple[tuple[str, str], ...]
    body: Any
    headers: Mapping[str, str]


class RegistryServer:
    """`answers`: "GET /subjects" -> (status, JSON), without the query; several of a list are answered in turn.
    `redirects`: where a path has moved."""

    def __init__(self, answers: Mapping[str, Any]) -> None:
        self.asked: list[Asked] = []
        self.redirects: dict[str, str] = {}
        self._answers = {key: list(value) if isinstance(value, list) else value for key, value in answers.items()}
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                if urlsplit(self.path).path in outer.redirects:
                    self.send_response(302)
                    self.send_header("Location", outer.redirects[urlsplit(self.path).path])
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                    return
                status, answer = outer.answer(self.command, self.path, body, dict(self.headers))
                content = answer.encode() if isinstance(answer, str) else json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            do_POST = do_PUT = do_DELETE = do_GET  # noqa: N815

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def answer(self, method: str, url: str, body: bytes, headers: Mapping[str, str]) -> tuple[int, Any]:
        parts = urlsplit(url)
        query = tuple(sorted((name, value.lower()) for name, value in parse_qsl(parts.query)))
        self.asked.append(Asked(method, parts.path, query, json.loads(body) if body else None, headers))
        found = self._answers.get(f"{method} {parts.path}", (404, {"error_code": 404, "message": "HTTP 404 Not Found"}))
        if isinstance(found, list):
            found = found.pop(0) if len(found) > 1 else found[0]
        status, answer = found
        return status, answer

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


class StateServer(RegistryServer):
    """A registry that keeps what it is told: the part of the REST API that serializers use, over a `RegistryState`."""

    def __init__(self) -> None:
        super().__init__({})
        self.state = RegistryState()
        self._lock = threading.Lock()

    def answer(self, method: str, url: str, body: bytes, headers: Mapping[str, str]) -> tuple[int, Any]:
        parts = [unquote(part) for part in urlsplit(url).path.split("/")[1:]]
        self.asked.append(Asked(method, urlsplit(url).path, (), None, headers))
        try:
            with self._lock:
                return 200, self._answered(method, parts, json.loads(body) if body else {})
        except SchemaRegistryError as reason:
            return reason.status, {"error_code": reason.error_code, "message": str(reason)}

    def _answered(self, method: str, parts: list[str], body: Any) -> Any:
        match method, parts:
            case "POST", ["subjects", subject, "versions"]:
                change = self.state.register(subject, Schema.from_json(body))
                for record in change.records:
                    self.state.apply(*record)
                return told(change.answer)
            case "POST", ["subjects", subject]:
                return told(self.state.find(subject, Schema.from_json(body)).as_registered())
            case "GET", ["subjects", subject, "versions", version]:
                number = None if version == "latest" else int(version)
                return told(self.state.version(subject, number).as_registered())
            case "GET", ["schemas", "ids", number]:
                return told(self.state.by_id(int(number)).as_registered())
            case "GET", ["schemas", "guids", guid]:
                return told(self.state.by_guid(UUID(guid)).as_registered())
        return self._listed(method, parts)

    def _listed(self, method: str, parts: list[str]) -> Any:
        """What browsers of a registry ask."""
        match method, parts:
            case "GET", ["schemas", "ids", number, "versions"]:
                places = self.state.places(int(number))
                return [{"subject": subject, "version": version} for subject, version in places]
            case "GET", ["subjects"]:
                return list(self.state.subjects)
            case "GET", ["subjects", subject, "versions"]:
                return [each.version for each in self.state.live(subject)]
            case "GET", ["config"]:
                return {"compatibilityLevel": self.state.level().value}
            case "GET", ["config", subject]:
                return {"compatibilityLevel": self.state.level(subject).value}
        raise SchemaRegistryError(f"{method} {'/'.join(parts)}: HTTP 404 Not Found", 404)


def told(found: RegisteredSchema) -> dict[str, Any]:
    place = {"subject": found.subject, "version": found.version, "id": found.id, "guid": str(found.guid)}
    return {**place, **found.schema.as_json()}
