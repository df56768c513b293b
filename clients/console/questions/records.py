"""Records of a topic: the newest, or from an offset or a time on, those that contain a text. I/O: reads records.

A question reads for a limited time and a limited number of records, and says where it stopped, so that the next one
goes on there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa

from stratalog.clients.console.asker import WAIT_MS, Asker
from stratalog.clients.console.question import Parameter, Question
from stratalog.clients.console.schemas.decoded import Headers, PartDecoder, ReadPart
from stratalog.clients.console.shown_text import CUT_BYTES, ShownBytes, shown, visible
from stratalog.clients.console.times import TIME_DOC, time_ms
from stratalog.replication.metadata.acls import Operation
from stratalog.storage.errors import (
    InvalidRequestError,
    LeaderNotAvailableError,
    OffsetOutOfRangeError,
    UnknownTopicOrPartitionError,
)
from stratalog.storage.records import CONTROL_ATTRIBUTE, TRANSACTIONAL_ATTRIBUTE, TopicPartition

LIMIT, LIMIT_MAX = 50, 500
FETCH_BYTES = 1 << 20
WHOLE_BYTES = 1 << 18
"""Number of bytes of a part of one record that is shown alone."""
READ_MS_MAX = 3_000
"""Time for which one question reads."""
SCANNED_MAX = 50_000
"""Number of records of a partition that one question reads through for a text."""
EVERY_PARTITION = -1
LOG_APPEND_ATTRIBUTE = 8
WHERE = ("newest", "oldest", "offset", "time")
PARTS = ("any", "key", "value", "headers")


@dataclass(frozen=True, slots=True)
class ShownHeader:
    """A header of a record."""

    name: str
    value: ShownBytes


@dataclass(frozen=True, slots=True)
class ShownRecord:
    """A record. `producer_id` is -1 without idempotence; `timestamp_ms` is the broker's when `is_append_time`.

    key_read, value_read  what the schemas that they name make of them; null where they name none
    """

    partition: int
    offset: int
    timestamp_ms: int
    is_append_time: bool
    key: ShownBytes
    value: ShownBytes
    headers: list[ShownHeader]
    leader_epoch: int
    producer_id: int
    is_transactional: bool
    key_read: ReadPart | None = None
    value_read: ReadPart | None = None


@dataclass(frozen=True, slots=True)
class PartitionPlace:
    """Where reading stopped in a partition: the next offset to read, between its start and its end. -1: unknown."""

    partition: int
    next_offset: int
    start_offset: int
    end_offset: int
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Records:
    """Records, the newest first when the newest were asked for.

    scanned  records that were read
    is_cut   the time or the number of records ended the search before the end was reached
    schemas_problem  why no schema can be read; empty: there is none that was needed, or they were read
    """

    topic: str
    partition_count: int
    records: list[ShownRecord]
    places: list[PartitionPlace]
    scanned: int
    is_cut: bool
    read_ms: int
    schemas_problem: str = ""


@dataclass(frozen=True, slots=True)
class RecordDetail:
    """One record, shown at greater length."""

    topic: str
    record: ShownRecord
    schemas_problem: str = ""


@dataclass(slots=True)
class _Search:
    """What is searched for, and how far it has come."""

    asker: Asker
    needle: bytes
    part: str
    deadline_ms: int
    topic: str
    decoder: PartDecoder
    scanned: int = 0

    def is_over(self) -> bool:
        return self.asker.cluster.view.clock.monotonic_ms() >= self.deadline_ms

    def rows(self, named: TopicPartition, offset: int, end_offset: int) -> Iterator[tuple[pa.Table, int]]:
        """Tables of records in `[offset, end_offset)`, each with the next offset."""
        while offset < end_offset and not self.is_over():
            found = self.asker.cluster.view.records.fetch(named, offset, FETCH_BYTES, end_offset, WAIT_MS)
            if found.next_offset <= offset:
                return
            self.scanned += found.rows.num_rows
            offset = found.next_offset
            yield found.rows, offset

    def matches(self, row: Mapping[str, object]) -> bool:
        if not self.needle:
            return True
        texts = {"key": [row["key"]], "value": [row["value"]], "headers": []}
        headers = row["headers"] or []
        assert isinstance(headers, list)
        for header in headers:
            texts["headers"] += [str(header["key"]).encode(), header["value"]]
        wanted = [text for part, found in texts.items() if self.part in ("any", part) for text in found]
        if any(isinstance(text, bytes) and self.needle in text.lower() for text in wanted):
            return True
        given = _headers_of(row)
        return any(
            self.needle in self.decoder.searched(self.topic, _bytes_of(row, name), given, is_key=name == "key").encode()
            for name in ("key", "value")
            if self.part in ("any", name)
        )

    def shown(self, partition: int, row: Mapping[str, object], cut_bytes: int = CUT_BYTES) -> ShownRecord:
        return _shown(self.topic, partition, row, self.decoder, cut_bytes)


def records(
    asker: Asker, topic: str, partition: int, where: str, at: str, contains: str, part: str, limit: int, raw: bool
) -> Records:
    """Records of a topic. Errors of single partitions are in `places`."""
    asker.check_topic(topic, Operation.READ)
    view = asker.cluster.view
    view.refresh(max_age_ms=1)
    count = _partition_count(asker, topic)
    if partition >= count:
        raise UnknownTopicOrPartitionError(f"{topic} has partitions 0 to {count - 1}, not {partition}")
    limit = max(1, min(limit, LIMIT_MAX))
    numbers = range(count) if partition == EVERY_PARTITION else [partition]
    marks = view.watermarks.published_now([TopicPartition(topic, each) for each in numbers])
    deadline_ms = view.clock.monotonic_ms() + READ_MS_MAX
    decoder = PartDecoder(asker, is_wanted=not raw)
    search = _Search(asker, contains.lower().encode(), part, deadline_ms, topic, decoder)
    found: list[ShownRecord] = []
    places: list[PartitionPlace] = []
    is_cut = False
    for named, bound in marks.items():
        if bound is None:
            places.append(PartitionPlace(named.partition, -1, -1, -1, "no leader answers"))
            continue
        start, end = bound.log_start_offset, bound.high_watermark
        try:
            if where == "newest":
                rows, next_offset, stopped = _newest(search, named, start, end, limit)
            else:
                begin = _begin(asker, named, where, at, start, end)
                rows, next_offset, stopped = _onward(search, named, begin, end, limit)
        except (LeaderNotAvailableError, OffsetOutOfRangeError) as reason:
            places.append(PartitionPlace(named.partition, -1, start, end, str(reason)))
            continue
        found += rows
        is_cut = is_cut or stopped
        places.append(PartitionPlace(named.partition, next_offset, start, end))
    newest_first = where == "newest"
    found.sort(key=lambda each: (each.timestamp_ms, each.offset, each.partition), reverse=newest_first)
    if len(found) > limit:
        kept = found[:limit]
        places = [_stopped_at(place, kept, found) for place in places] if not newest_first else places
        found = kept
    return Records(topic, count, found, places, search.scanned, is_cut, asker.now_ms, decoder.problem)


def _stopped_at(place: PartitionPlace, kept: list[ShownRecord], found: list[ShownRecord]) -> PartitionPlace:
    """The place when records that were read are not shown: the next question reads them again."""
    shown_here = {each.offset for each in kept if each.partition == place.partition}
    left = [each.offset for each in found if each.partition == place.partition and each.offset not in shown_here]
    if not left:
        return place
    return PartitionPlace(place.partition, min(left), place.start_offset, place.end_offset, place.problem)


def _partition_count(asker: Asker, topic: str) -> int:
    count = len(asker.cluster.view.image.partitions_of(topic))
    if not count:
        raise UnknownTopicOrPartitionError(f"there is no topic {topic}")
    return count


def _begin(asker: Asker, named: TopicPartition, where: str, at: str, start: int, end: int) -> int:
    if where == "oldest":
        return start
    if where == "offset":
        if not at.strip().isdecimal():
            raise InvalidRequestError(f"an offset is a number, not {at!r}")
        return max(start, min(int(at), end))
    found = asker.cluster.view.offsets.offset_for_timestamp(named, time_ms(at), WAIT_MS)
    return end if found is None else found.offset


def _onward(
    search: _Search, named: TopicPartition, begin: int, end: int, limit: int
) -> tuple[list[ShownRecord], int, bool]:
    """Records from an offset on, the next offset, and whether the search stopped early."""
    found: list[ShownRecord] = []
    offset = begin
    for rows, next_offset in search.rows(named, begin, end):
        for row in _plain_rows(rows):
            if search.matches(row):
                found.append(search.shown(named.partition, row))
                if len(found) == limit:
                    return found, found[-1].offset + 1, False
        offset = next_offset
        if offset - begin >= SCANNED_MAX:
            return found, offset, offset < end
    return found, offset, offset < end


def _newest(
    search: _Search, named: TopicPartition, start: int, end: int, limit: int
) -> tuple[list[ShownRecord], int, bool]:
    """The newest records, whose offsets may have gaps: the search goes back in steps that grow."""
    found: list[ShownRecord] = []
    upper, step = end, limit
    while upper > start and len(found) < limit and end - upper < SCANNED_MAX and not search.is_over():
        lower = max(start, upper - step)
        part: list[ShownRecord] = []
        for rows, _ in search.rows(named, lower, upper):
            part += [search.shown(named.partition, row) for row in _plain_rows(rows) if search.matches(row)]
        found = part[-limit:] + found
        upper, step = lower, step * 4
    return found[-limit:], upper, upper > start and len(found) < limit


def _plain_rows(rows: pa.Table) -> list[dict[str, object]]:
    """Records without markers, with timestamps in ms."""
    times = rows["timestamp"].cast(pa.timestamp("ms", tz="UTC"), safe=False).cast(pa.int64())
    found: list[dict[str, object]] = rows.append_column("timestamp_ms", times).to_pylist()
    return [row for row in found if not int(str(row["attributes"])) & CONTROL_ATTRIBUTE]


def _bytes_of(row: Mapping[str, object], part: str) -> bytes | None:
    data = row[part]
    assert data is None or isinstance(data, bytes)
    return data


def _headers_of(row: Mapping[str, object]) -> Headers:
    headers = row["headers"] or []
    assert isinstance(headers, list)
    return [(str(each["key"]), each["value"]) for each in headers]


def _shown(
    topic: str, partition: int, row: Mapping[str, object], decoder: PartDecoder, cut_bytes: int = CUT_BYTES
) -> ShownRecord:
    headers, time_ms = _headers_of(row), row["timestamp_ms"]
    key, value = _bytes_of(row, "key"), _bytes_of(row, "value")
    attributes = int(str(row["attributes"]))
    return ShownRecord(
        partition,
        int(str(row["offset"])),
        -1 if time_ms is None else int(str(time_ms)),
        bool(attributes & LOG_APPEND_ATTRIBUTE),
        shown(key, cut_bytes),
        shown(value, cut_bytes),
        [ShownHeader(visible(name[:256]), shown(data, cut_bytes)) for name, data in headers],
        int(str(row["leader_epoch"])),
        int(str(row["producer_id"])),
        bool(attributes & TRANSACTIONAL_ATTRIBUTE),
        decoder.part(topic, key, headers, is_key=True, cut_bytes=cut_bytes),
        decoder.part(topic, value, headers, is_key=False, cut_bytes=cut_bytes),
    )


def record(asker: Asker, topic: str, partition: int, offset: int, raw: bool) -> RecordDetail:
    """One record, with up to 256 KiB of each part."""
    row = _row(asker, topic, partition, offset)
    decoder = PartDecoder(asker, is_wanted=not raw)
    return RecordDetail(topic, _shown(topic, partition, row, decoder, WHOLE_BYTES), decoder.problem)


def raw_part(asker: Asker, topic: str, partition: int, offset: int, part: str, *, decoded: bool = False) -> bytes:
    """The bytes of a record's key or value, all of them; null is empty. `decoded`: its JSON by its schema instead.
    SerializationError where there is none."""
    if part not in ("key", "value"):
        raise InvalidRequestError(f"a record has a key and a value, not {part!r}")
    row = _row(asker, topic, partition, offset)
    if not decoded:
        return _bytes_of(row, part) or b""
    text = PartDecoder(asker).whole(topic, _bytes_of(row, part), _headers_of(row), is_key=part == "key")
    return text.encode(errors="backslashreplace")


def _row(asker: Asker, topic: str, partition: int, offset: int) -> Mapping[str, object]:
    asker.check_topic(topic, Operation.READ)
    asker.cluster.view.refresh(max_age_ms=1)
    if not 0 <= partition < _partition_count(asker, topic):
        raise UnknownTopicOrPartitionError(f"{topic} has no partition {partition}")
    named = TopicPartition(topic, partition)
    found = asker.cluster.view.records.fetch(named, offset, 1, offset + 1, WAIT_MS)
    for row in _plain_rows(found.rows):
        if row["offset"] == offset:
            return row
    raise OffsetOutOfRangeError(
        f"{named} has no record at offset {offset}: it is a transaction's marker, was removed, or is not written yet"
    )


_TOPIC = Parameter(str, "the topic")
_RAW = Parameter(bool, "bytes alone, though they name schemas", False)
QUESTIONS = (
    Question(
        "records",
        "Records of a topic: the newest, or from an offset or a time on, those that contain a text.",
        records,
        {
            "topic": _TOPIC,
            "partition": Parameter(int, "its number; -1: all", EVERY_PARTITION),
            "where": Parameter(str, "where to begin", "newest", WHERE),
            "at": Parameter(str, f"the offset, or the time: {TIME_DOC}", ""),
            "contains": Parameter(str, "a text in any case, UTF-8", ""),
            "part": Parameter(str, "where the text is looked for", "any", PARTS),
            "limit": Parameter(int, f"how many records to show, at most {LIMIT_MAX}", LIMIT),
            "raw": _RAW,
        },
    ),
    Question(
        "record",
        "One record with its headers, up to 256 KiB of each part.",
        record,
        {
            "topic": _TOPIC,
            "partition": Parameter(int, "its number"),
            "offset": Parameter(int, "the record's offset"),
            "raw": _RAW,
        },
    ),
)
