"""Messages of kio's classes from plain values, as a peer decodes them."""

from __future__ import annotations

from stratalog.wire.messages.frames import RequestFrame
from stratalog.wire.messages.layouts import layout_of
from stratalog.wire.messages.schema import Entity, EntityType
from stratalog.wire.messages.values import Values


def build(entity_type: EntityType, values: Values) -> Entity:
    """The message that these values are. TypeError for a field that no version of the API has."""
    return layout_of(entity_type).read(layout_of(entity_type, dict).write(values))[0]


def request_frame(request: Entity, client_id: str | None = None) -> RequestFrame:
    """A request as one that was decoded."""
    return RequestFrame(int(request.__api_key__), int(request.__version__), 0, client_id, request)
