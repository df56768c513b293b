"""Requests and responses as bytes: a frame's header and body, without the length before it. Pure.

A frame is the bytes between two lengths on a connection. Bytes that are no request are InvalidRequestError: the
connection is to be closed, as Kafka does. The one exception is ApiVersions of an unknown version, which is answered in
version 0 with UNSUPPORTED_VERSION, so that a newer client can try again (KIP-511).
Source: Kafka's `RequestContext.parseRequest`, `RequestHeader`, `ApiVersionsRequest`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from struct import Struct as Packed
from typing import Any, NamedTuple, TypeAlias

from stratalog.storage.errors import CorruptMessageError, InvalidRequestError, UnsupportedVersionError
from stratalog.wire.api_keys import ApiKey
from stratalog.wire.kafka_types import Bounds, Field, Layout, Struct, layout, sequence
from stratalog.wire.messages.layouts import layout_of
from stratalog.wire.messages.schema import Entity, EntityType, known_versions, request_type, response_type

Frame: TypeAlias = bytes | memoryview
"""A request's bytes. A large frame is a view of the memory into which it was received."""
Answer: TypeAlias = bytes | Sequence[bytes | memoryview]
"""A response frame, in one piece or in several that follow each other."""
JOINED_BYTES_MAX = 64 << 10
"""Pieces of an answer are joined while they are smaller than this together."""
CORRELATION_BYTES = 4
API_KEY_BYTES = 2
_INT32 = Packed(">i")
_START = Packed(">hhi")
"""The beginning of every request's header: API key, version, correlation id."""
_REQUEST_HEADER = Struct("RequestHeader", (Field("client_id", "string", is_nullable=True, is_compact=False),))
"""The rest of it."""
_RESPONSE_HEADER = Struct("ResponseHeader", (Field("correlation_id", "int32"),))


class RequestFrame(NamedTuple):
    """A decoded request. `entity` is None only for ApiVersions of a version that is not known."""

    api_key: int
    version: int
    correlation_id: int
    client_id: str | None
    entity: Entity | None


class Message(NamedTuple):
    """A request to be sent. `response`: the dataclass of which its response is an object; None: kio's class."""

    content: Entity
    api_key: int
    version: int
    response: EntityType = None

    def frame(self, correlation_id: int, client_id: str | None) -> bytes:
        """As `encode_request`."""
        return encode_request(correlation_id, client_id, self.content, request_type(self.api_key, self.version))

    def answer(self, frame: bytes) -> Entity:
        """The response in a frame, as `decode_response`."""
        return decode_response(frame, self.api_key, self.version, self.response)[1]


class EncodedResponse(NamedTuple):
    """A response that is written several times: its frame behind the correlation id."""

    body: bytes


def decode_request(
    frame: Frame,
    served: Mapping[int, range],
    bounds: Bounds | None = None,
    held_as: Mapping[int, EntityType] | None = None,
) -> RequestFrame:
    """A request frame, header and body. The records of a Produce request are slices of the frame.

    served   the versions that are answered, by API key
    bounds   what the request may hold
    held_as  the dataclasses of which requests are objects, by API key; others are of kio's class
    Raises InvalidRequestError for bytes that are no request, or one beyond its bounds, UnsupportedVersionError for one
    that is not served: neither can be answered.
    """
    if len(frame) < _START.size:
        raise InvalidRequestError(f"a request begins with {_START.size} bytes of header, the frame has {len(frame)}")
    api_key, version, correlation_id = _START.unpack_from(frame)
    if version not in served.get(api_key, ()):
        if api_key == ApiKey.API_VERSIONS:
            return RequestFrame(api_key, version, correlation_id, None, None)
        versions = served.get(api_key)
        known = "is not served" if versions is None else f"is served in versions {versions[0]} to {versions[-1]}"
        raise UnsupportedVersionError(f"API {api_key} version {version}: it {known}")
    data = memoryview(frame) if api_key == ApiKey.PRODUCE else bytes(frame)
    layout_ = _frame_layout(request_type(api_key, version), (held_as or {}).get(api_key), _REQUEST_HEADER)
    header, entity = _decode(data, _START.size, layout_, bounds)
    return RequestFrame(api_key, version, correlation_id, header["client_id"], entity)


def api_key_of(frame: Frame) -> int:
    """The API of a request frame; -1 for one that is too short to have one."""
    return int.from_bytes(frame[:2], "big", signed=True) if len(frame) >= API_KEY_BYTES else -1


