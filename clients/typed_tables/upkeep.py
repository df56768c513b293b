"""Upkeep of a typed table between its batches: erasures, old rows, OPTIMIZE, VACUUM. I/O: Spark and Delta Lake.

It runs in the query's own thread, so that it meets no write of the query. Each part may be done again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from stratalog.clients.typed_tables.batches import TableWriter
from stratalog.clients.typed_tables.config import OFF, TypedTableConfig, is_due
from stratalog.clients.typed_tables.delta_table import TypedDelta
from stratalog.clients.typed_tables.erasure import (
    DEAD_LETTERS,
    ERASED_ID,
    ERASED_MS,
    Ends,
    TableErasure,
    columns_of_table,
    done_up_to,
    erased_id,
    erased_ms,
    open_requests,
    vacuum_is_due,
)
from stratalog.clients.typed_tables.predicates import Condition, RecordParts, erased_rows
from stratalog.clients.typed_tables.rows.evolution import TIMESTAMP, quoted
from stratalog.replication.metadata.records import EraseRecord
from stratalog.storage.log_lines import line_logger

_LOG = line_logger("stratalog.typed_tables")
Positions = Callable[[], Mapping[int, int]]
"""How far the query is, asked only when an erasure waits for it."""
OPTIMIZED_MS, VACUUMED_MS = "stratalog.optimized.ms", "stratalog.vacuumed.ms"
"""Table properties: when this was last done, or first due to be counted from."""


def of_new_table(now_ms: int) -> dict[str, str]:
    """The properties with which a table is made now.

    >>> of_new_table(7)
    {'stratalog.optimized.ms': '7', 'stratalog.vacuumed.ms': '7'}
    """
    return {name: str(now_ms) for name in (OPTIMIZED_MS, VACUUMED_MS)}


class TableUpkeep:
    """The upkeep of one table and its dead letters. Intervals count over runs of the query, by table properties."""

    def __init__(
        self, writer: TableWriter, config: TypedTableConfig, properties: Mapping[str, str] | None = None
    ) -> None:
        """`properties`: the table's, if they were read or written just now."""
        self._writer, self._config, self._properties = writer, config, properties
        self._last_ms: dict[str, int] = {}

    def run(self, now_ms: int, requests: Mapping[int, EraseRecord], positions: Positions, ends: Ends) -> None:
        """Do what is due. `requests`: all erasures of the topic."""
        self.erase(now_ms, requests, positions, ends)
        if not self._last_ms:
            self._remember(now_ms)
        config, target = self._config, self._writer.target
        interval_ms = config.optimize_interval_ms
        if is_due(now_ms, self._last_ms[OPTIMIZED_MS], max(interval_ms, 0)):
            self._delete_old_rows(now_ms)
            if interval_ms != OFF:
                target.cluster(config.cluster_by)
                target.optimize()
                self._done(OPTIMIZED_MS, now_ms)
        erased_at_ms = erased_ms(target.properties()) if requests else 0
        if vacuum_is_due(now_ms, self._last_ms[VACUUMED_MS], erased_at_ms, config.vacuum_retention_ms, interval_ms):
            for table in self._tables():
                table.vacuum(config.vacuum_retention_ms)
                if erased_at_ms:
                    table.forget_log(min(erased_at_ms, now_ms - config.vacuum_retention_ms))
            self._done(VACUUMED_MS, now_ms)

    def _remember(self, now_ms: int) -> None:
        """When things were last done; of a new table now."""
        known = self._writer.target.properties() if self._properties is None else self._properties
        self._last_ms = {name: int(known.get(name, now_ms)) for name in (OPTIMIZED_MS, VACUUMED_MS)}
        new = {name: text for name, text in of_new_table(now_ms).items() if name not in known}
        if new:  # a table that an earlier release has made
            self._writer.target.set_properties(new)

    def _done(self, name: str, now_ms: int) -> None:
        self._last_ms[name] = now_ms
        self._writer.target.set_properties({name: str(now_ms)})

    def _delete_old_rows(self, now_ms: int) -> None:
        if self._config.ttl_ms == OFF:
            return
        before_ms = now_ms - self._config.ttl_ms
        for table in self._tables():
            time = TIMESTAMP if table is self._writer.target else DEAD_LETTERS.timestamp
            table.delete(f"unix_millis({quoted(time)}) < {before_ms}")

    def _tables(self) -> list[TypedDelta]:
        letters = self._writer.dead_letters
        return [self._writer.target, *([letters] if letters.exists() else [])]

    # -- erasures ------------------------------------------------------------------------------------------

    def erase(self, now_ms: int, requests: Mapping[int, EraseRecord], positions: Positions, ends: Ends) -> None:
        """Delete the rows and dead letters of erasures that are not done: at once, and until no more can come. Those of
        records that the topic has lost meanwhile, too: nothing shows which they are."""
        if not requests:
            return
        target = self._writer.target
        done_id = erased_id(target.properties())
        waiting = open_requests(requests, done_id)
        if not waiting:
            return
        for table in self._tables():
            columns = self._columns(table)
            for request in waiting:
                self._erase_from(table, columns, request)
        done = done_up_to(waiting, positions(), done_id, ends)
        if done > done_id:
            written = [each.modified_ms + 1 for table in self._tables() for each in table.log_files()]
            target.set_properties({ERASED_ID: str(done), ERASED_MS: str(max(now_ms, *written))})

    def _erase_from(self, table: TypedDelta, columns: RecordParts, request: EraseRecord) -> None:
        condition = _condition(request, columns)
        if condition.lacking is not None:
            _LOG.warning(
                "erasure %d of topic %s asks for the %s of records, which %s does not keep: keep.columns decides",
                request.erase_id, request.topic, condition.lacking, table.name,
            )  # fmt: skip
            return
        if table.delete(condition.sql):
            table.purge()

    def _columns(self, table: TypedDelta) -> RecordParts:
        return columns_of_table(table.column_names()) if table is self._writer.target else DEAD_LETTERS

    def report(self, request: EraseRecord) -> list[TableErasure]:
        """What the table and its dead letters hold of an erasure now; its end offsets are where its records end."""
        properties = self._writer.target.properties()
        is_applied = erased_id(properties) >= request.erase_id
        found = []
        for table in self._tables():
            condition = _condition(request, self._columns(table))
            left = None if condition.lacking is not None else table.frame().where(condition.sql).count()
            done_ms = erased_ms(properties) if is_applied else 0
            waiting, in_log = table.left_files(done_ms), len(table.log_files(done_ms))
            found.append(TableErasure(table.name, is_applied, left, condition.lacking, waiting, in_log))
        return found


def _condition(request: EraseRecord, columns: RecordParts) -> Condition:
    return erased_rows(request.predicate, request.end_offsets, columns)
