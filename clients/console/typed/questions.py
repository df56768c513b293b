"""Typed tables and their dead letters. I/O: as `known` and `delta`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from stratalog.clients.console.asker import Asker
from stratalog.clients.console.question import Parameter, Question
from stratalog.clients.console.schemas.decoded import PartDecoder, ReadPart
from stratalog.clients.console.shown_text import ShownBytes, shown, visible
from stratalog.clients.console.typed.delta import DeltaFolder, text_literal
from stratalog.clients.console.typed.known import progress_of, typed_table_of, typed_tables_of
from stratalog.clients.typed_tables.layout import NO_BATCH
from stratalog.clients.typed_tables.notes import TypedTableNote
from stratalog.storage.errors import InvalidRequestError, LogDirNotFoundError, StratalogError
from stratalog.storage.records import TopicPartition

LIMIT, LIMIT_MAX = 50, 200
REASONS_MAX = 50
LETTERS_MAX = 1_000_000
"""Number of dead letters up to which they are counted by reason, and listed."""
UNKNOWN = -1


@dataclass(frozen=True, slots=True)
class TypedRow:
    """A typed table. What is not known is -1.

    table      the location of its folder
    lag        records of the topic behind the newest batch that is done
    problem    why it cannot be read
    is_stale   the topic was deleted, or created again since
    """

    table: str
    name: str
    topic: str
    mode: str
    version: int
    rows: int
    dead_letters: int
    lag: int
    last_commit_ms: int
    is_stale: bool
    problem: str = ""


@dataclass(frozen=True, slots=True)
class TypedTables:
    """The typed tables that the user may see."""

    tables: list[TypedRow]
    read_ms: int


@dataclass(frozen=True, slots=True)
class TypedPosition:
    """How far a table is in a partition; -1: not known."""

    partition: int
    position: int
    end_offset: int
    lag: int


@dataclass(frozen=True, slots=True)
class TypedColumn:
    """A column of a table, with Delta's type."""

    name: str
    type: str


@dataclass(frozen=True, slots=True)
class LetterReason:
    """How many dead letters have a reason."""

    reason: str
    count: int


@dataclass(frozen=True, slots=True)
class TypedSetting:
    """A setting of the query."""

    name: str
    value: str


