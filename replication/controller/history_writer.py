"""The controller's part in the history of the metadata: append what compaction may remove next.

I/O: the metadata root, and the tables of leaders for the start offsets of their epochs.
"""

from __future__ import annotations

from concurrent.futures import Future
from contextlib import suppress
from functools import partial

from stratalog.replication import cadence
from stratalog.replication.metadata.history.states import LeaderEpoch, PastState, history_tables, last_led, past_states
from stratalog.replication.metadata.history.table import HistoryTable, metadata_rows
from stratalog.replication.metadata.image import ClusterImage
from stratalog.replication.metadata.log import METADATA_PARTITION
from stratalog.replication.metadata.storage_domains import replica_root
from stratalog.replication.stores import Ports
from stratalog.storage.errors import StratalogError
from stratalog.storage.log.reader import LogReader
from stratalog.storage.log_lines import line_logger

_LOG = line_logger("stratalog.controller")

APPEND_RECORDS = 20_000
"""Records of the metadata log at which the history is appended: few commits and large files."""


class HistoryWriter:
    """Appends to the history in batches. `end_offset`: the states of the metadata log below it are there durably."""

    def __init__(self, metadata_root: str, ports: Ports) -> None:
        self._root = metadata_root
        self._ports = ports
        self.end_offset = 0
        self._is_known = False
        self._due_ms = 0
        self._running: Future[int] | None = None

    def step(self, log_end_offset: int, image: ClusterImage) -> None:
        """Append when enough is waiting, in the executor if there is one. `image`: where leaders' tables are.

        Raises StoreError; the next call tries again.
        """
        if self._running is not None:
            if not self._running.done():
                return
            running, self._running = self._running, None
            self._appended(running.result())
        now_ms = self._ports.clock.monotonic_ms()
        waiting = log_end_offset - self.end_offset
        if self._is_known and (waiting <= 0 or (waiting < APPEND_RECORDS and now_ms < self._due_ms)):
            return
        work = partial(self.append, image) if self._is_known else self._read_end
        if self._ports.executor is None:
            self._appended(work())
        else:
            self._running = self._ports.executor.submit(work)

    def _appended(self, end_offset: int) -> None:
        self.end_offset, self._is_known = end_offset, True
        self._due_ms = self._ports.clock.monotonic_ms() + cadence.HISTORY_APPENDED.ms

    def _open(self) -> HistoryTable:
        return HistoryTable(self._ports.stores.objects(self._root), self._ports.ids)

    def _read_end(self) -> int:
        return self._open().end_offset

    def append(self, image: ClusterImage) -> int:
        """Append all states that the table lacks; the new end. Another controller may have appended some of them."""
        table, clock = self._open(), self._ports.clock
        log = LogReader(self._ports.stores.table(self._root, METADATA_PARTITION), clock)
        log.refresh()
        end_offset = log.log_end_offset
        states = past_states(metadata_rows(log, end_offset), table.end_offset)
        days = history_tables(states, self._starts(states, image))
        if end_offset > table.end_offset and not table.append(days, end_offset, clock.wall_ms()):
            return self._read_end()
        return table.end_offset

    def _starts(self, states: list[PastState], image: ClusterImage) -> dict[LeaderEpoch, int]:
        """The start offsets of leader epochs, as the newest leaders' tables have them. A table that cannot be read
        tells nothing: the history need not wait for it."""
        starts: dict[LeaderEpoch, int] = {}
        for each in last_led(states).values():
            with suppress(StratalogError):
                root = replica_root(image, each.state, each.state.leader)
                if root is None:
                    continue
                log = LogReader(self._ports.stores.table(root, each.state.topic_partition), self._ports.clock)
                log.refresh()
                if log.topic_id == each.topic_id:
                    entries = log.epochs.entries
                    starts |= {
                        LeaderEpoch(each.topic_id, each.state.partition, e.epoch): e.start_offset for e in entries
                    }
        return starts
