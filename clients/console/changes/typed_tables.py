"""Dead letters are put back into their typed table; a table that is gone is forgotten. I/O: the table, a replay."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlencode

from stratalog.clients.console.asker import Asker
from stratalog.clients.console.changes.change import ClusterChange, Preview, PreviewLine
from stratalog.clients.console.question import Parameter
from stratalog.clients.console.typed.delta import place_of
from stratalog.clients.console.typed.known import typed_table_of
from stratalog.clients.console.typed.questions import typed_table
from stratalog.clients.console.typed.replaying import replayed
from stratalog.clients.typed_tables.notes import TypedTableNote, notes_of, remove_note
from stratalog.replication.metadata.acls import Operation
from stratalog.storage.errors import InvalidRequestError, StorageNotKnownError

LINES = 20


def _changed(asker: Asker, table: str) -> tuple[str, TypedTableNote]:
    """The metadata root and the note. The user needs to READ and ALTER the topic, and the table needs a note."""
    note = typed_table_of(asker, table)
    asker.check_topic(note.topic, Operation.ALTER)
    root = asker.cluster.root
    if root is None:
        raise StorageNotKnownError("a typed table is written by who reads storage: start the console with --root")
    known = notes_of(asker.cluster.view.stores.objects(root))
    found = next((each for each in known if place_of(each.location) == note.location), None)
    if found is None:
        raise InvalidRequestError(
            f"the query of {note.location} has left no note with its settings: use strata typed-table --replay"
        )
    return root, found


def preview_replay(asker: Asker, table: str) -> Preview:
    _changed(asker, table)
    found = typed_table(asker, table)
    waiting = found.row.dead_letters
    if not waiting:
        raise InvalidRequestError("there is no dead letter")
    lines = [PreviewLine("rows of the table", str(found.row.rows), "more by those that fit now")]
    lines += [PreviewLine(f"dead letters: {each.reason}", str(each.count), "those that still do not fit")
              for each in found.reasons[:LINES]]  # fmt: skip
    what = (
        f"All {waiting} dead letters are read again by the schemas and settings of now. Which of them fit is known "
        "only then, and the table may get columns. Those that do not fit stay. Each ends in one table, once."
    )
    warnings = [what, "It runs Spark for a minute or more, and this page waits for it."]
    return Preview(lines, warnings, max(0, len(found.reasons) - LINES))


def replay(asker: Asker, table: str) -> str:
    root, note = _changed(asker, table)
    read, replayed_count, left = replayed(root, note, asker.beside)
    return f"{read} dead letters were read: {replayed_count} went to the table, {left} are left."


def preview_forget(asker: Asker, table: str) -> Preview:
    _, note = _changed(asker, table)
    warning = "The table is not touched, and is known again when its query starts. Erasures are not proved in it."
    return Preview([PreviewLine(f"note of {note.location}", f"topic {note.topic}", "")], [warning])


def forget(asker: Asker, table: str) -> str:
    root, note = _changed(asker, table)
    remove_note(asker.cluster.view.stores.objects(root), note.location)
    return f"The console does not know {note.location} any more."


def _page(values: Mapping[str, object]) -> str:
    return "/typed_table?" + urlencode({"table": str(values["table"])})


_TABLE = {"table": Parameter(str, "the table's location")}
CHANGES = (
    ClusterChange(
        "replay_dead_letters",
        "Replay dead letters",
        "Reads the dead letters of a typed table again: those that fit now become rows.",
        _TABLE,
        preview_replay,
        replay,
        _page,
    ),
    ClusterChange(
        "forget_typed_table",
        "Forget a typed table",
        "Removes the note that a typed table has left beside the cluster's metadata.",
        _TABLE,
        preview_forget,
        forget,
        lambda _: "/typed_tables",
    ),
)
