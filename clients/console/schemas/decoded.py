"""Keys and values of records, read by the schemas that they name. I/O: the registry.

One question reads so many schemas and for so long; what is left is shown as bytes, with the reason.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from stratalog.clients.console.asker import Asker
from stratalog.clients.console.schemas.known import KnownRegistry, NamedSchema, SubjectSight, registry_of
from stratalog.clients.console.shown_text import CUT_BYTES, shown, visible
from stratalog.clients.schemas.errors import SchemaNotFoundError
from stratalog.clients.schemas.schema import SchemaType
from stratalog.clients.schemas.wire_format import (
    FIRST_MESSAGE,
    MAGIC_BYTE_V0,
    MAGIC_BYTE_V1,
    SchemaId,
    decode_headers_or_prefix,
    schema_id_header,
)
from stratalog.storage.errors import SerializationError, StratalogError

DECODING_MS_MAX = 1_500
"""Time that one question spends on decoding."""
SCHEMAS_MAX = 64
"""Number of schemas that one question asks the registry for."""
DEPTH_MAX, INDENTED_MAX = 24, 256 << 10
"""Nesting and characters up to which JSON is shown with a line for each value."""
_PREFIX_BYTES = {MAGIC_BYTE_V0: 5, MAGIC_BYTE_V1: 17}
Headers = Sequence[tuple[str, bytes | None]]


@dataclass(frozen=True, slots=True)
class ReadPart:
    """A key or value by its schema.

    schema     the id, or the GUID, that the record names
    subject    empty where the registry does not say; `version` is -1 then
    kind       AVRO, JSON or PROTOBUF
    message    the record's or message's name
    text       JSON; empty where `problem` says why it is not read
    is_cut     more follows, which a download has
    """

    schema: str
    subject: str = ""
    version: int = -1
    kind: str = ""
    message: str = ""
    text: str = ""
    is_cut: bool = False
    problem: str = ""


class PartDecoder:
    """Reads parts of records for one question of one user."""

    def __init__(self, asker: Asker, *, is_wanted: bool = True) -> None:
        """`is_wanted`: False for a user who wants bytes."""
        self._clock = asker.cluster.view.clock
        self._begun_ms = self._clock.monotonic_ms()
        self._spent_ms = 0.0
        self._asked: dict[object, NamedSchema | str] = {}
        self._away = ""
        self._registry: KnownRegistry | None = None
        self.problem = ""
        if is_wanted:
            try:
                self._registry = registry_of(asker)
            except StratalogError as reason:
                self.problem = f"schemas cannot be read: {reason}"
        self._sight = SubjectSight(asker) if self._registry is not None else None

    def part(
        self, topic: str, data: bytes | None, headers: Headers, *, is_key: bool, cut_bytes: int = CUT_BYTES
    ) -> ReadPart | None:
        """A key or value by its schema; None for one that names none, and without a registry."""
        if self._registry is None or data is None:
            return None
        try:
            named, _ = _named(data, headers, is_key=is_key)
        except SerializationError:
            return None
        begun_ms = self._clock.monotonic_ms()
        whole = self._whole(topic, named, data, headers, is_key=is_key)
        self._spent_ms += self._clock.monotonic_ms() - begun_ms
        if whole.problem:
            return whole
        text = whole.text if cut_bytes <= CUT_BYTES else indented(whole.text)
        cut = shown(text.encode(errors="backslashreplace"), cut_bytes)
        return ReadPart(
            whole.schema,
            visible(whole.subject),
            whole.version,
            whole.kind,
            visible(whole.message),
            cut.text,
            cut.is_cut,
        )

    def searched(self, topic: str, data: bytes | None, headers: Headers, *, is_key: bool) -> str:
        """The JSON of a key or value in lower case, for a search; empty where it is not read."""
        if self._registry is None or data is None:
            return ""
        try:
            named, _ = _named(data, headers, is_key=is_key)
        except SerializationError:
            return ""
        return self._whole(topic, named, data, headers, is_key=is_key, is_bounded=False).text.lower()

    def whole(self, topic: str, data: bytes | None, headers: Headers, *, is_key: bool) -> str:
        """The JSON of a key or value, all of it. SerializationError where it is not read."""
        if self._registry is None or data is None:
            raise SerializationError(self.problem or "there is no registry, or no value")
        named, _ = _named(data, headers, is_key=is_key)
        found = self._whole(topic, named, data, headers, is_key=is_key)
        if found.problem:
            raise SerializationError(found.problem)
        return found.text

    def _whole(
        self, topic: str, named: SchemaId, data: bytes, headers: Headers, *, is_key: bool, is_bounded: bool = True
    ) -> ReadPart:
        """`is_bounded`: False for a search, which has a time of its own."""
        schema = str(named.guid or named.id)
        if is_bounded and self._spent_ms > DECODING_MS_MAX:
            return ReadPart(schema, problem=f"others took {DECODING_MS_MAX} ms: open this record alone")
        found = self._schema(named)
        if isinstance(found, str):
            return ReadPart(schema, problem=found)
        assert self._sight is not None
        place = self._sight.place_of(found, f"{topic}-{'key' if is_key else 'value'}")
        if place is None:
            return ReadPart(schema, problem=_absent(schema))
        kind = found.registered.schema.type
        part = ReadPart(schema, place[0], place[1], kind.value)
        if found.read is None:
            return _refused(part, found.problem)
        try:
            has_indexes = kind == SchemaType.PROTOBUF
            exact, payload = decode_headers_or_prefix(data, headers, is_key=is_key, has_message_indexes=has_indexes)
            text, message = found.read(payload, exact.message_indexes or FIRST_MESSAGE)
        except SerializationError as reason:
            return _refused(part, str(reason))
        return ReadPart(schema, place[0], place[1], kind.value, message, text)

    def _schema(self, named: SchemaId) -> NamedSchema | str:
        """The schema, or why it is not known."""
        assert self._registry is not None
        key = named.guid or named.id
        kept = self._registry.kept(named)
        if kept is not None:
            return kept
        if key not in self._asked:
            if self._away:
                return self._away
            if len(self._asked) >= SCHEMAS_MAX:
                return f"one answer asks for {SCHEMAS_MAX} schemas at most: open this record alone"
            try:
                self._asked[key] = self._registry.named(named)
            except SchemaNotFoundError:
                self._asked[key] = _absent(str(key))
            except StratalogError as reason:
                self._away = self._asked[key] = f"the registry does not answer: {reason}"
        return self._asked[key]


def _absent(schema: str) -> str:
    """The same for a schema that is not there and for one that is hidden."""
    return f"there is no schema {schema} that you may see"


def _refused(part: ReadPart, reason: str) -> ReadPart:
    return ReadPart(part.schema, visible(part.subject), part.version, part.kind, problem=visible(reason[:500]))


def _named(data: bytes, headers: Headers, *, is_key: bool) -> tuple[SchemaId, bytes]:
    """The schema that a part names. SerializationError for one that names none."""
    name = schema_id_header(is_key)
    if not any(key == name for key, _ in headers) and len(data) < _PREFIX_BYTES.get(data[0] if data else -1, 1 << 60):
        raise SerializationError("it names no schema")
    return decode_headers_or_prefix(data, headers, is_key=is_key)


def indented(text: str) -> str:
    """JSON with a line for each value; as it stands where that would change a number, or be long.

    >>> indented('{"a": 1.50}'), indented('{"a": 1}')
    ('{"a": 1.50}', '{\\n  "a": 1\\n}')
    """
    if len(text) > INDENTED_MAX:
        return text
    try:
        value = json.loads(text)
        if not _is_flat(value, DEPTH_MAX):
            return text
        lines = json.dumps(value, indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return text
    return lines if "".join(lines.split()) == "".join(text.split()) else text


def _is_flat(value: Any, depth: int) -> bool:
    if isinstance(value, dict | list):
        parts = value.values() if isinstance(value, dict) else value
        return depth > 0 and all(_is_flat(each, depth - 1) for each in parts)
    return True