@dataclass(frozen=True, slots=True)
class TypedDetail:
    """One typed table.

    query_id       of the query that writes it; empty: it never ran
    is_unfinished  a batch was begun and is not done: the query works on it, or has failed
    settings       those of its query, as far as the table has left a note
    dead_letters_table  the location of its dead letters
    """

    row: TypedRow
    query_id: str
    done_batch: int
    is_unfinished: bool
    last_operation: str
    positions: list[TypedPosition]
    columns: list[TypedColumn]
    reasons: list[LetterReason]
    dead_letters_table: str
    settings: list[TypedSetting]
    read_ms: int


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A record that does not fit its table.

    failed_ms   when it was put aside
    value_read  what its schema makes of the value; null where it names none
    """

    partition: int
    offset: int
    timestamp_ms: int
    failed_ms: int
    reason: str
    key: ShownBytes
    value: ShownBytes
    key_read: ReadPart | None
    value_read: ReadPart | None


@dataclass(frozen=True, slots=True)
class DeadLetters:
    """A part of the dead letters of a table, by partition and offset."""

    table: str
    topic: str
    reasons: list[LetterReason]
    letters: list[DeadLetter]
    first: int
    count: int
    read_ms: int


def typed_tables(asker: Asker, topic: str) -> TypedTables:
    """The typed tables of one topic, or of all that the user may read."""
    if topic:
        asker.check_topic(topic)
    notes = typed_tables_of(asker, topic)
    return TypedTables([_row(asker, each) for each in notes], asker.now_ms)


def typed_table(asker: Asker, table: str) -> TypedDetail:
    """One typed table."""
    note = typed_table_of(asker, table)
    row = _row(asker, note)
    stores = asker.cluster.view.stores
    columns: list[TypedColumn] = []
    operation = ""
    try:
        folder = DeltaFolder.opened(note.location, stores)
        columns = [TypedColumn(visible(name), visible(kind)) for name, kind in folder.columns()]
        operation = folder.last_commit()[1]
    except StratalogError:  # `row` says so
        pass
    progress = progress_of(note, stores)
    letters = _letters(asker, note)
    reasons = [] if letters is None else reasons_of(letters)
    settings = {**note.config, **{f"registry.{name}": value for name, value in note.registry.items()}}
    return TypedDetail(
        row,
        progress.query_id,
        progress.done_batch,
        progress.planned_batch > progress.done_batch,
        visible(operation),
        _positions(asker, note, progress.positions, has_run=progress.done_batch > NO_BATCH),
        columns,
        reasons,
        visible(note.dead_letters),
        [TypedSetting(visible(name), visible(value)) for name, value in sorted(settings.items())],
        asker.now_ms,
    )


def _row(asker: Asker, note: TypedTableNote) -> TypedRow:
    view = asker.cluster.view
    topic_id = view.image.topic_ids.get(note.topic, "")
    is_stale = note.topic not in view.topics() or (bool(note.topic_id and topic_id) and note.topic_id != topic_id)
    names = note.location, visible(note.table), visible(note.topic), note.mode
    try:
        folder = DeltaFolder.opened(note.location, view.stores)
        letters = _letters(asker, note)
        progress = progress_of(note, view.stores)
        lags = [] if is_stale else [
            each.lag for each in _positions(asker, note, progress.positions, has_run=progress.done_batch > NO_BATCH)
        ]  # fmt: skip
        lag = sum(lags) if lags and UNKNOWN not in lags else UNKNOWN
        letter_count = 0 if letters is None else letters.row_count()
        version, committed_ms = folder.table.version(), folder.last_commit()[0]
        return TypedRow(*names, version, folder.row_count(), letter_count, lag, committed_ms, is_stale)
    except StratalogError as reason:
        problem = visible(f"{reason.name}: {reason}")
        return TypedRow(*names, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, is_stale, problem)


def _positions(
    asker: Asker, note: TypedTableNote, positions: Mapping[int, int], *, has_run: bool
) -> list[TypedPosition]:
    view = asker.cluster.view
    places = [TopicPartition(note.topic, each) for each in range(len(view.image.partitions_of(note.topic)))]
    found = []
    for named, mark in view.watermarks.published_now(places).items():
        start, end = (UNKNOWN, UNKNOWN) if mark is None else (mark.log_start_offset, mark.high_watermark)
        position = positions.get(named.partition, start) if has_run else start
        lag = end - position if end >= 0 and position >= 0 else UNKNOWN
        found.append(TypedPosition(named.partition, position, end, max(lag, UNKNOWN)))
    return found


def _letters(asker: Asker, note: TypedTableNote) -> DeltaFolder | None:
    """The table of dead letters; None when there is none yet."""
    try:
        return DeltaFolder.opened(note.dead_letters, asker.cluster.view.stores) if note.dead_letters else None
    except LogDirNotFoundError:
        return None


def reasons_of(letters: DeltaFolder) -> list[LetterReason]:
    """Reasons with the number of their dead letters, the most frequent first; none of a table that is too large."""
    if letters.row_count() > LETTERS_MAX:
        return []
    sql = f"SELECT error, count(*) AS n FROM t GROUP BY error ORDER BY n DESC, error LIMIT {REASONS_MAX}"
    rows = [row for batch in letters.batches(sql) for row in batch.to_pylist()]
    return [LetterReason(visible(str(row["error"])[:1_000]), int(row["n"])) for row in rows]


def dead_letters(asker: Asker, table: str, reason: str, first: int, limit: int) -> DeadLetters:
    """Dead letters, record by record."""
    note = typed_table_of(asker, table)
    letters = _letters(asker, note)
    if letters is None:
        return DeadLetters(note.location, visible(note.topic), [], [], 0, 0, asker.now_ms)
    if letters.row_count() > LETTERS_MAX:
        raise InvalidRequestError(f"{letters.place} has more than {LETTERS_MAX} dead letters: read it by Spark")
    where = f"WHERE strpos(error, {text_literal(reason)}) > 0" if reason else ""
    counted = [row for batch in letters.batches(f"SELECT count(*) AS n FROM t {where}") for row in batch.to_pylist()]
    first, limit = max(0, first), max(1, min(limit, LIMIT_MAX))
    columns = '"partition", "offset", "timestamp", "key", "value", "headers", "error", "failed_at"'
    ordered = f'ORDER BY "partition", "offset" LIMIT {limit} OFFSET {first}'
    rows = [row for b in letters.batches(f"SELECT {columns} FROM t {where} {ordered}") for row in b.to_pylist()]
    decoder = PartDecoder(asker)
    found = [_letter(note.topic, row, decoder) for row in rows]
    return DeadLetters(
        note.location, visible(note.topic), reasons_of(letters), found, first, int(counted[0]["n"]), asker.now_ms
    )


def _letter(topic: str, row: Mapping[str, object], decoder: PartDecoder) -> DeadLetter:
    key, value, headers = row["key"], row["value"], row["headers"] or []
    assert key is None or isinstance(key, bytes)
    assert value is None or isinstance(value, bytes)
    assert isinstance(headers, list)
    named = [(str(each["key"]), each["value"]) for each in headers]
    return DeadLetter(
        int(str(row["partition"])),
        int(str(row["offset"])),
        _ms(row["timestamp"]),
        _ms(row["failed_at"]),
        visible(str(row["error"])[:2_000]),
        shown(key),
        shown(value),
        decoder.part(topic, key, named, is_key=True),
        decoder.part(topic, value, named, is_key=False),
    )


def _ms(time: object) -> int:
    stamp = getattr(time, "timestamp", None)
    return UNKNOWN if stamp is None else round(stamp() * 1_000)


_TABLE = Parameter(str, "the table's location, as typed_tables has it")
QUESTIONS = (
    Question(
        "typed_tables",
        "Typed Delta tables of topics: rows, dead letters, lag against the topic, last commit.",
        typed_tables,
        {"topic": Parameter(str, "the topic; empty: all", "")},
    ),
    Question(
        "typed_table",
        "One typed table: position and lag in each partition, columns, reasons of dead letters, settings.",
        typed_table,
        {"table": _TABLE},
    ),
    Question(
        "dead_letters",
        "Records that do not fit a typed table, with the reason of each.",
        dead_letters,
        {
            "table": _TABLE,
            "reason": Parameter(str, "a part of the reason", ""),
            "first": Parameter(int, "the number of the first one to show", 0),
            "limit": Parameter(int, f"how many to show, at most {LIMIT_MAX}", LIMIT),
        },
    ),
)
