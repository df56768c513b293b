"""What of a batch query's WHERE narrows what is read: partitions, offsets, times. Pure.

Spark passes the parts of a conjunction (`DataSourceReader.pushFilters`, SPARK-51271) and evaluates all of them again
on the rows, so a filter that is not understood only costs time. The Kafka connector accepts none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from stratalog.clients.spark.source.plan import LONG_MAX, PlannedRange

TimesOf = Callable[[PlannedRange, int], int]
"""The offset of a range's first record with this time [ms] or a later one; the range's end when it has none."""


@dataclass(frozen=True, slots=True)
class RangeFilters:
    """Records outside these bounds match nothing. A name without a set is not bounded; offsets are `[start, end)`."""

    sets: Mapping[str, frozenset[Any]] = field(default_factory=dict)
    start_offset: int = 0
    end_offset: int = LONG_MAX
    from_timestamp_ms: int | None = None

    @staticmethod
    def of(filters: Iterable[object]) -> RangeFilters:
        """The bounds that all of these filters leave.

        `partition = 3 AND offset >= 100 AND offset < 200` leave partition 3 and `[100, 200)`.
        """
        found = RangeFilters()
        for each in filters:
            found = found._with(each)
        return found

    def _with(self, each: object) -> RangeFilters:
        """Spark's filters are recognized by their class names, so that this needs no Spark."""
        match type(each).__name__, getattr(each, "attribute", None), getattr(each, "value", None):
            case "EqualTo", ("topic" | "partition" as name,), value:
                return self._within(name, [value])
            case "In", ("topic" | "partition" as name,), (list() | tuple()) as values:
                return self._within(name, values)
            case "EqualTo", ("offset",), int(offset):
                return self._from(offset)._below(offset + 1)
            case "GreaterThanOrEqual", ("offset",), int(offset):
                return self._from(offset)
            case "GreaterThan", ("offset",), int(offset):
                return self._from(offset + 1)
            case "LessThan", ("offset",), int(offset):
                return self._below(offset)
            case "LessThanOrEqual", ("offset",), int(offset):
                return self._below(offset + 1)
            case "EqualTo" | "GreaterThanOrEqual" | "GreaterThan", ("timestamp",), datetime() as since:
                return self._since(since)
        return self

    def _within(self, name: str, values: Iterable[Any]) -> RangeFilters:
        wanted = frozenset(values) & self.sets.get(name, frozenset(values))
        return replace(self, sets={**self.sets, name: wanted})

    def _from(self, offset: int) -> RangeFilters:
        return replace(self, start_offset=max(self.start_offset, offset))

    def _below(self, offset: int) -> RangeFilters:
        return replace(self, end_offset=min(self.end_offset, offset))

    def _since(self, value: datetime) -> RangeFilters:
        """Records' times need not ascend, so a time bounds the start, never the end. One without a time zone is in the
        Spark session's, which is not known here."""
        if value.tzinfo is None:
            return self
        since = value.astimezone(UTC) - datetime(1970, 1, 1, tzinfo=UTC)
        since_ms = (since.days * 86_400 + since.seconds) * 1_000 + since.microseconds // 1_000
        return replace(self, from_timestamp_ms=max(since_ms, self.from_timestamp_ms or since_ms))

    def narrowed(self, ranges: Iterable[PlannedRange], first_at: TimesOf) -> list[PlannedRange]:
        """What of these ranges may hold matching records; those without any are left out."""
        kept: list[PlannedRange] = []
        for each in ranges:
            topic, partition = each.topic_partition
            if any(
                value not in self.sets.get(name, (value,))
                for name, value in (("topic", topic), ("partition", partition))
            ):
                continue
            start, end = max(each.start, self.start_offset), min(each.end, self.end_offset)
            if start < end and self.from_timestamp_ms is not None:
                start = max(start, first_at(each, self.from_timestamp_ms))
            if start < end:
                kept.append(PlannedRange(each.topic_partition, start, end))
        return kept
