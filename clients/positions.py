"""Where a consumer stands in each assigned partition, and the rows it read ahead. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import pyarrow as pa

from storage.records import TopicPartition


@dataclass(slots=True)
class Position:
    """One partition. `offset` is that of the next record to be returned; None: not decided yet.

    Rows read ahead start at `offset`; behind the last of them reading goes on at `_fetched_to`.
    """

    topic_partition: TopicPartition
    offset: int | None = None
    is_paused: bool = False
    _rows: pa.Table | None = field(default=None)
    _fetched_to: int = 0

    def seek(self, offset: int) -> None:
        """Go elsewhere; rows read ahead are dropped."""
        self.offset, self._rows = offset, None

    def has_rows(self) -> bool:
        return self._rows is not None

    def put(self, rows: pa.Table, next_offset: int) -> None:
        """Rows read at `offset`; the next read starts at `next_offset`. No rows: there was nothing to show."""
        if rows.num_rows == 0:
            self.seek(next_offset)
            return
        self._rows, self._fetched_to = rows, next_offset

    def take(self, count: int | None) -> pa.Table:
        """Up to `count` rows (None: all at hand), moving the position behind them. Only with rows at hand."""
        assert self._rows is not None
        rows = self._rows
        if count is None or count >= rows.num_rows:
            self.seek(self._fetched_to)
            return rows
        self._rows = rows.slice(count)
        self.offset = self._rows["offset"][0].as_py()
        return rows.slice(0, count)


class Positions:
    """The assigned partitions, visited in turn so that a busy one does not starve the others."""

    def __init__(self) -> None:
        self.by_partition: dict[TopicPartition, Position] = {}

    def assign(self, topic_partitions: Iterable[TopicPartition]) -> None:
        """Exactly these from now on; known ones keep their position."""
        known = self.by_partition
        self.by_partition = {tp: known.get(tp) or Position(tp) for tp in topic_partitions}

    def in_turn(self) -> Iterator[Position]:
        """Partitions that are not paused, the one served longest ago first."""
        for position in list(self.by_partition.values()):
            if not position.is_paused:
                self._to_the_back(position)
                yield position

    def next_with_rows(self) -> Position | None:
        """A partition, not paused, that has rows at hand."""
        for position in self.by_partition.values():
            if position.has_rows() and not position.is_paused:
                self._to_the_back(position)
                return position
        return None

    def _to_the_back(self, position: Position) -> None:
        self.by_partition.pop(position.topic_partition, None)
        self.by_partition[position.topic_partition] = position
