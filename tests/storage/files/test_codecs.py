"""A data file's codec is the topic's, or what suits its size and what the producers asked for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from stratalog.storage.files.batch_file import decode, encode, file_path
from stratalog.storage.files.codecs import SMALL_FILE_BYTES, codec_of_append, codec_of_merge
from stratalog.storage.records import data_table
from stratalog.storage.topic_config import LogConfig
from stratalog.storage.upkeep.chore import UpkeepLimits
from stratalog.storage.upkeep.upkeep import Upkeep
from tests.storage.logs import Replicas, append, batch


@pytest.mark.parametrize(
    ("topic", "producers", "size_bytes", "expected"),
    [
        ("producer", ("none",), 10, "uncompressed"),
        ("producer", ("zstd",), SMALL_FILE_BYTES - 1, "uncompressed"),
        ("producer", ("zstd",), SMALL_FILE_BYTES, "zstd"),
        ("producer", ("none", "none"), 1_000_000, "uncompressed"),
        ("producer", ("none", "lz4", "gzip"), 1_000_000, "lz4"),
        ("gzip", ("none",), 10, "gzip"),
        ("uncompressed", ("zstd",), 1_000_000, "uncompressed"),
    ],
)
def test_the_codec_of_an_append(topic: str, producers: tuple[str, ...], size_bytes: int, expected: str) -> None:
    assert codec_of_append(topic, producers, size_bytes) == expected


@pytest.mark.parametrize(
    ("configs", "expected"),
    [
        ({}, "zstd:3"),
        ({"compression.type": "zstd", "compression.zstd.level": "12"}, "zstd:12"),
        ({"compression.type": "gzip"}, "gzip"),
        ({"compression.type": "gzip", "compression.gzip.level": "9", "compression.zstd.level": "12"}, "gzip:9"),
        ({"compression.type": "lz4"}, "lz4:9"),
        ({"compression.type": "snappy"}, "snappy"),
        ({"compression.type": "uncompressed"}, "uncompressed"),
    ],
)
def test_the_codec_of_a_merged_file(configs: dict[str, str], expected: str) -> None:
    assert codec_of_merge(LogConfig.from_properties(configs)) == expected


@pytest.mark.parametrize(
    ("codec", "level"), [("zstd", -131_072), ("zstd", 22), ("gzip", -1), ("gzip", 9), ("lz4", 1), ("lz4", 17)]
)
def test_files_are_written_at_every_level_that_a_topic_may_have(codec: str, level: int) -> None:
    config = LogConfig.from_properties({"compression.type": codec, f"compression.{codec}.level": str(level)})
    rows = data_table([batch(["x" * 1_000] * 40)])
    data, crc = encode(rows, codec_of_merge(config))
    assert decode(data, file_path(None, "f", crc)).equals(rows)


@pytest.mark.parametrize("level", [1, 19])
def test_a_merge_writes_at_the_topics_level(tmp_path: Path, level: int) -> None:
    log = Replicas.new(tmp_path).leader(config=LogConfig.from_properties({"compression.zstd.level": str(level)}))
    lines = [f"GET /{i * i % 97}/{i % 89} {i * 7_919 % 1_009}" for i in range(3_000)]
    for start in range(0, len(lines), 100):
        append(log, batch(lines[start : start + 100]))
    upkeep = Upkeep(log, UpkeepLimits(merge_files_min=16, merge_spread_files=0))
    assert upkeep.step(10_000, log.log_end_offset, 0) is not None
    assert len(log.files) == 1
    rows = log.table.read_file(log.files[0].file)
    assert log.files[0].file.size_bytes == len(encode(rows, f"zstd:{level}")[0]) != len(encode(rows, "zstd:9")[0])


@pytest.mark.parametrize(
    ("topic", "producer", "characters", "expected"),
    [
        ("producer", "none", 10, "UNCOMPRESSED"),
        ("producer", "zstd", 70_000, "ZSTD"),
        ("gzip", "none", 10, "GZIP"),
    ],
)
def test_an_append_writes_its_file_so(
    tmp_path: Path, topic: str, producer: str, characters: int, expected: str
) -> None:
    config = LogConfig.from_properties({"compression.type": topic})
    log = Replicas.new(tmp_path).leader(config=config)
    appended = append(log, replace(batch(["x" * characters]), compression_type=producer))
    parquet = pq.ParquetFile(pa.BufferReader(log.table.read_object(appended.files[0].path)))
    group = parquet.metadata.row_group(0)
    assert {group.column(i).compression for i in range(group.num_columns)} == {expected}
