"""The codec of a data file: the topic's `compression.type`, or one that suits the file. Pure."""

from __future__ import annotations

from collections.abc import Iterable

UNCOMPRESSED = "uncompressed"
ZSTD = "zstd"
ZSTD_FOR_GOOD = "zstd:9"
"""The codec of files that stay, with its level: the smaller file is worth its CPU."""
PRODUCER = "producer"
NO_COMPRESSION = "none"
"""A producer's `compression.type` when it compresses nothing; a topic calls the same `uncompressed`."""
SMALL_FILE_BYTES = 64 * 1024
"""Size below which a codec's set-up for each column costs more than it saves: the file will be merged soon."""
TINY_FILE_BYTES = 8 * 1024
"""Mean size of merged files below which they were appended one by one, and their merge uses level 1."""


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


def codec_of_merge(topic_codec: str, mean_bytes: int = TINY_FILE_BYTES) -> str:
    """The codec of a file that replaces others of `mean_bytes` on average. A file made of tiny ones is merged again
    soon, and not worth the time of the best level."""
    if topic_codec not in (PRODUCER, ZSTD):
        return topic_codec
    return ZSTD if mean_bytes < TINY_FILE_BYTES else ZSTD_FOR_GOOD
