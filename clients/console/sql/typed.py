"""Typed tables and their dead letters in SQL, for those who may READ their topic.

I/O: notes, Delta tables by deltalake, which takes credentials of object stores from the environment.

A table has the name that Spark has for it, delta.`LOCATION`, and typed.NAME by the last part of its location, if no
other table that the asker sees ends alike. Columns are those of the newest version.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa

from stratalog.clients.console.asker import Asker
from stratalog.clients.console.sql.bounds import TableScan
from stratalog.clients.console.typed.delta import DeltaFolder, place_of
from stratalog.clients.console.typed.known import typed_tables_of
from stratalog.storage.errors import LogDirNotFoundError

DELTA, TYPED = "delta", "typed"
BOUNDED = ("_partition", "_offset", "partition", "offset")
"""Columns whose conditions are given to the reader, where they are whole numbers."""


@dataclass(frozen=True, slots=True)
class DeltaName:
    """A name of a table in statements: its two parts, and where the table is."""

    parts: tuple[str, str]
    location: str

    @property
    def name(self) -> str:
        """As in plans."""
        return ".".join(self.parts)

    @property
    def written(self) -> str:
        """As in statements.

        >>> DeltaName(("typed", "orders"), "/lake/orders").written, DeltaName(("delta", "/a b"), "/a b").written
        ('typed.orders', 'delta.`/a b`')
        """
        first, second = self.parts
        return f"{first}.{second if second.isidentifier() else f'`{second}`'}"

    def is_in(self, sql: str) -> bool:
        """Whether a statement may name it."""
        return all(part in sql for part in self.parts)


def delta_names(locations: list[str]) -> list[DeltaName]:
    """The names of tables, the short ones first.

    >>> [each.name for each in delta_names(["s3://lake/orders"])]
    ['typed.orders', 'delta.s3://lake/orders', 'delta.s3a://lake/orders']
    """
    ends = Counter(each.rpartition("/")[2] for each in locations)
    short = [DeltaName((TYPED, end), each) for each in locations if ends[end := each.rpartition("/")[2]] == 1]
    full = [DeltaName((DELTA, each), each) for each in locations]
    in_hadoop = [DeltaName((DELTA, f"s3a{each[2:]}"), each) for each in locations if each.startswith("s3://")]
    return [*short, *full, *in_hadoop]


class DeltaSources:
    """The typed tables of one asker, and their dead letters, as of now."""

    def __init__(self, asker: Asker) -> None:
        self._stores = asker.cluster.view.stores
        notes = typed_tables_of(asker)
        places = [place for each in notes for place in (each.location, place_of(each.dead_letters)) if place]
        self.names: Mapping[str, DeltaName] = {each.name: each for each in delta_names(list(dict.fromkeys(places)))}
        self._opened: dict[str, DeltaFolder] = {}

    def _folder(self, name: str) -> DeltaFolder:
        location = self.names[name].location
        if location not in self._opened:
            self._opened[location] = DeltaFolder.opened(location, self._stores)
        return self._opened[location]

    def schema(self, name: str) -> pa.Schema | None:
        """The columns of a table; None when it is not there, as one without a dead letter. StoreUnavailableError."""
        try:
            return pa.schema(self._folder(name).table.schema())
        except LogDirNotFoundError:
            return None

    def batches(self, name: str, scan: TableScan) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        """The rows that a statement needs, with the columns of the scan."""
        whole = self.schema(name)
        assert whole is not None
        schema = pa.schema([whole.field(column) for column in scan.columns])
        return schema, self._rows(name, scan, whole, schema)

    def _rows(self, name: str, scan: TableScan, whole: pa.Schema, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        for batch in self._folder(name).batches(statement_of(scan, whole)):
            if schema.names:
                yield pa.RecordBatch.from_arrays(
                    [batch.column(field.name).cast(field.type) for field in schema], schema=schema
                )
            else:
                yield batch.select([])


def statement_of(scan: TableScan, schema: pa.Schema) -> str:
    """What is read of the table `t`: columns, conditions on whole numbers, the number of rows.

    >>> schema = pa.schema({"_offset": pa.int64(), "offset": pa.string()})
    >>> statement_of(TableScan(("_offset",), {"_offset": 3, "offset": 1}, {"_offset": 9}, 5), schema)
    'SELECT "_offset" FROM t WHERE "_offset" >= 3 AND "_offset" < 9 LIMIT 5'
    """
    columns = ", ".join(_quoted(each) for each in scan.columns or schema.names[:1])
    known = [each for each in BOUNDED if each in schema.names and pa.types.is_integer(schema.field(each).type)]
    conditions = [f"{_quoted(each)} >= {scan.start[each]}" for each in known if each in scan.start]
    conditions += [f"{_quoted(each)} < {scan.end[each]}" for each in known if each in scan.end]
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    limit = "" if scan.limit is None else f" LIMIT {scan.limit}"
    return f"SELECT {columns} FROM t{where}{limit}"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
