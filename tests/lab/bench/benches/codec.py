"""The codec alone: Kafka's record batches to our values and back, beside `aiokafka.record` doing the same.

I/O: none but CPU time. `produced` reads batches of a producer into payloads, one by one or at once, `fetched` writes
rows of a log as batches. The peer's records are converted to and from columns, too, as a broker on Arrow needs them.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

from stratalog.clients.wire.rows import decode_rows
from stratalog.storage.records import HEADERS_TYPE, PAYLOAD_SCHEMA, NewRecordBatch
from stratalog.wire.batches.record_batches import decode_group, decode_produced, encode_batch, encode_rows
from tests.lab.bench.lab import Lab, Outcome
from tests.lab.bench.measures import Row, Spread
from tests.wire.batches.decoded import with_offsets

RECORDS = 10_000
ROUND_S = 0.5
UNIT = "million records/s"


@dataclass(frozen=True, slots=True)
class Shape:
    """The records of a measurement: records per batch, value sizes in bytes, headers per record."""

    name: str
    batch_records: int
    value_bytes: tuple[int, int] = (100, 100)
    headers: int = 0

    def payload(self) -> pa.Table:
        """`RECORDS` records without keys, the same at each call."""
        draw = random.Random(7)
        values = [draw.randbytes(draw.randint(*self.value_bytes)) for _ in range(RECORDS)]
        pairs = [[{"key": "trace", "value": b"0123456789"}] * self.headers or None] * RECORDS
        times = pa.array(np.arange(RECORDS) // 3 + 1_700_000_000_000).cast(PAYLOAD_SCHEMA.field("timestamp").type)
        cells = [times, pa.nulls(RECORDS, pa.binary()), pa.array(values, pa.binary()), pa.array(pairs, HEADERS_TYPE)]
        return pa.Table.from_arrays(cells, schema=PAYLOAD_SCHEMA)


SHAPES = (
    Shape("16 KB batches", 150),
    Shape("16 KB batches, 50 to 150 B", 150, (50, 150)),
    Shape("100 KB batches", 1_000),
    Shape("1 MB batches", RECORDS),
    Shape("1 MB batches, 50 to 150 B", RECORDS, (50, 150)),
    Shape("1 MB batches, a header each", RECORDS, headers=1),
)


def codec(lab: Lab) -> Outcome:
    """Figures of each shape, both ways."""
    rows: list[Row] = []
    for shape in SHAPES:
        payload = shape.payload()
        starts = range(0, RECORDS, shape.batch_records)
        batches = [NewRecordBatch(payload.slice(start, shape.batch_records), 5, 0, start) for start in starts]
        sent = [encode_batch(batch) for batch in batches]
        log = decode_rows(b"".join(with_offsets(data, start, 3) for start, data in zip(starts, sent, strict=True)))
        log = log.combine_chunks()
        works: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
            "produced": (
                lambda sent=sent: [decode_produced(data) for data in sent],  # type: ignore[misc]
                lambda sent=sent: [_peer_read(data) for data in sent],  # type: ignore[misc]
            ),
            "fetched": (
                lambda log=log: encode_rows(log),  # type: ignore[misc]
                lambda log=log, n=shape.batch_records: [_peer_written(log.slice(s, n)) for s in starts],  # type: ignore[misc]  # noqa: B023
            ),
        }
        if shape.batch_records < RECORDS:  # as the broker reads what goes into one commit
            works["produced at once"] = (
                lambda sent=sent: decode_group(sent),  # type: ignore[misc]
                works["produced"][1],
            )
        for name, (ours, peer) in works.items():
            figures = [(_rate(ours), _rate(peer)) for _ in range(lab.rounds)]
            of_ours, of_peer = (Spread.of([figure[side] for figure in figures]) for side in (0, 1))
            rows.append(Row("codec", f"{name}, {shape.name}", UNIT, False, of_ours, of_peer, "aiokafka.record"))
    return Outcome(rows)


def _rate(work: Callable[[], object]) -> float:
    """Million records/s of the fastest run within `ROUND_S`."""
    work()
    best_s, end_s = float("inf"), time.perf_counter() + ROUND_S
    while (begin_s := time.perf_counter()) < end_s:
        work()
        best_s = min(best_s, time.perf_counter() - begin_s)
    return RECORDS / best_s / 1e6


def _peer_read(data: bytes) -> pa.Table:
    batch = DefaultRecordBatch(data)
    if not batch.validate_crc():
        raise ValueError("wrong CRC")
    records = list(batch)
    times = pa.array([record.timestamp for record in records]).cast(PAYLOAD_SCHEMA.field("timestamp").type)
    keys = pa.array([record.key for record in records], pa.binary())
    values = pa.array([record.value for record in records], pa.binary())
    headers = [record.headers for record in records]
    lists: pa.Array = pa.nulls(len(records), HEADERS_TYPE)
    if any(headers):
        lists = pa.array([[{"key": k, "value": v} for k, v in pairs] for pairs in headers], HEADERS_TYPE)
    return pa.Table.from_arrays([times, keys, values, lists], schema=PAYLOAD_SCHEMA)


def _peer_written(rows: pa.Table) -> bytes:
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=False,
        producer_id=5,
        producer_epoch=0,
        base_sequence=0,
        batch_size=1 << 30,
    )
    times = rows["timestamp"].cast(pa.int64()).to_pylist()
    headers: Sequence[list[tuple[str, bytes | None]]] = [[]] * len(rows)
    if rows["headers"].null_count < len(rows):
        headers = [[(pair["key"], pair["value"]) for pair in pairs or ()] for pairs in rows["headers"].to_pylist()]
    for index, cells in enumerate(zip(times, rows["key"].to_pylist(), rows["value"].to_pylist(), headers, strict=True)):
        builder.append(index, *cells)
    return bytes(builder.build())
