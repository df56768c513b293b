"""Five million records over 100,000 keys: compacted in bounded memory, while a consumer reads."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from stratalog.storage.log.append import Appended
from stratalog.storage.log.partition_log import PartitionLog
from stratalog.storage.records import PAYLOAD_SCHEMA, NewRecordBatch
from tests.storage.cleaning_process import open_log

RECORDS = 5_000_000
KEYS = 100_000
BATCH = 5_000
VALUE_BYTES = 100
KEY_BYTES = 17
PEAK_MIB_MAX = 512
ROOT = Path(__file__).parents[3]


def fixed_binary(data: np.ndarray) -> pa.Array:
    """Rows of a two-dimensional array of bytes as binary values."""
    count, width = data.shape
    ends = pa.py_buffer(np.arange(0, (count + 1) * width, width, dtype=np.int32))
    return pa.Array.from_buffers(pa.binary(), count, [None, ends, pa.py_buffer(np.ascontiguousarray(data))])


def bytes_of(values: pa.Array, width: int) -> np.ndarray:
    """The inverse of `fixed_binary`."""
    ends = np.frombuffer(values.buffers()[1], np.int32)[values.offset : values.offset + len(values) + 1]
    return np.frombuffer(values.buffers()[2], np.uint8)[ends[0] : ends[-1]].reshape(len(values), width)


def names_of(keys: np.ndarray) -> np.ndarray:
    return np.char.add("user-", np.char.zfill(keys.astype(str), KEY_BYTES - 5)).astype(f"S{KEY_BYTES}")


def batch_of(keys: np.ndarray, first_offset: int, is_tombstone: np.ndarray, rng: np.random.Generator) -> NewRecordBatch:
    """Values begin with their offset, so that a wrong place shows."""
    count = len(keys)
    values = rng.integers(0, 256, (count, VALUE_BYTES), np.uint8)
    offsets = np.arange(first_offset, first_offset + count, dtype=np.int64)
    values[:, :8] = offsets.view(np.uint8).reshape(count, 8)
    key_words = names_of(keys).view(np.uint8).reshape(count, KEY_BYTES)
    kept = pa.array(np.arange(count), mask=is_tombstone)
    columns = [
        pa.array(np.full(count, 1_000_000 + first_offset), pa.timestamp("ms", tz="UTC")),
        fixed_binary(key_words),
        fixed_binary(values).take(kept),
        pa.nulls(count, PAYLOAD_SCHEMA.field("headers").type),
    ]
    return NewRecordBatch(pa.Table.from_arrays(columns, schema=PAYLOAD_SCHEMA))


def fill(log: PartitionLog, keys: np.ndarray, is_tombstone: np.ndarray) -> None:
    log.exists_or_create("topic-id")
    log.start_epoch(0, as_leader=True)
    rng = np.random.default_rng(1)
    for first in range(0, RECORDS, BATCH):
        part = slice(first, first + BATCH)
        outcome = log.append([batch_of(keys[part], first, is_tombstone[part], rng)], 0, 1_000_000 + first)
        assert isinstance(outcome, Appended)


def offsets_shown(log: PartitionLog, keys: np.ndarray, is_tombstone: np.ndarray) -> np.ndarray:
    """Every offset from the start to the end; each record is the one that was sent there."""
    found = []
    for rows in log.read_range(0, log.log_end_offset, 8 << 20):
        offsets = rows["offset"].to_numpy()
        assert np.array_equal(rows["value"].is_null().to_numpy(), is_tombstone[offsets])
        written = bytes_of(rows["value"].combine_chunks().drop_null(), VALUE_BYTES)[:, :8].copy().view(np.int64)[:, 0]
        assert np.array_equal(written, offsets[~is_tombstone[offsets]])
        named = bytes_of(rows["key"].combine_chunks(), KEY_BYTES).copy().view(f"S{KEY_BYTES}")[:, 0]
        assert np.array_equal(named, names_of(keys[offsets]))
        found.append(offsets)
    return np.concatenate(found)


def offsets_expected(keys: np.ndarray, end_offset: int) -> np.ndarray:
    """The naive result: the last offset of each key below the active segment, and all offsets of that."""
    last = {key: offset for offset, key in enumerate(keys[:end_offset].tolist())}
    return np.array([*sorted(last.values()), *range(end_offset, RECORDS)])


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(600)
def test_five_million_records_are_compacted_in_bounded_memory_while_a_consumer_reads(tmp_path, capsys):
    rng = np.random.default_rng(7)
    keys, is_tombstone = rng.integers(0, KEYS, RECORDS), rng.random(RECORDS) < 0.01
    log = open_log(tmp_path)
    fill(log, keys, is_tombstone)
    active = log.segments[-1].base_offset
    cleaning = subprocess.Popen(
        [sys.executable, "-m", "tests.storage.cleaning_process", str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE
    )
    reader, seen = open_log(tmp_path), []
    while cleaning.poll() is None:
        seen.append(len(offsets_shown(reader, keys, is_tombstone)))
    taken = json.loads(cleaning.communicate()[0])
    assert cleaning.returncode == 0
    log.refresh()
    assert np.array_equal(offsets_shown(log, keys, is_tombstone), offsets_expected(keys, active))
    assert log.state.cleaner.first_dirty_offset == active
    assert log.log_end_offset == RECORDS
    with capsys.disabled():
        print(f"\ncompaction of {RECORDS} records: {taken}, {len(seen)} times read meanwhile: {seen}")
    assert taken["peak_mib"] <= PEAK_MIB_MAX
