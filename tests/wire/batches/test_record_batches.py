"""Kafka's batches become our values and back; what Kafka's classes and aiokafka write and read is the measure."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from hypothesis import given
from hypothesis import strategies as st

from stratalog.clients.wire.rows import decode_rows
from stratalog.storage.errors import (
    CorruptMessageError,
    InvalidRecordError,
    InvalidTimestampError,
    RecordTooLargeError,
    StratalogError,
    UnsupportedCompressionTypeError,
    UnsupportedForMessageFormatError,
)
from stratalog.storage.log.rows import READ_SCHEMA
from stratalog.storage.records import (
    CONTROL_ATTRIBUTE,
    PAYLOAD_SCHEMA,
    TRANSACTIONAL_ATTRIBUTE,
    Header,
    NewRecordBatch,
)
from stratalog.wire.batches.headers import batches_in, header_of
from stratalog.wire.batches.record_batches import decode_group, decode_produced, encode_batch, encode_rows
from tests.clients.batch_tools import (
    CODECS,
    ONE_RECORD,
    Record,
    kafka_batches,
    kafka_records,
    new_batch,
    raw_batch,
    record_lists,
    records_of,
)
from tests.storage.logs import Replicas, append
from tests.wire.batches.decoded import with_offsets


def rows_at(offsets: list[int], **columns: Any) -> pa.Table:
    """Rows of a read with these offsets, of one batch that begins at the first of them unless `columns` says so."""
    count = len(offsets)
    cells: dict[str, Any] = {
        "offset": offsets,
        "leader_epoch": [5] * count,
        "timestamp": list(range(1_000, 1_000 + count)),
        "key": [b"k%d" % offset for offset in offsets],
        "value": [b"v%d" % offset for offset in offsets],
        "headers": [None] * count,
        "timestamp_type": [0] * count,
        "producer_id": [-1] * count,
        "producer_epoch": [-1] * count,
        "sequence": [-1] * count,
        "batch_base_offset": [offsets[0]] * count,
        "attributes": [0] * count,
    } | columns
    return pa.Table.from_arrays([pa.array(cells[f.name], f.type) for f in READ_SCHEMA], schema=READ_SCHEMA)


def bytes_of(rows: pa.Table, codec: str = "none") -> bytes:
    return b"".join(batch.data for batch in encode_rows(rows, codec))


class TestBesideKafka:
    @pytest.mark.parametrize("codec", CODECS)
    def test_what_kafkas_classes_wrote_is_read(self, codec: str) -> None:
        batch = decode_produced(kafka_batches()[codec])
        assert records_of(batch.payload) == kafka_records()
        assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (4711, 3, 17)
        assert (batch.attributes, batch.compression_type) == (TRANSACTIONAL_ATTRIBUTE, codec)
        assert batch.message_bytes == len(kafka_batches()[codec])

    def test_the_same_records_are_written_as_kafka_writes_them(self) -> None:
        fields = {"producer_id": 4711, "producer_epoch": 3, "base_sequence": 17, "attributes": TRANSACTIONAL_ATTRIBUTE}
        assert encode_batch(new_batch(kafka_records(), **fields)) == kafka_batches()["none"]

    @pytest.mark.parametrize("name", ["none", "commit"])
    def test_rows_are_written_as_kafka_wrote_them(self, name: str) -> None:
        assert bytes_of(decode_rows(kafka_batches()[name])) == kafka_batches()[name]

    def test_a_marker_keeps_its_key_and_value(self) -> None:
        (row,) = decode_rows(kafka_batches()["commit"]).to_pylist()
        assert (row["key"], row["value"]) == (b"\0\0\0\1", b"\0\0\0\0\0\x0c")
        assert (row["offset"], row["leader_epoch"], row["sequence"]) == (99, 6, -1)
        assert row["attributes"] == CONTROL_ATTRIBUTE | TRANSACTIONAL_ATTRIBUTE


class TestBesideAiokafka:
    @given(record_lists, st.sampled_from(range(5)))
    def test_what_it_writes_is_read(self, rows: list[Record], codec: int) -> None:
        builder = DefaultRecordBatchBuilder(
            magic=2,
            compression_type=codec,
            is_transactional=False,
            producer_id=7,
            producer_epoch=1,
            base_sequence=5,
            batch_size=1 << 20,
        )
        timed = [(time or 0, *others) for time, *others in rows]  # it takes -1 for the first one's as not yet set
        for index, (time, key, value, headers) in enumerate(timed):
            builder.append(index, time, key, value, [tuple(header) for header in headers or ()])
        batch = decode_produced(bytes(builder.build()))
        assert records_of(batch.payload) == timed
        assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (7, 1, 5)

    @given(record_lists, st.sampled_from(CODECS))
    def test_it_reads_what_is_written(self, rows: list[Record], codec: str) -> None:
        data = encode_batch(new_batch(rows, producer_id=7, producer_epoch=1, base_sequence=5, compression_type=codec))
        batch = DefaultRecordBatch(with_offsets(data, 1_000, 3))
        assert batch.validate_crc()
        assert (batch.base_offset, batch.next_offset) == (1_000, 1_000 + len(rows))
        assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (7, 1, 5)
        found = [(r.timestamp, r.key, r.value, tuple(r.headers)) for r in batch]
        assert found == [
            (-1 if time is None else time, key, value, headers or ()) for time, key, value, headers in rows
        ]


class TestProduced:
    @given(record_lists, st.sampled_from(CODECS), st.booleans())
    def test_a_batch_comes_as_it_was_sent(self, rows: list[Record], codec: str, is_transactional: bool) -> None:
        attributes = TRANSACTIONAL_ATTRIBUTE * is_transactional
        sent = new_batch(
            rows, producer_id=9, producer_epoch=2, base_sequence=0, attributes=attributes, compression_type=codec
        )
        data = encode_batch(sent)
        got = decode_produced(data)
        assert got == replace(sent, content=got.content, sent_bytes=len(data))
        assert got.payload.equals(sent.payload)

    @given(st.lists(record_lists, min_size=1, max_size=6), st.sets(st.integers(0, 5)))
    def test_a_group_is_read_as_each_batch_by_itself(self, group: list[list[Record]], broken: set[int]) -> None:
        sent = [
            encode_batch(new_batch(rows, producer_id=number, producer_epoch=1, base_sequence=number))
            for number, rows in enumerate(group)
        ]
        for number in broken & set(range(len(sent))):
            header = header_of(sent[number])
            sent[number] = raw_batch(sent[number][61:-1] + b"\x7f", header.record_count)
        for data, got in zip(sent, decode_group(sent), strict=True):
            if not isinstance(got, NewRecordBatch):
                with pytest.raises(type(got), match=re.escape(str(got))):
                    decode_produced(data)
                continue
            alone = decode_produced(data)
            assert got == replace(alone, content=got.content)
            assert got.payload.equals(alone.payload)
            assert got.timestamp_range == alone.timestamp_range
            assert got.message_bytes == len(data)

    def test_an_absent_timestamp_is_minus_one(self) -> None:
        data = encode_batch(new_batch([(None, None, b"a", None), (50, None, b"b", None)]))
        assert (header_of(data).base_timestamp_ms, header_of(data).max_timestamp_ms) == (-1, 50)
        assert decode_produced(data).payload["timestamp"].cast(pa.int64()).to_pylist() == [None, 50]

    def test_headers_without_any_are_none(self) -> None:
        payload = decode_produced(encode_batch(new_batch([(1, None, b"a", ()), (1, None, b"b", (Header("h", b""),))])))
        assert payload.payload["headers"].to_pylist() == [None, [{"key": "h", "value": b""}]]

    @pytest.mark.parametrize(
        ("data", "error", "reason"),
        [
            (b"", InvalidRecordError, "found 0 with 0 of 0 bytes"),
            (raw_batch(ONE_RECORD, 1) * 2, InvalidRecordError, "found 2"),
            (raw_batch(ONE_RECORD, 1) + b"\0", InvalidRecordError, "found 1 with 70 of 71 bytes"),
            (raw_batch(ONE_RECORD, 1)[:-1], InvalidRecordError, "found 0"),
            (raw_batch(ONE_RECORD, 1)[:16] + b"\1" + bytes(60), InvalidRecordError, "magic 1"),
            (raw_batch(ONE_RECORD, 1)[:-1] + b"\1", CorruptMessageError, "stored CRC"),
            (raw_batch(b"", 0), InvalidRecordError, "0 records"),
            (raw_batch(b"", -1, last_offset_delta=-2), InvalidRecordError, "-1 records"),
            (
                raw_batch(ONE_RECORD, 1, last_offset_delta=1),
                InvalidRecordError,
                "offsets 0 to 1 and 1 records disagree",
            ),
            (raw_batch(ONE_RECORD, 1, attributes=CONTROL_ATTRIBUTE), InvalidRecordError, "control"),
            (raw_batch(ONE_RECORD, 1, producer_id=4), InvalidRecordError, "producer 4: sequence -1 < 0"),
            (raw_batch(ONE_RECORD, 1, attributes=8), InvalidTimestampError, "LogAppendTime"),
            (raw_batch(ONE_RECORD, 1, attributes=5), UnsupportedCompressionTypeError, "compression type 5"),
            (raw_batch(ONE_RECORD, 1, attributes=4), CorruptMessageError, "do not decompress as zstd"),
            (raw_batch(ONE_RECORD, 2), InvalidRecordError, "2 records of 7 bytes or more"),
            (raw_batch(ONE_RECORD, 1 << 30), InvalidRecordError, "records of 7 bytes or more"),
            (raw_batch(ONE_RECORD[:-1] + b"\2", 1), InvalidRecordError, "1 headers, 0 bytes"),
        ],
    )
    def test_what_kafka_refuses_is_refused(self, data: bytes, error: type[StratalogError], reason: str) -> None:
        with pytest.raises(error, match=reason) as caught:
            decode_produced(data)
        assert type(caught.value) is error

    def test_what_grows_too_large_is_refused(self) -> None:
        data = encode_batch(new_batch([(1, None, bytes(2_000_000), None)], compression_type="zstd"))
        with pytest.raises(RecordTooLargeError, match="> 1000000"):
            decode_produced(data, decompressed_bytes_max=1_000_000)

    def test_a_batch_without_records_is_not_written(self) -> None:
        with pytest.raises(InvalidRecordError, match="at least one record"):
            encode_batch(new_batch([]))


class TestRows:
    def test_batches_come_as_they_were_appended(self) -> None:
        rows = rows_at(
            list(range(10, 17)),
            batch_base_offset=[10, 10, 10, 13, 14, 14, 14],
            leader_epoch=[1, 1, 1, 1, 2, 2, 2],
            producer_id=[4, 4, 4, -1, 4, 4, 4],
            producer_epoch=[0, 0, 0, -1, 1, 1, 1],
            sequence=[7, 8, 9, -1, (1 << 31) - 1, 0, 1],
            attributes=[0, 0, 0, 0, 16, 16, 16],
        )
        encoded = encode_rows(rows)
        assert [(batch.base_offset, batch.last_offset) for batch in encoded] == [(10, 12), (13, 13), (14, 16)]
        headers = [header for header, _ in batches_in(bytes_of(rows))]
        assert [(h.leader_epoch, h.producer_id, h.producer_epoch, h.base_sequence) for h in headers] == [
            (1, 4, 0, 7),
            (1, -1, -1, -1),
            (2, 4, 1, (1 << 31) - 1),
        ]
        assert [h.attributes for h in headers] == [0, 0, 16]
        assert [(h.base_timestamp_ms, h.max_timestamp_ms) for h in headers] == [
            (1_000, 1_002),
            (1_003, 1_003),
            (1_004, 1_006),
        ]
        assert decode_rows(bytes_of(rows)).equals(rows)

    @given(st.lists(record_lists, min_size=1, max_size=5), st.sampled_from(CODECS), st.integers(0, 1 << 50))
    def test_rows_of_many_batches_are_read_as_they_were(
        self, batches: list[list[Record]], codec: str, base_offset: int
    ) -> None:
        parts, offset = [], base_offset
        for rows in batches:
            data = encode_batch(new_batch(rows, producer_id=3, producer_epoch=0, base_sequence=offset % (1 << 31)))
            parts.append(decode_rows(with_offsets(data, offset, 8)))
            offset += len(rows)
        table = pa.concat_tables(parts)
        assert table["offset"].to_pylist() == list(range(base_offset, offset))
        assert records_of(table) == [record for rows in batches for record in rows]
        encoded = bytes_of(table, codec)
        assert len(list(batches_in(encoded))) == len(batches)
        assert decode_rows(encoded).equals(table)

    def test_a_compacted_batch_keeps_its_base_offset_and_sequence(self) -> None:
        rows = rows_at([5, 6, 9], batch_base_offset=[4] * 3, producer_id=[1] * 3, sequence=[101, 102, 105])
        ((header, _),) = batches_in(bytes_of(rows))
        assert (header.base_offset, header.last_offset_delta, header.record_count) == (4, 5, 3)
        assert header.base_sequence == 100
        assert decode_rows(bytes_of(rows)).equals(rows)

    def test_rows_that_the_cleaner_emptied_count_for_the_last_offset_alone(self) -> None:
        attributes = [0, 0, CONTROL_ATTRIBUTE, CONTROL_ATTRIBUTE, 0]
        keys, values = [b"a", b"b", None, None, b"c"], [b"1", b"2", None, None, b"3"]
        bases = [0, 0, 0, 7, 8]
        rows = rows_at(
            [1, 2, 4, 7, 8],
            key=keys,
            value=values,
            attributes=attributes,
            batch_base_offset=bases,
            producer_id=[1] * 5,
            sequence=[11, 12, 14, 17, 18],
        )
        headers = [header for header, _ in batches_in(bytes_of(rows))]
        assert [(h.base_offset, h.last_offset, h.record_count, h.base_sequence) for h in headers] == [
            (0, 4, 2, 10),
            (7, 7, 0, 17),
            (8, 8, 1, 18),
        ]
        assert [h.attributes for h in headers] == [0, 0, 0]
        assert [(h.base_timestamp_ms, h.max_timestamp_ms) for h in headers] == [
            (1_000, 1_001),
            (-1, 1_003),
            (1_004, 1_004),
        ]
        assert decode_rows(bytes_of(rows, "gzip"))["offset"].to_pylist() == [1, 2, 8]

    def test_log_append_time_is_the_batchs(self) -> None:
        rows = rows_at([0, 1], timestamp=[1_000, 1_000], timestamp_type=[1, 1])
        data = bytes_of(rows)
        assert header_of(data).timestamp_type == 1
        assert decode_rows(data).equals(rows)
        two_records = ONE_RECORD + b"\x10\0\x08\x02\x01\x04ok\0"
        read = decode_rows(raw_batch(two_records, 2, attributes=8, max_timestamp_ms=77) + raw_batch(two_records, 2))
        assert read["timestamp"].cast(pa.int64()).to_pylist() == [77, 77, 1_000, 1_004]

    def test_a_large_batch_comes_in_pieces(self) -> None:
        rows = rows_at(
            list(range(3, 53)),
            value=[b"v" * 100] * 50,
            key=[None] * 50,
            batch_base_offset=[3] * 40 + [43] * 10,
            producer_id=[1] * 50,
            sequence=list(range(50)),
        )
        encoded = encode_rows(rows, split_bytes=1_500)
        assert [(b.base_offset, b.last_offset) for b in encoded] == [(3, 17), (18, 32), (33, 42), (43, 52)]
        assert [header_of(b.data).base_sequence for b in encoded] == [0, 15, 30, 40]
        read = decode_rows(b"".join(b.data for b in encoded))
        assert read.drop(["batch_base_offset"]).equals(rows.drop(["batch_base_offset"]))

    def test_chunks_and_slices_make_no_difference(self) -> None:
        rows = rows_at(list(range(100)), headers=[[{"key": "h", "value": b"%d" % i}] * (i % 3) for i in range(100)])
        whole = bytes_of(rows)
        in_chunks = pa.concat_tables([rows.slice(0, 30), rows.slice(30, 1), rows.slice(31)])
        assert bytes_of(in_chunks) == whole
        tail = decode_rows(bytes_of(rows.slice(40)))
        assert records_of(tail) == records_of(decode_rows(whole).slice(40))

    def test_nothing_is_no_batch(self) -> None:
        assert encode_rows(READ_SCHEMA.empty_table()) == []
        assert decode_rows(b"").equals(READ_SCHEMA.empty_table())
        assert decode_rows(raw_batch(b"", 0)).equals(READ_SCHEMA.empty_table())

    def test_a_batch_whose_records_end_in_the_next_one_is_refused(self) -> None:
        longer = raw_batch(ONE_RECORD * 20 + b"\x10", 20) + raw_batch(ONE_RECORD[1:] + ONE_RECORD, 1)
        with pytest.raises(InvalidRecordError, match=r"end before or behind|end at byte"):
            decode_rows(longer)

    def test_older_formats_are_not_read(self) -> None:
        with pytest.raises(UnsupportedForMessageFormatError, match="magic 1"):
            decode_rows(raw_batch(ONE_RECORD, 1)[:16] + b"\1" + bytes(60))


@pytest.mark.parametrize("is_on_disk", [False, True])
def test_what_producers_sent_comes_out_of_a_log_as_they_sent_it(is_on_disk: bool, tmp_path: Path) -> None:
    """With offsets and leader epoch set, and otherwise the same bytes."""
    log = Replicas.new(tmp_path if is_on_disk else None).leader(epoch=4)
    sent = [
        encode_batch(new_batch(kafka_records(), producer_id=7, producer_epoch=0, base_sequence=40 * i)) for i in (0, 1)
    ]
    sent += [encode_batch(new_batch([(None, b"k", None, None)])), encode_batch(new_batch([(5, None, b"", None)] * 3))]
    append(log, *map(decode_produced, sent[:2]), epoch=4)
    append(log, *map(decode_produced, sent[2:]), epoch=4)
    rows = log.read(0, 1 << 20)
    expected = [with_offsets(data, offset, 4) for data, offset in zip(sent, (0, 40, 80, 81), strict=True)]
    assert [batch.data for batch in encode_rows(rows)] == expected
    from_the_middle = encode_rows(log.read(50, 1 << 20))
    assert [(batch.base_offset, batch.last_offset) for batch in from_the_middle] == [(40, 79), (80, 80), (81, 83)]
    assert decode_rows(b"".join(batch.data for batch in from_the_middle)).equals(rows.slice(50))


class TestAnyBytes:
    @given(st.binary(max_size=120), st.integers(-2, 1 << 31), st.sampled_from(CODECS), st.integers(0, 255))
    def test_any_records_in_a_right_batch(self, section: bytes, count: int, codec: str, attributes: int) -> None:
        data = raw_batch(section, min(count, (1 << 31) - 1), codec, attributes=attributes & 0xF8)
        self._is_read_or_refused(data)

    @given(st.sampled_from(["none", "snappy", "lz4", "zstd", "gzip"]), st.data())
    def test_a_batch_of_kafkas_with_other_bytes_and_a_right_crc(self, codec: str, data: st.DataObject) -> None:
        ((header, batch),) = batches_in(kafka_batches()[codec])
        section = bytearray(batch[61:])
        for _ in range(data.draw(st.integers(1, 4))):
            section[data.draw(st.integers(0, len(section) - 1))] = data.draw(st.integers(0, 255))
        fields = {name: getattr(header, name) for name in ("attributes", "base_timestamp_ms", "max_timestamp_ms")}
        self._is_read_or_refused(raw_batch(bytes(section), 40, **fields))

    @given(st.binary(max_size=200))
    def test_any_bytes(self, data: bytes) -> None:
        self._is_read_or_refused(data)

    @staticmethod
    def _is_read_or_refused(data: bytes) -> None:
        """Whatever else is raised fails the test."""
        with suppress(
            CorruptMessageError,
            InvalidRecordError,
            RecordTooLargeError,
            UnsupportedCompressionTypeError,
            UnsupportedForMessageFormatError,
        ):
            rows = decode_rows(data)
            rows.validate(full=True)
            assert rows.schema == READ_SCHEMA
        with suppress(
            CorruptMessageError,
            InvalidRecordError,
            InvalidTimestampError,
            RecordTooLargeError,
            UnsupportedCompressionTypeError,
        ):
            payload = decode_produced(data).payload
            payload.validate(full=True)
            assert payload.schema == PAYLOAD_SCHEMA
