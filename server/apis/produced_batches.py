"""The batches of a Produce request, read where that holds up nobody, within bounds of what they decompress to.

I/O: waits for memory. Few small batches are read in the thread that has read the request, up to `AT_HAND_BYTES_MAX`;
the others in a thread for that, one at a time. A compressed kilobyte may hold gigabytes: what a request decompresses to
is bounded, and so is what all requests have decompressed and not appended yet.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace

from stratalog.replication.requests.produce import SentBatch
from stratalog.server.batches.tail import uses_zstd
from stratalog.storage import errors
from stratalog.storage.errors import StratalogError
from stratalog.storage.files.codecs import NO_COMPRESSION
from stratalog.storage.records import NewRecordBatch
from stratalog.wire.batches.compression import DECOMPRESSED_BYTES_MAX
from stratalog.wire.batches.record_batches import decode_group, decode_produced, produced_header

ZSTD_FROM = 7
READ_TOGETHER_BYTES_MAX = 64 << 10
"""The size up to which batches are read together, in the broker's loop. Larger ones gain nothing from that and would
delay the loop, as decompressing would. Java producers send 16 KiB."""
AT_HAND_BYTES_MAX = 256 << 10
"""What of a request is read at once, as records, in the thread that has read it."""
AT_HAND_PARTITIONS_MAX = 64
"""The partitions of a request up to which the same is done."""


class DecodedMemory:
    """Bytes of batches that are decompressed and not appended, of one broker. Any thread may use it."""

    def __init__(self, bytes_max: int) -> None:
        """`bytes_max` below 0: no limit."""
        self._bytes_max = bytes_max
        self._taken = 0
        self._is_closed = False
        self._changed = threading.Condition()

    @property
    def taken(self) -> int:
        return self._taken

    def take(self, count: int) -> None:
        """Wait for room, and take bytes: one taker may exceed the limit."""
        with self._changed:
            while 0 <= self._bytes_max <= self._taken and not self._is_closed:
                self._changed.wait()
            self._taken += count

    def release(self, count: int) -> None:
        """Return bytes."""
        with self._changed:
            self._taken -= count
            self._changed.notify()

    def close(self) -> None:
        """Nobody waits any more."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()


@dataclass(slots=True)
class BatchesAtHand:
    """Reads the batches of one request at once, while there is room. `is_over`: one did not fit."""

    version: int
    left_bytes: int = AT_HAND_BYTES_MAX
    is_over: bool = False

    def read(self, records: bytes | memoryview | None) -> NewRecordBatch | SentBatch:
        """The batch of a partition. What `_checked` raises; any StratalogError when it does not fit."""
        self.left_bytes -= len(records or b"")
        if self.left_bytes < 0:
            self.is_over = True
            raise errors.RecordTooLargeError("more than is read at once")
        checked, compression_type = _checked(self.version, records)
        if compression_type == NO_COMPRESSION and len(checked.data) <= READ_TOGETHER_BYTES_MAX:
            self.left_bytes += len(checked.data)  # the broker's loop reads it
            return checked
        try:
            batch = decode_produced(checked.data, self.left_bytes)
        except errors.RecordTooLargeError:
            self.is_over = True
            raise
        self.left_bytes -= batch.size_bytes
        return batch


@dataclass(slots=True)
class BatchesInThread:
    """Reads the batches of one request one by one, in a thread that may wait.

    left_bytes  that the rest of the request may decompress to: `stratalog.produce.max.decoded.bytes` at first
    """

    version: int
    memory: DecodedMemory
    left_bytes: int

    def read(self, records: bytes | memoryview | None) -> tuple[NewRecordBatch | SentBatch, int]:
        """The batch of a partition, and the bytes to `release` once it is appended.

        Raises what `_checked` raises, RecordTooLargeError for a batch of more than 16 MiB, and RecordListTooLargeError
        when the request's batches decompress to too much together.
        """
        checked, compression_type = _checked(self.version, records)
        if compression_type == NO_COMPRESSION and len(checked.data) <= READ_TOGETHER_BYTES_MAX:
            return checked, 0
        if compression_type == NO_COMPRESSION:
            return decode_produced(checked.data), 0  # its bytes are counted as the request's
        bytes_max = min(DECOMPRESSED_BYTES_MAX, self.left_bytes)
        if bytes_max <= 0:
            raise self._beyond()
        self.memory.take(bytes_max)
        taken = bytes_max
        try:
            batch = decode_produced(checked.data, bytes_max)
            taken = batch.size_bytes
        except errors.RecordTooLargeError:
            self.left_bytes -= bytes_max  # that was the work
            taken = 0
            if bytes_max < DECOMPRESSED_BYTES_MAX:
                raise self._beyond() from None
            raise
        except StratalogError:
            taken = 0
            raise
        finally:
            self.memory.release(bytes_max - taken)
        self.left_bytes -= taken
        return batch, taken

    def _beyond(self) -> StratalogError:
        return errors.RecordListTooLargeError(
            "the batches of the request decompress to more than stratalog.produce.max.decoded.bytes"
        )


def _checked(version: int, records: bytes | memoryview | None) -> tuple[SentBatch, str]:
    """The one batch of a partition, whose records are not read, and its codec. InvalidRecordError, …"""
    if not records:
        raise errors.InvalidRecordError(
            f"Produce requests with version {version} must have at least one record batch per partition"
        )
    header = produced_header(records)
    if version < ZSTD_FROM and uses_zstd(records):
        raise errors.UnsupportedCompressionTypeError(
            f"Produce requests with version {version} are not allowed to use ZStandard compression"
        )
    sent = SentBatch(records, header.producer_id, header.producer_epoch, header.attributes, _read_together)
    return sent, header.compression_type


def _read_together(sent: Sequence[SentBatch]) -> list[NewRecordBatch | StratalogError]:
    read = decode_group([each.data for each in sent])
    return [
        replace(batch, verified_offset=each.verified_offset, verified_leader_epoch=each.verified_leader_epoch)
        if each.verified_offset >= 0 and isinstance(batch, NewRecordBatch)
        else batch
        for each, batch in zip(sent, read, strict=True)
    ]
