"""The codec of a data file: the topic's `compression.type`, or one that suits the file. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from stratalog.storage.topic_config import LogConfig

UNCOMPRESSED = "uncompressed"
ZSTD = "zstd"
GZIP_DEFAULT_LEVEL = -1
PRODUCER = "producer"
NO_COMPRESSION = "none"
"""A producer's `compression.type` when it compresses nothing; a topic calls the same `uncompressed`."""
SMALL_FILE_BYTES = 64 * 1024
"""Size below which a codec's set-up for each column costs more than it saves: the file will be merged soon."""


def codec_of_append(topic_codec: str, producer_codecs: Iterable[str], size_bytes: int) -> str:
    """The codec of a file of appended batches.

    topic_codec      the topic's `compression.type`
    producer_codecs  each batch's `compression.type`, as its producer set it
    size_bytes       Arrow bytes of the rows
    """
    if topic_codec != PRODUCER:
        return topic_codec
    if size_bytes < SMALL_FILE_BYTES:
        return UNCOMPRESSED
    return next((codec for codec in producer_codecs if codec != NO_COMPRESSION), UNCOMPRESSED)


def codec_of_merge(config: LogConfig) -> str:
    """The codec, with its level, of a file that a merge or compaction writes in place of others.

    The codec is `compression.type`, and zstd for `producer`, since these files stay. The level is that of
    `compression.gzip.level`, `compression.lz4.level` or `compression.zstd.level`.

    >>> codec_of_merge(LogConfig()), codec_of_merge(LogConfig(compression_type="snappy"))
    ('zstd:3', 'snappy')
    """
    codec = ZSTD if config.compression_type == PRODUCER else config.compression_type
    gzip_level = config.compression_gzip_level
    levels = {
        "gzip": None if gzip_level == GZIP_DEFAULT_LEVEL else gzip_level,
        "lz4": config.compression_lz4_level,
        ZSTD: config.compression_zstd_level,
    }
    level = levels.get(codec)
    return codec if level is None else f"{codec}:{level}"
