"""Requests and responses as bytes: a frame's header and body, without the length before it. Pure.

A frame is what stands between two lengths on a connection. What cannot be read is InvalidRequestError: the connection
is to be closed, as Kafka does. The one exception is ApiVersions of an unknown version, which is answered in version 0
with UNSUPPORTED_VERSION, so that a newer client can try again (KIP-511).
Source: Kafka's `RequestContext.parseRequest`, `RequestHeader`, `ApiVersionsRequest`.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from struct import Struct
from typing import Any

from kio.serial import entity_reader, entity_writer
from kio.serial.errors import SerialError

from stratalog.clients.kafka.protocol.frame_check import checked
from stratalog.clients.kafka.protocol.frame_writer import written
from stratalog.clients.kafka.protocol.schema import Entity, EntityType, known_versions, request_type, response_type
from stratalog.storage.errors import InvalidRequestError, UnsupportedVersionError

API_VERSIONS = 18
_START = Struct(">hhi")


@dataclass(frozen=True, slots=True)
class RequestFrame:
    """A decoded request. `entity` is None only for ApiVersions of a version that is not known."""

    api_key: int
    version: int
    correlation_id: int
    client_id: str | None
    entity: Entity | None


def decode_request(frame: bytes, served: dict[int, range]) -> RequestFrame:
    """A request frame, header and body.

    served   the versions that are answered, by API key
    Raises InvalidRequestError for bytes that are no request, UnsupportedVersionError for one that is not served: in
    both cases nothing can be answered.
    """
    if len(frame) < _START.size:
        raise InvalidRequestError(f"a request begins with {_START.size} bytes of header, the frame has {len(frame)}")
    api_key, version, correlation_id = _START.unpack_from(frame)
    if version not in served.get(api_key, ()):
        if api_key == API_VERSIONS:
            return RequestFrame(api_key, version, correlation_id, None, None)
        versions = served.get(api_key)
        known = "is not served" if versions is None else f"is served in versions {versions[0]} to {versions[-1]}"
        raise UnsupportedVersionError(f"API {api_key} version {version}: it {known}")
    body_type = request_type(api_key, version)
    header_type = body_type.__header_schema__
    frame = checked(header_type, body_type, frame)
    header, at = _read(header_type, frame, 0)
    entity, _ = _read(body_type, frame, at)
    return RequestFrame(api_key, version, correlation_id, header.client_id, entity)


def _read(entity_type: EntityType, frame: bytes, start: int) -> tuple[Any, int]:
    try:
        entity, size_bytes = entity_reader(entity_type)(frame, start)
    except (SerialError, ValueError, OverflowError) as reason:
        raise InvalidRequestError(f"not a {entity_type.__name__}: {reason}") from reason
    return entity, start + size_bytes


def encode_response(correlation_id: int, response: Entity) -> bytes:
    """A response frame, header and body."""
    header_type = response.__header_schema__
    return written(header_type(correlation_id=correlation_id)) + written(response)


def encode_request(correlation_id: int, client_id: str | None, request: Entity) -> bytes:
    """A request frame, as clients send it."""
    header_type = request.__header_schema__
    header = header_type(
        request_api_key=request.__api_key__,
        request_api_version=request.__version__,
        correlation_id=correlation_id,
        client_id=client_id,
    )
    with io.BytesIO() as buffer:
        entity_writer(header_type)(buffer, header)
        entity_writer(type(request))(buffer, request)
        return buffer.getvalue()


def decode_response(frame: bytes, api_key: int, version: int) -> tuple[int, Entity]:
    """(correlation id, response) of a response frame, as clients read it."""
    entity_type = response_type(api_key, version)
    header, at = _read(entity_type.__header_schema__, frame, 0)
    return header.correlation_id, _read(entity_type, frame, at)[0]


def served_versions(api_key: int, newest: int | None = None) -> range:
    """The versions of an API that kio knows, up to `newest`: they have no gaps."""
    versions = sorted(v for v in known_versions(api_key) if newest is None or v <= newest)
    return range(versions[0], versions[-1] + 1)
