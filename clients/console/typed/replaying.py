"""A replay of dead letters in a process of its own, with Spark, which ends with it. I/O: the process.

The settings are those that the table's query has left in its note; `TypedTable.replay` does the work, exactly once, so
that a replay that is ended early may be begun again.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict, replace
from threading import Lock
from typing import Any

from stratalog.clients.console.beside import Beside
from stratalog.clients.schemas.rest_client import REGISTRY_CONFIGS, SchemaRegistryClient
from stratalog.clients.typed_tables.config import is_path
from stratalog.clients.typed_tables.notes import TypedTableNote
from stratalog.storage.errors import InvalidRequestError, RequestTimedOutError, UnknownServerError

REPLAY_S = 900
"""Time after which a replay is ended."""
_SHOWN = 600
_AT_WORK = Lock()


def registry_configs(note: TypedTableNote, beside: Beside) -> dict[str, Any]:
    """How the replay reaches the registry: the note has its address, the console the rest if it is the same server."""
    url = note.registry.get("url", "")
    client = beside.registry
    if not url or client is None or url != ",".join(client.config.url):
        return {"url": url} if url else {}
    named = ((key.name, getattr(client.config, key.field_name)) for key in REGISTRY_CONFIGS)
    return {name: list(value) if isinstance(value, tuple) else value for name, value in named if value not in ("", ())}


def from_anywhere(note: TypedTableNote) -> TypedTableNote:
    """The note with the locations of its folders for paths in its settings, which may be relative.

    >>> given = {"checkpoint.location": "c", "dlq.table": "main.dead", "value.format": "json"}
    >>> from_anywhere(TypedTableNote("/t", "t", "/d", "file:/x/c", "orders", "", "append", given)).config
    {'checkpoint.location': 'file:/x/c', 'dlq.table': 'main.dead', 'value.format': 'json'}
    """
    config = dict(note.config)
    if "checkpoint.location" in config:
        config["checkpoint.location"] = note.checkpoint
    if is_path(config.get("dlq.table", "")):
        config["dlq.table"] = note.dead_letters
    return replace(note, config=config)


def replayed(root: str, note: TypedTableNote, beside: Beside) -> tuple[int, int, int]:
    """Replay the dead letters of a table: how many were read, left for the table, and are there afterwards.

    InvalidRequestError while another replay runs, RequestTimedOutError, UnknownServerError with what the process said.
    """
    asked = {"root": root, "note": asdict(from_anywhere(note)), "registry": registry_configs(note, beside)}
    if not _AT_WORK.acquire(blocking=False):
        raise InvalidRequestError("another replay runs: wait until it is done")
    try:
        done = subprocess.run(
            [sys.executable, "-m", __name__],
            input=json.dumps(asked),
            capture_output=True,
            text=True,
            timeout=REPLAY_S,
            check=False,
        )
    except subprocess.TimeoutExpired as reason:
        raise RequestTimedOutError(f"the replay was ended after {REPLAY_S} s; begin it again") from reason
    finally:
        _AT_WORK.release()
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        raise UnknownServerError(f"the replay failed: {(done.stderr.strip() or 'it ended')[-_SHOWN:]}")
    read, replayed_count, left = json.loads(lines[-1])
    return int(read), int(replayed_count), int(left)


def main() -> None:
    """What the process does: a request on standard input, the three numbers on standard output."""
    from stratalog.clients.schemas.schema_folder import SchemaFolder
    from stratalog.clients.typed_tables.typed_table import TypedTable
    from stratalog.replication.spark.session import stratalog_session

    asked = json.loads(sys.stdin.read())
    note, root = TypedTableNote(**asked["note"]), asked["root"]
    registry: SchemaFolder | SchemaRegistryClient | None = None
    if asked["registry"]:
        registry = SchemaRegistryClient(asked["registry"])
    elif "topic" in note.registry:
        registry = SchemaFolder(root, note.registry["topic"])
    spark = stratalog_session("strata console, a replay")
    try:
        table = TypedTable(spark, root, note.topic, note.table_name(), dict(note.config), registry)
        sys.stdout.write(f"{json.dumps(list(table.replay()))}\n")
        sys.stdout.flush()
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
