"""The registry of a cluster, with what was made of its schemas, and what of it a user sees.

I/O: the schema topic, or a registry server.

Who may READ the schema topic sees all subjects. The subjects `TOPIC-key` and `TOPIC-value` are also seen by those who
may READ that topic, as by Confluent's TopicAclAuthorizer. Where brokers apply the ACLs, a topic that they list is
taken as one that may be read.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol
from uuid import UUID
from weakref import WeakKeyDictionary

from stratalog.clients.client_view import ClientView
from stratalog.clients.console.asker import WAIT_MS, Asker
from stratalog.clients.console.schemas.payloads import ReadPayload, payload_reader
from stratalog.clients.console.schemas.topic import SchemaTopic
from stratalog.clients.schemas.rest_client import SchemaRegistryClient
from stratalog.clients.schemas.schema import RegisteredSchema, Schema, referenced
from stratalog.clients.schemas.wire_format import SchemaId
from stratalog.clients.wire.view import WireView
from stratalog.replication.metadata.acls import Operation, ResourceType
from stratalog.server.view.read_committed import READ_COMMITTED, ReadCommittedView
from stratalog.storage.clock import Clock, SystemClock
from stratalog.storage.errors import SerializationError

KEPT_MAX, KEPT_MS = 500, 60_000
"""Number of schemas that are kept with what reads them, and for how long their subjects are believed."""
SUFFIXES = ("-key", "-value")


class Registry(Protocol):
    """What the console asks of a registry: `SchemaRegistryClient` and `SchemaTopic` have it."""

    def schema_by_id(self, schema_id: int, subject: str | None = None) -> RegisteredSchema: ...

    def schema_by_guid(self, guid: UUID) -> RegisteredSchema: ...

    def version(self, subject: str, version: int | None = None) -> RegisteredSchema: ...

    def versions(self, subject: str) -> list[int]: ...

    def subjects(self) -> list[str]: ...

    def subject_versions(self, schema_id: int) -> list[tuple[str, int]]: ...

    def compatibility(self, subject: str | None = None) -> str: ...

    def incompatibilities(self, subject: str, schema: Schema, version: int | None = None) -> list[str]: ...


@dataclass(frozen=True, slots=True)
class NamedSchema:
    """A schema with what reads its payloads.

    places   (subject, version) wherever it is registered
    used     the subjects of all that it refers to
    read     None where `problem` says why there is none
    """

    registered: RegisteredSchema
    places: tuple[tuple[str, int], ...]
    used: frozenset[str]
    read: ReadPayload | None
    problem: str = ""


@dataclass(slots=True)
class KnownRegistry:
    """One registry. Thread-safe.

    name  what pages call it: the topic, or the server's addresses
    """

    registry: Registry
    name: str
    clock: Clock
    _kept: OrderedDict[object, tuple[NamedSchema, int]] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def kept(self, named: SchemaId) -> NamedSchema | None:
        """A schema that was asked for a short while ago."""
        with self._lock:
            found = self._kept.get(named.guid or named.id)
        return None if found is None or self.clock.monotonic_ms() - found[1] > KEPT_MS else found[0]

    def named(self, named: SchemaId) -> NamedSchema:
        """The schema of an id or a GUID. SchemaNotFoundError, RegistryUnavailableError."""
        kept = self.kept(named)
        if kept is not None:
            return kept
        if named.guid is not None:
            registered = self.registry.schema_by_guid(named.guid)
        else:
            assert named.id is not None
            registered = self.registry.schema_by_id(named.id)
        places: list[tuple[str, int]] = []
        if registered.id is not None:
            places = self.registry.subject_versions(registered.id)
        elif registered.subject is not None and registered.version is not None:
            places = [(registered.subject, registered.version)]
        schema = registered.schema
        references = referenced(self.registry, schema)
        used = frozenset(each.subject for text in (schema, *references.values()) for each in text.references)
        read, problem = None, ""
        try:
            read = payload_reader(schema, references)
        except SerializationError as reason:
            problem = str(reason)
        found = NamedSchema(registered, tuple(places), used, read, problem)
        with self._lock:
            self._kept[named.guid or named.id] = found, self.clock.monotonic_ms()
            while len(self._kept) > KEPT_MAX:
                self._kept.popitem(last=False)
        return found


_BY_CLIENT: WeakKeyDictionary[SchemaRegistryClient, KnownRegistry] = WeakKeyDictionary()
_BY_VIEW: WeakKeyDictionary[ClientView, tuple[str, KnownRegistry]] = WeakKeyDictionary()
_OPENING = threading.Lock()


def registry_of(asker: Asker) -> KnownRegistry | None:
    """The registry of the cluster: the server that was named, else its schema topic. None: it has none.

    The view is refreshed by the caller.
    """
    client, view = asker.beside.registry, asker.cluster.view
    with _OPENING:
        if client is not None:
            if client not in _BY_CLIENT:
                _BY_CLIENT[client] = KnownRegistry(client, ", ".join(client.config.url), SystemClock())
            return _BY_CLIENT[client]
        topic = asker.beside.schemas_topic
        if topic not in view.topics():
            return None
        topic_id = view.image.topic_ids.get(topic, "")
        known = _BY_VIEW.get(view)
        if known is None or known[0] != topic_id:
            known = topic_id, KnownRegistry(_topic_schemas(asker, topic), f"topic {topic}", SystemClock())
            _BY_VIEW[view] = known
        return known[1]


def _topic_schemas(asker: Asker, topic: str) -> SchemaTopic:
    """The schemas of a topic, as the user's own connection reads it where brokers decide."""
    view = asker.cluster.view
    if isinstance(view, WireView):
        served = WireView(view.cluster, isolation_level=READ_COMMITTED, timeout_ms=WAIT_MS)
        served.refresh()
        return SchemaTopic(served, topic, WAIT_MS)
    return SchemaTopic(ReadCommittedView(view.root, timeout_ms=WAIT_MS), topic, WAIT_MS)


