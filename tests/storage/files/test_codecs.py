"""A data file's codec is the topic's, or what suits its size and what the producers asked for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from stratalog.storage.files.codecs import SMALL_FILE_BYTES, TINY_FILE_BYTES, codec_of_append, codec_of_merge
from stratalog.storage.topic_config import LogConfig
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
    ("topic", "mean_bytes", "expected"),
    [
        ("producer", TINY_FILE_BYTES, "zstd:9"),
        ("zstd", 1 << 20, "zstd:9"),
        ("producer", TINY_FILE_BYTES - 1, "zstd"),
        ("snappy", 10, "snappy"),
    ],
)
def test_the_codec_of_a_merged_file(topic: str, mean_bytes: int, expected: str) -> None:
    assert codec_of_merge(topic, mean_bytes) == expected


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
