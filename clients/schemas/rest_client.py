"""A client of schema registry servers: Confluent's REST API, which Karapace, Apicurio and Redpanda have, too.

I/O: HTTP by the standard library. Answers that never change (a schema by id or GUID, a version by number, what was
registered) are kept for the life of the client; the latest version and levels of compatibility are asked for again.
"""

from __future__ import annotations

import base64
import json
import random
import ssl
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any, Self, TypeVar
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlencode, urlsplit
from urllib.request import HTTPSHandler, Request, build_opener
from uuid import UUID

from stratalog.clients.schemas.errors import (
    RETRIABLE_STATUSES,
    RegistryUnavailableError,
    SchemaRegistryError,
    registry_error,
)
from stratalog.clients.schemas.schema import RegisteredSchema, Schema, SchemaType
from stratalog.server.http_redirects import SafeRedirects
from stratalog.storage.clock import Clock, SystemClock
from stratalog.storage.config_def import ConfigDef, at_least, config_field, spelled
from stratalog.storage.errors import InvalidConfigError

CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"
REDIRECTS = frozenset((301, 302, 303, 307, 308))
ACCEPT = f"{CONTENT_TYPE}, application/vnd.schemaregistry+json, application/json"

T = TypeVar("T")


def _urls(listed: tuple[str, ...]) -> tuple[str, ...]:
    urls = tuple(each.rstrip("/") for each in listed if each)
    if not urls:
        raise ValueError("must be the address of a schema registry, such as http://localhost:8081")
    for each in urls:
        parts = urlsplit(each)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{parts.scheme or 'no'} scheme: must begin with http:// or https:// and a host")
        if parts.username:
            raise ValueError("a user does not belong into the address: use basic.auth.user.info=user:password")
    return urls


@dataclass(frozen=True, slots=True)
class RegistryConfig:
    """confluent-kafka's configs of a registry client. Several addresses of `url` are tried in turn.

    `timeout.ms` is for one request. Stores are PEM files. A wait between two tries is random, below
    `retries.wait.ms` doubled by each try, `retries.max.wait.ms` at most.
    """

    url: tuple[str, ...] = config_field("LIST", (), validator=_urls)
    basic_auth_user_info: str = config_field("PASSWORD", "")
    bearer_auth_token: str = config_field("PASSWORD", "")
    timeout_ms: int = config_field("INT", 30_000, "ms", validator=at_least(1))
    max_retries: int = config_field("INT", 3, validator=at_least(0))
    retries_wait_ms: int = config_field("INT", 1_000, "ms", validator=at_least(0))
    retries_max_wait_ms: int = config_field("INT", 20_000, "ms", validator=at_least(0))
    cache_capacity: int = config_field("INT", 1_000, validator=at_least(1))
    ssl_ca_location: str = config_field("STRING", "")
    ssl_certificate_location: str = config_field("STRING", "")
    ssl_key_location: str = config_field("STRING", "")
    ssl_key_password: str = config_field("PASSWORD", "")

    @classmethod
    def from_settings(cls, config: Mapping[str, object]) -> Self:
        """InvalidConfigError for an unknown name, a bad value, no address, or no mapping."""
        if not isinstance(config, Mapping):
            raise InvalidConfigError(
                f"the configs of a schema registry client are a mapping such as {{'url': 'http://localhost:8081'}}, or "
                f"its address, not {config!r}"
            )
        names = {"schema.registry.url": "url"} | {key.field_name: key.name for key in REGISTRY_CONFIGS}
        known = {names.get(name, name): value for name, value in config.items()}
        parsed = REGISTRY_CONFIGS.parse({k: v if isinstance(v, list | tuple) else spelled(v) for k, v in known.items()})
        if "url" not in parsed:
            raise InvalidConfigError("Missing required configuration url: the address of a schema registry")
        if parsed.get("basic_auth_user_info") and parsed.get("bearer_auth_token"):
            raise InvalidConfigError("basic.auth.user.info and bearer.auth.token are both set: set one of them")
        return cls(**parsed)

    def authorization(self) -> dict[str, str]:
        """The header that says who asks, if the config does."""
        if self.basic_auth_user_info:
            return {"Authorization": f"Basic {base64.b64encode(self.basic_auth_user_info.encode()).decode()}"}
        return {"Authorization": f"Bearer {self.bearer_auth_token}"} if self.bearer_auth_token else {}

    def ssl_context(self) -> ssl.SSLContext:
        """TLS with the system's certificates and those of `ssl.ca.location`. InvalidConfigError for a bad file."""
        try:
            context = ssl.create_default_context(cafile=self.ssl_ca_location or None)
            if self.ssl_certificate_location:
                files = (self.ssl_certificate_location, self.ssl_key_location or None)
                context.load_cert_chain(*files, password=self.ssl_key_password or None)
        except (OSError, ssl.SSLError) as reason:
            raise InvalidConfigError(
                f"ssl.ca.location, ssl.certificate.location or ssl.key.location cannot be read: {reason}"
            ) from reason
        return context


