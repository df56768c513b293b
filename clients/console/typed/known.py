"""The typed tables that the console knows, as far as a user may see them. I/O: notes, tables, checkpoints.

A table's query leaves a note beside the cluster's metadata (`clients.typed_tables.notes`); others are named when the
console starts. Only such tables are read, whatever a user asks for. Who may READ its topic sees a table.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

from stratalog.clients.console.asker import WAIT_MS, Asker
from stratalog.clients.console.typed.delta import DeltaFolder, default_checkpoint, place_of
from stratalog.clients.typed_tables.layout import (
    MODE,
    NO_BATCH,
    TOPIC,
    TOPIC_ID,
    QueryProgress,
    parse_offsets,
)
from stratalog.clients.typed_tables.notes import TypedTableNote, notes_of
from stratalog.replication.metadata.acls import Operation, ResourceType
from stratalog.replication.stores import Stores
from stratalog.server.view.cluster_view import ClusterView
from stratalog.storage.errors import InvalidRequestError, LogDirNotFoundError, StratalogError
from stratalog.storage.records import TopicPartition

DEAD_LETTERS_SUFFIX = "__dlq"


def typed_tables_of(asker: Asker, topic: str = "") -> list[TypedTableNote]:
    """The tables whose topics the user may read, by topic and location; of one topic if it is named.

    What cannot be read of tables that were named at the start is left out: nothing says whose they are.
    """
    view = asker.cluster.view
    view.refresh(max_age_ms=1)
    found = {place_of(each.location): each for each in _noted(asker)}
    for url in asker.beside.typed_tables:
        if place_of(url) not in found:
            found |= {place_of(url): each for each in _named(url, view.stores)}
    seen: dict[str, bool] = {}
    tables = []
    for place, note in sorted(found.items(), key=lambda item: (item[1].topic, item[0])):
        if topic and note.topic != topic:
            continue
        if note.topic not in seen:
            seen[note.topic] = may_read(asker, note.topic)
        if seen[note.topic]:
            tables.append(replace(note, location=place))
    return tables


def typed_table_of(asker: Asker, table: str) -> TypedTableNote:
    """One table that the user sees, by its location. InvalidRequestError for every other text."""
    for each in typed_tables_of(asker):
        if each.location == place_of(table):
            return each
    raise InvalidRequestError(f"no typed table is known at {table}: typed_tables lists those that are")


def _noted(asker: Asker) -> list[TypedTableNote]:
    view = asker.cluster.view
    if not isinstance(view, ClusterView) and asker.cluster.is_served:
        return []
    return notes_of(view.stores.objects(view.root))


def _named(url: str, stores: Stores) -> Iterator[TypedTableNote]:
    """What a table says of itself, if it is a typed one."""
    try:
        folder = DeltaFolder.opened(url, stores)
    except StratalogError:
        return
    told = folder.properties()
    if TOPIC in told:
        place = folder.place
        letters = f"{place}{DEAD_LETTERS_SUFFIX}"
        names = told[TOPIC], told.get(TOPIC_ID, ""), told.get(MODE, "")
        yield TypedTableNote(place, url, letters, default_checkpoint(place), *names)


def may_read(asker: Asker, topic: str) -> bool:
    """Whether the user may read a topic. Where brokers decide, they are asked for a record of it."""
    if asker.authorizer is not None:
        return asker.may(Operation.READ, ResourceType.TOPIC, topic)
    if not asker.cluster.is_served:
        return True
    view = asker.cluster.view
    try:
        if topic not in view.topics():
            return False
        places = [TopicPartition(topic, each) for each in range(len(view.image.partitions_of(topic)))]
        for named, mark in view.watermarks.published_now(places).items():
            if mark is not None and mark.high_watermark > mark.log_start_offset:
                start = mark.log_start_offset
                view.records.fetch(named, start, 1, start + 1, WAIT_MS)
                return True
    except StratalogError:
        return False
    return False


def progress_of(note: TypedTableNote, stores: Stores) -> QueryProgress:
    """How far the table's query is, by its checkpoint; that of a query that never started if there is none."""
    try:
        objects = stores.objects(place_of(note.checkpoint))
        metadata = objects.get_optional("metadata")
    except LogDirNotFoundError:
        return QueryProgress()
    if metadata is None:
        return QueryProgress()
    planned, done = (
        [int(name) for each in objects.list(f"{folder}/") if (name := each.path.rpartition("/")[2]).isdigit()]
        for folder in ("offsets", "commits")
    )
    done_batch = max(done, default=NO_BATCH)
    plan = objects.get_optional(f"offsets/{done_batch}") if done_batch >= 0 else None
    positions = {} if plan is None else parse_offsets(plan.decode(), note.topic)
    return QueryProgress(str(json.loads(metadata)["id"]), max(planned, default=NO_BATCH), done_batch, positions)