def start_of(frame: Frame) -> tuple[int, int, int]:
    """API key, version and correlation id of a request frame that has a header."""
    api_key, version, correlation_id = _START.unpack_from(frame)
    return api_key, version, correlation_id


def correlation_id_of(frame: Frame) -> int:
    """The correlation id of a request frame that has a header."""
    return int(_START.unpack_from(frame)[2])


def body_of(frame: Frame) -> bytes:
    """All of a request frame but its correlation id: equal for the same request of the same client."""
    return bytes(frame[:4]) + bytes(frame[_START.size :])


def decode_response(frame: bytes, api_key: int, version: int, held_as: EntityType = None) -> tuple[int, Entity]:
    """(correlation id, response) of a response frame, as clients read it. InvalidRequestError as `decode_request`.

    held_as  the dataclass of which it is an object; None: kio's class
    """
    header, entity = _decode(frame, 0, _frame_layout(response_type(api_key, version), held_as, _RESPONSE_HEADER))
    return header["correlation_id"], entity


def _decode(frame: Any, start: int, of: Layout, bounds: Bounds | None = None) -> tuple[dict[str, Any], Entity]:
    try:
        (values, entity), _ = of.read(frame, start, bounds)
    except CorruptMessageError as reason:
        raise InvalidRequestError(str(reason)) from reason
    return values, entity


@cache
def _frame_layout(entity_type: EntityType, held_as: EntityType, header: Struct) -> Layout:
    is_flexible = bool(entity_type.__header_schema__.__flexible__)
    return sequence(entity_type.__name__, layout(header, is_flexible=is_flexible), layout_of(entity_type, held_as))


def _layout_for(entity: Entity, header: Struct, of: EntityType) -> Layout:
    held_as: EntityType = dict if isinstance(entity, dict) else type(entity)
    return _frame_layout(of or held_as, held_as, header)


def encode_request(correlation_id: int, client_id: str | None, request: Entity, of: EntityType = None) -> bytes:
    """A request frame, as clients send it. `of`: kio's class of the request, if it is held as another object."""
    entity_type = of or request
    start = _START.pack(entity_type.__api_key__, entity_type.__version__, correlation_id)
    return start + _layout_for(request, _REQUEST_HEADER, of).write(({"client_id": client_id}, request))


def encode_response(correlation_id: int, response: Entity, of: EntityType = None) -> bytes:
    """A response frame, header and body; `of` as for requests. struct.error for a number out of bounds."""
    return _layout_for(response, _RESPONSE_HEADER, of).write(({"correlation_id": correlation_id}, response))


def encoded(response: Entity, of: EntityType = None) -> EncodedResponse:
    """The bytes of a response; `of` as for `encode_response`."""
    return EncodedResponse(encode_response(0, response, of)[_INT32.size :])


def encode_answer(correlation_id: int, response: Entity, of: EntityType = None) -> Answer:
    """As `encode_response`; record batches beyond `JOINED_BYTES_MAX` are not copied, but are pieces of the answer."""
    if isinstance(response, EncodedResponse):
        return _INT32.pack(correlation_id) + response.body
    return joined(_layout_for(response, _RESPONSE_HEADER, of).pieces(({"correlation_id": correlation_id}, response)))


def joined(pieces: Sequence[bytes | memoryview]) -> Answer:
    """The same bytes in fewer pieces: neighbours are one while they have at most `JOINED_BYTES_MAX` bytes together.

    >>> [len(piece) for piece in joined([b"a", b"b", bytes(JOINED_BYTES_MAX), b"c", b"d"])]
    [2, 65536, 2]
    >>> joined([b"a", b"b"])
    b'ab'
    """
    found: list[bytes | memoryview] = []
    small: list[bytes | memoryview] = []
    small_bytes = 0
    for piece in pieces:
        size_bytes = len(piece)
        if small and small_bytes + size_bytes > JOINED_BYTES_MAX:
            found.append(small[0] if len(small) == 1 else b"".join(small))
            small, small_bytes = [], 0
        small.append(piece)
        small_bytes += size_bytes
    last = b"".join(small)
    return [*found, last] if found else last


def whole(answer: Answer) -> bytes:
    """The answer in one piece."""
    return answer if isinstance(answer, bytes) else b"".join(answer)


def served_versions(api_key: int, newest: int | None = None) -> range:
    """The versions of an API that kio knows, up to `newest`: they have no gaps."""
    versions = sorted(v for v in known_versions(api_key) if newest is None or v <= newest)
    return range(versions[0], versions[-1] + 1)
