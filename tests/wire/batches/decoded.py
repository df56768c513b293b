"""Batches with the offsets of their append."""

from __future__ import annotations

from stratalog.wire.batches.headers import Buffer, start_in_log


def with_offsets(data: Buffer, base_offset: int, leader_epoch: int) -> bytes:
    """The batch with the base offset and leader epoch of its append, as it stands in the log."""
    start = start_in_log(data, base_offset, leader_epoch)
    return b"".join((start, memoryview(data)[len(start) :]))
