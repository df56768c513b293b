"""A Delta table by its folder: properties, columns, rows, files. I/O: the folder, by deltalake and as objects.

For object stores deltalake takes credentials from the environment.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from stratalog.clients.typed_tables.layout import CHECKPOINT_FOLDER, LOG_FILE
from stratalog.replication.stores import Stores
from stratalog.storage.errors import InvalidRequestError, LogDirNotFoundError, StoreUnavailableError
from stratalog.storage.extras import explained

if TYPE_CHECKING:
    from deltalake import DeltaTable

_HIDDEN = ("_", ".")
NAME = "t"
"""The name of the table in statements."""


def place_of(url: str) -> str:
    """A path or URL as both readers know it.

    >>> place_of("file:/lake/orders"), place_of("file:///lake/orders/"), place_of("s3a://lake/orders")
    ('/lake/orders', '/lake/orders', 's3://lake/orders')
    """
    local = re.sub(r"^file:/+", "/", url)
    return re.sub(r"^s3a?://", "s3://", local).rstrip("/")


@dataclass(frozen=True, slots=True)
class DeltaFolder:
    """One table, at its newest version when it was opened."""

    place: str
    table: DeltaTable
    stores: Stores

    @classmethod
    def opened(cls, url: str, stores: Stores) -> DeltaFolder:
        """LogDirNotFoundError when there is no table, StoreUnavailableError when it is not readable,
        InvalidRequestError without the package deltalake."""
        try:
            from deltalake import DeltaTable
            from deltalake.exceptions import DeltaError, TableNotFoundError
        except ImportError as lacking:
            raise InvalidRequestError(str(explained("a typed table in the console", lacking))) from lacking
        place = place_of(url)
        try:
            return cls(place, DeltaTable(place), stores)
        except TableNotFoundError as reason:
            raise LogDirNotFoundError(f"there is no Delta table at {place}") from reason
        except (DeltaError, OSError, ValueError) as reason:
            raise StoreUnavailableError(f"the Delta table at {place} cannot be read: {reason}") from reason

    def properties(self) -> dict[str, str]:
        """Table properties."""
        return {name: str(value) for name, value in self.table.metadata().configuration.items()}

    def columns(self) -> list[tuple[str, str]]:
        """Name and Delta's type of each column."""
        found = []
        for each in self.table.schema().fields:
            kind = each.type
            found.append((each.name, str(getattr(kind, "type", "")) if _is_plain(kind) else kind.to_json()))
        return found

    def row_count(self) -> int:
        """Rows by the files' statistics; -1 where one has none, or rows are only marked as deleted."""
        if self.properties().get("delta.enableDeletionVectors") == "true":
            return -1
        counts = pa.table(self.table.get_add_actions(flatten=True))
        if not counts.num_rows:
            return 0
        found = counts["num_records"]
        return -1 if found.null_count else int(sum(found.to_pylist()))

    def last_commit(self) -> tuple[int, str]:
        """Time and operation of the newest commit; -1 where the log does not say any more."""
        newest = next(iter(self.table.history(1)), {})
        return int(newest.get("timestamp", -1)), str(newest.get("operation", ""))

    def batches(self, sql: str) -> Iterator[pa.RecordBatch]:
        """The rows of a statement over the table `t`. StoreUnavailableError."""
        from deltalake import QueryBuilder
        from deltalake.exceptions import DeltaError

        try:
            reader = QueryBuilder().register(NAME, self.table).execute(sql)
            yield from pa.RecordBatchReader.from_stream(reader)
        except (DeltaError, OSError, ValueError, pa.ArrowException) as reason:
            raise StoreUnavailableError(f"the Delta table at {self.place} cannot be read: {reason}") from reason

    def left_files(self, before_ms: int) -> tuple[int, int]:
        """How many data files that are not of this version, and how many files of Delta's log, are on storage and were
        written before a time."""
        live = {each.rsplit("/", 1)[-1] for each in self.table.file_uris()}
        data = log = 0
        for each in self.stores.objects(self.place).list(""):
            if each.last_modified_ms >= before_ms:
                continue
            folder, _, name = each.path.rpartition("/")
            if folder == "_delta_log":
                log += LOG_FILE.fullmatch(name) is not None
            elif name.endswith(".parquet") and not any(part.startswith(_HIDDEN) for part in each.path.split("/")):
                data += name not in live
        return data, log


def _is_plain(kind: object) -> bool:
    return (
        isinstance(getattr(kind, "type", None), str)
        and not hasattr(kind, "fields")
        and not any(hasattr(kind, name) for name in ("element_type", "key_type"))
    )


def text_literal(text: str) -> str:
    """A text in a statement.

    >>> text_literal("it's")
    "'it''s'"
    """
    return "'" + text.replace("'", "''") + "'"


def default_checkpoint(place: str) -> str:
    """Where the checkpoint of a table's query is, unless its settings say otherwise."""
    return f"{place}/{CHECKPOINT_FOLDER}"
