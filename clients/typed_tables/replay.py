"""Dead letters read again: those that fit now go to the table and leave the dead letters, exactly once.

I/O: Spark and Delta Lake. The table is written first. A replay that was killed before it could remove the dead letters
is completed by the next one, which begins with removing what the table has. Only dead letters of batches that are done
are read: a batch that comes again takes those that it has written into account.
"""

from __future__ import annotations

from typing import NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from stratalog.clients.typed_tables.batches import NEWER, TableWriter, newest_of_keys, with_places
from stratalog.clients.typed_tables.config import WriteMode
from stratalog.clients.typed_tables.delta_table import Txn
from stratalog.clients.typed_tables.layout import QueryProgress
from stratalog.clients.typed_tables.rows.reading import ERROR_COLUMN
from stratalog.clients.typed_tables.rows.values import ReadRows

_SAME_PLACE = "s._partition = t._partition AND s._offset = t._offset"
_PLACES = ("_partition", "_offset", "_timestamp", "_key")


class ReplayOutcome(NamedTuple):
    """Dead letters that were read, that fit now and left, and that are there afterwards."""

    read_count: int
    replayed_count: int
    left_count: int


def replay(writer: TableWriter, progress: QueryProgress) -> ReplayOutcome:
    """Read all dead letters of batches that are done again. May run beside the query."""
    letters = writer.dead_letters
    if not letters.exists():
        return ReplayOutcome(0, 0, 0)
    _complete_earlier(writer)
    version = letters.version()
    waiting = letters.frame(version).where(_is_done(progress))
    read = writer.reader.read(waiting, writer.target)
    fitting_count = read.row_count - read.error_count
    try:
        if fitting_count:
            writer.write_rows(read, Txn(f"stratalog.replay.{letters.detail('id')}", version))
            _remove(writer, read)
    finally:
        read.release()
    return ReplayOutcome(read.row_count, fitting_count, letters.frame().count())


def _is_done(progress: QueryProgress) -> str:
    """Batches of this query that are done; those of queries with another checkpoint never come again."""
    return f"query_id <> '{progress.query_id}' OR batch_id <= {progress.done_batch}"


def _complete_earlier(writer: TableWriter) -> None:
    """Remove the dead letters that an earlier replay has brought into the table. Upsert repeats them without effect."""
    if writer.mode == WriteMode.UPSERT:
        return
    span = writer.dead_letters.frame().agg(sf.min("offset"), sf.max("offset")).first()
    if span is None or span[0] is None:
        return
    rows = writer.target.frame().where(sf.col("_offset").between(span[0], span[1])).select("_partition", "_offset")
    writer.remove_letters(rows, _SAME_PLACE)


def _remove(writer: TableWriter, read: ReadRows) -> None:
    fitting: DataFrame = read.frame.where(sf.col(ERROR_COLUMN).isNull())
    writer.remove_letters(with_places(fitting).select(*_PLACES), _SAME_PLACE)
    if writer.mode == WriteMode.UPSERT:
        newest = with_places(newest_of_keys(fitting)).select(*_PLACES)
        writer.remove_letters(newest, f"s._key = t._key AND {NEWER}")