REGISTRY_CONFIGS = ConfigDef.of("schema registry client", RegistryConfig)


class SchemaRegistryClient:
    """A schema registry server's client. Thread-safe.

    config  `url` (or `schema.registry.url`) and further configs of `RegistryConfig`, by their dotted names; or the
            address alone.

    Any call raises RegistryUnavailableError after its last retry, or the error that the server answered.
    """

    def __init__(
        self, config: Mapping[str, object] | str, *, clock: Clock | None = None, rng: random.Random | None = None
    ) -> None:
        self.config = RegistryConfig.from_settings({"url": config} if isinstance(config, str) else config)
        self._clock = clock or SystemClock()
        self._rng = rng or random.Random()
        is_https = any(each.startswith("https:") for each in self.config.url)
        https = [HTTPSHandler(context=self.config.ssl_context())] if is_https else []
        self._opener = build_opener(SafeRedirects(), *https)
        self._kept: OrderedDict[Hashable, RegisteredSchema] = OrderedDict()
        self._lock = threading.Lock()

    # -- schemas -------------------------------------------------------------------------------------------

    def register(self, subject: str, schema: Schema, *, normalize: bool = False) -> RegisteredSchema:
        """The schema as a version of the subject. IncompatibleSchemaError, InvalidSchemaError."""

        def ask() -> RegisteredSchema:
            path = _path("subjects", subject, "versions")
            answer = self._call("POST", path, {"normalize": normalize}, schema.as_json())
            if "version" not in answer:  # Confluent Platform before 8.0 and others answer the id alone
                return self.lookup(subject, schema, normalize=normalize)
            return _registered({**schema.as_json(), "subject": subject, **answer})

        return self._keep(("register", subject, schema, normalize), ask)

    def lookup(
        self, subject: str, schema: Schema, *, normalize: bool = False, deleted: bool = False
    ) -> RegisteredSchema:
        """The version of the subject that has this schema. SubjectNotFoundError, SchemaNotFoundError."""

        def ask() -> RegisteredSchema:
            query = {"normalize": normalize, "deleted": deleted}
            return _registered(self._call("POST", _path("subjects", subject), query, schema.as_json()))

        return self._keep(("lookup", subject, schema, normalize, deleted), ask)

    def schema_by_id(self, schema_id: int, subject: str | None = None) -> RegisteredSchema:
        """The schema with this id; a Protobuf file as a descriptor in base64. SchemaNotFoundError.

        The subject is needed only by servers with contexts.
        """
        query = {} if subject is None else {"subject": subject}
        path = _path("schemas", "ids", schema_id)
        return self._keep(("id", schema_id, subject), lambda: self._serialized(path, query, {"id": schema_id}))

    def schema_by_guid(self, guid: UUID) -> RegisteredSchema:
        """As `schema_by_id`, by the GUID."""
        path = _path("schemas", "guids", guid)
        return self._keep(("guid", guid), lambda: self._serialized(path, {}, {"guid": str(guid)}))

    def version(self, subject: str, version: int | None = None) -> RegisteredSchema:
        """A version of a subject; the latest if None. SubjectNotFoundError, SchemaVersionNotFoundError."""

        def ask() -> RegisteredSchema:
            path = _path("subjects", subject, "versions", "latest" if version is None else version)
            return self._serialized(path, {}, {})

        return ask() if version is None else self._keep(("version", subject, version), ask)

    def versions(self, subject: str) -> list[int]:
        """The numbers of the versions of a subject. SubjectNotFoundError."""
        return [int(each) for each in self._call("GET", _path("subjects", subject, "versions"))]

    def subjects(self, prefix: str | None = None, *, deleted: bool = False) -> list[str]:
        """All subjects, or those that begin with `prefix`; with `deleted` also those that were deleted."""
        query = {"deleted": deleted} | ({} if prefix is None else {"subjectPrefix": prefix})
        return [str(each) for each in self._call("GET", "subjects", query)]

    def subject_versions(self, schema_id: int) -> list[tuple[str, int]]:
        """(subject, version) wherever this schema is registered. SchemaNotFoundError."""
        found = self._call("GET", _path("schemas", "ids", schema_id, "versions"))
        return [(each["subject"], each["version"]) for each in found]

    def referenced_by(self, subject: str, version: int) -> list[int]:
        """The ids of the schemas that refer to a version."""
        path = _path("subjects", subject, "versions", version, "referencedby")
        return [int(each) for each in self._call("GET", path)]

    def delete_subject(self, subject: str, *, permanent: bool = False) -> list[int]:
        """Delete a subject; its versions. `permanent` removes what was deleted before. ReferenceExistsError."""
        found = self._call("DELETE", _path("subjects", subject), {"permanent": permanent} if permanent else {})
        self._forget()
        return [int(each) for each in found]

    def delete_version(self, subject: str, version: int, *, permanent: bool = False) -> int:
        """As `delete_subject`, one version; its number."""
        path = _path("subjects", subject, "versions", version)
        found = self._call("DELETE", path, {"permanent": permanent} if permanent else {})
        self._forget()
        return int(found)

    # -- compatibility -------------------------------------------------------------------------------------

    def incompatibilities(self, subject: str, schema: Schema, version: int | None = None) -> list[str]:
        """Why the schema could not be registered, or is incompatible with one version; empty if it could.

        A server that gives no reasons answers one general sentence.
        """
        path = _path("compatibility", "subjects", subject, "versions", *([] if version is None else [version]))
        answer = self._call("POST", path, {"verbose": True}, schema.as_json())
        if answer.get("is_compatible", True):
            return []
        return [str(each) for each in answer.get("messages") or ["the schema is not compatible"]]

    def compatibility(self, subject: str | None = None) -> str:
        """The compatibility level of a subject, which may be the global one, or the global one."""
        if subject is None:
            return str(self._call("GET", "config")["compatibilityLevel"])
        return str(self._call("GET", _path("config", subject), {"defaultToGlobal": True})["compatibilityLevel"])

    def set_compatibility(self, level: str, subject: str | None = None) -> None:
        """Set the level of a subject, or the global one. InvalidCompatibilityLevelError."""
        path = "config" if subject is None else _path("config", subject)
        self._call("PUT", path, body={"compatibility": level.upper()})

    def delete_compatibility(self, subject: str) -> None:
        """Let the global level count for a subject again."""
        self._call("DELETE", _path("config", subject))

    # -- requests ------------------------------------------------------------------------------------------

    def _serialized(self, path: str, query: Mapping[str, object], known: Mapping[str, object]) -> RegisteredSchema:
        """The schema at a path; of Protobuf the descriptor, which only `format=serialized` answers."""
        answer = self._call("GET", path, query)
        if answer.get("schemaType") == SchemaType.PROTOBUF:
            answer = self._call("GET", path, {**query, "format": "serialized"})
        return _registered({**known, **answer})

    def _keep(self, key: Hashable, ask: Callable[[], RegisteredSchema]) -> RegisteredSchema:
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
        answer = ask()
        with self._lock:
            self._kept[key] = answer
            while len(self._kept) > self.config.cache_capacity:
                self._kept.popitem(last=False)
        return answer

    def _forget(self) -> None:
        with self._lock:
            self._kept.clear()

    def _call(
        self, method: str, path: str, query: Mapping[str, object] | None = None, body: Mapping[str, Any] | None = None
    ) -> Any:
        """The answer's JSON; each address is tried, then all of them again, up to `max.retries` times."""
        text = f"?{urlencode({name: spelled(value) for name, value in query.items()})}" if query else ""
        error: SchemaRegistryError | None = None
        for tries in range(self.config.max_retries + 1):
            if tries:
                limit_ms = min(self.config.retries_max_wait_ms, self.config.retries_wait_ms * 2 ** (tries - 1))
                self._clock.sleep_ms(self._rng.random() * limit_ms)
            for url in self.config.url:
                try:
                    return self._ask(method, f"{url}/{path}{text}", body)
                except SchemaRegistryError as reason:
                    if not reason.retriable and reason.status not in RETRIABLE_STATUSES:
                        raise
                    error = reason
        assert error is not None
        raise error

    def _ask(self, method: str, url: str, body: Mapping[str, Any] | None) -> Any:
        headers = {"Accept": ACCEPT, **self.config.authorization()}
        data = None
        if body is not None:
            data = json.dumps(body).encode()
            headers["Content-Type"] = CONTENT_TYPE
        request = Request(url, data=data, headers=headers, method=method)
        try:
            with self._opener.open(request, timeout=self.config.timeout_ms / 1000) as response:
                content = response.read()
        except HTTPError as refused:
            with refused:
                if refused.code in REDIRECTS:
                    raise registry_error(refused.code, None, str(refused.reason)) from None
                raise _error_of(refused.code, refused.read()) from None
        except (URLError, OSError) as reason:
            why = reason.reason if isinstance(reason, URLError) else reason
            raise RegistryUnavailableError(f"{method} {url}: {why}; check url and whether the registry runs") from None
        try:
            return json.loads(content) if content else {}
        except ValueError:
            raise SchemaRegistryError(
                f"{method} {url}: the answer is not JSON; check that url names a registry"
            ) from None


def _path(*parts: object) -> str:
    return "/".join(quote(str(each), safe="") for each in parts)


def _registered(answer: Mapping[str, Any]) -> RegisteredSchema:
    guid = answer.get("guid")
    schema = Schema.from_json(answer)
    return RegisteredSchema(
        schema, answer.get("id"), UUID(guid) if guid else None, answer.get("subject"), answer.get("version")
    )


def _error_of(status: int, content: bytes) -> SchemaRegistryError:
    try:
        answer = json.loads(content)
        return registry_error(status, answer.get("error_code"), str(answer.get("message")))
    except (ValueError, AttributeError):
        return registry_error(status, None, f"HTTP status {status}: {content[:200].decode(errors='replace')}")
