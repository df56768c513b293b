"""Notes of typed tables beside the cluster's metadata: who knows the cluster finds its tables. I/O: the metadata root.

A table's query leaves one, `typed-tables/<digest of the location>.json`, when it starts, and again when it has changed.
Nothing of the log depends on notes: one that is lost comes again with the next start.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields

from stratalog.clients.typed_tables.config import is_path
from stratalog.storage.errors import StratalogError
from stratalog.storage.log_lines import line_logger
from stratalog.storage.objects.port import ObjectStore

_LOG = line_logger("stratalog.typed_tables")
FOLDER = "typed-tables/"
NOTE_BYTES_MAX = 256 << 10


@dataclass(frozen=True, slots=True)
class TypedTableNote:
    """Where a typed table is, and how its query reads the topic.

    location      URL of its folder
    table         as its user names it
    dead_letters  URL of the folder of its dead letters; empty where that is not known yet
    checkpoint    URL of the query's checkpoint
    config        settings of `TypedTableConfig` that were given
    registry      `url` or `topic` of the schemas; empty without
    """

    location: str
    table: str
    dead_letters: str
    checkpoint: str
    topic: str
    topic_id: str
    mode: str
    config: Mapping[str, str] = field(default_factory=dict)
    registry: Mapping[str, str] = field(default_factory=dict)

    def table_name(self) -> str:
        """What opens the table from any working directory: its name in a catalog, else its location."""
        return self.location if is_path(self.table) else self.table

    def data(self) -> bytes:
        """The note as JSON."""
        return json.dumps(asdict(self), sort_keys=True, indent=1).encode()

    @classmethod
    def of(cls, data: bytes) -> TypedTableNote | None:
        """The note of JSON; None for anything else.

        >>> TypedTableNote.of(b"[]") is None
        True
        """
        try:
            found = json.loads(data) if len(data) <= NOTE_BYTES_MAX else None
        except ValueError:
            return None
        texts = [each.name for each in fields(cls)][:-2]
        if not isinstance(found, dict) or not all(isinstance(found.get(name), str) for name in texts):
            return None
        config, registry = _texts(found.get("config")), _texts(found.get("registry"))
        return cls(**{name: found[name] for name in texts}, config=config, registry=registry)


def _texts(found: object) -> dict[str, str]:
    return {str(name): str(value) for name, value in found.items()} if isinstance(found, dict) else {}


def note_path(location: str) -> str:
    """Where the note of a table is, below the metadata root."""
    return f"{FOLDER}{hashlib.sha256(location.encode()).hexdigest()[:32]}.json"


def leave_note(objects: ObjectStore, note: TypedTableNote) -> None:
    """Write the note unless it is there. Who cannot write the metadata root goes on without one."""
    path, data = note_path(note.location), note.data()
    try:
        if objects.get_optional(path) != data:
            objects.put(path, data)
    except StratalogError as reason:
        _LOG.warning("no note of %s is left beside the cluster's metadata: %s", note.table, reason)


def notes_of(objects: ObjectStore) -> list[TypedTableNote]:
    """The notes of a cluster, by topic and location."""
    found = [TypedTableNote.of(objects.get_optional(each.path) or b"") for each in objects.list(FOLDER)]
    return sorted((each for each in found if each is not None), key=lambda each: (each.topic, each.location))


def remove_note(objects: ObjectStore, location: str) -> None:
    """Forget a table. It is known again when its query starts."""
    objects.delete(note_path(location))