class SubjectSight:
    """Which subjects a user sees."""

    def __init__(self, asker: Asker) -> None:
        self._asker = asker
        self._topics: frozenset[str] | None = None
        self._sees_all = self._reads(asker.beside.schemas_topic)

    def sees(self, subject: str) -> bool:
        """Whether the user sees a subject with all of its versions."""
        if self._sees_all:
            return True
        topic = topic_of(subject)
        if topic is not None:
            return self._reads(topic)
        return self._asker.authorizer is None and self._asker.is_anonymous

    def place_of(self, found: NamedSchema, preferred: str) -> tuple[str, int] | None:
        """A subject and version by which the user sees the schema and all that it refers to; None: he does not."""
        if not all(self.sees(each) for each in found.used):
            return None
        seen = [each for each in found.places if self.sees(each[0])]
        if not seen and self._sees_all:
            return ("", -1)
        return next((each for each in reversed(seen) if each[0] == preferred), seen[0] if seen else None)

    def _reads(self, topic: str) -> bool:
        asker = self._asker
        if asker.authorizer is not None:
            return asker.may(Operation.READ, ResourceType.TOPIC, topic)
        if not asker.cluster.is_served:
            return True
        if self._topics is None:
            self._topics = frozenset(asker.cluster.view.topics())
        return topic in self._topics


def topic_of(subject: str) -> str | None:
    """The topic of a subject that is named after one.

    >>> topic_of("orders-value"), topic_of("com.acme.Order")
    ('orders', None)
    """
    return next((subject.removesuffix(each) for each in SUFFIXES if subject.endswith(each)), None)


def subjects_of(topic: str, subjects: Sequence[str]) -> list[str]:
    """Those of the subjects that are named after the topic.

    >>> subjects_of("orders", ["orders-value", "orders-old-value", "orders-com.acme.Order"])
    ['orders-value', 'orders-com.acme.Order']
    """
    own = [f"{topic}{each}" for each in SUFFIXES]
    records = [each for each in subjects if each.startswith(f"{topic}-") and "." in each and topic_of(each) is None]
    return [each for each in subjects if each in own or each in records]
