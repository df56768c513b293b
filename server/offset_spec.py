"""The offset to look up in a partition, and the result: Kafka's OffsetSpec and ListOffsetsResultInfo. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from stratalog.storage.errors import InvalidRequestError

LATEST_TIMESTAMP = -1
EARLIEST_TIMESTAMP = -2
MAX_TIMESTAMP = -3
"""Timestamps with a special meaning in Kafka's ListOffsetsRequest (-3: KIP-734)."""
UNKNOWN_OFFSET = -1
NO_TIMESTAMP = -1


@dataclass(frozen=True, slots=True)
class OffsetSpec:
    """One of `earliest`, `latest`, `max_timestamp` and `for_timestamp`; `timestamp` is what Kafka's request holds.

    Raises InvalidRequestError for a negative number without a meaning.
    """

    timestamp: int

    def __post_init__(self) -> None:
        if self.timestamp < MAX_TIMESTAMP:
            raise InvalidRequestError(f"timestamp {self.timestamp} is neither a time nor one of -1, -2 and -3")

    @staticmethod
    def earliest() -> OffsetSpec:
        """The first offset that can still be read."""
        return OffsetSpec(EARLIEST_TIMESTAMP)

    @staticmethod
    def latest() -> OffsetSpec:
        """The high watermark: the offset after the last committed record."""
        return OffsetSpec(LATEST_TIMESTAMP)

    @staticmethod
    def max_timestamp() -> OffsetSpec:
        """The first committed record with the largest timestamp."""
        return OffsetSpec(MAX_TIMESTAMP)

    @staticmethod
    def for_timestamp(timestamp_ms: int) -> OffsetSpec:
        """The first committed record with this timestamp or a later one."""
        return OffsetSpec(timestamp_ms)


@dataclass(frozen=True, slots=True)
class ListedOffset:
    """`offset` -1: no record is at or after the time. `timestamp_ms` is the record's, -1 for earliest and latest.

    `leader_epoch` is that of the record, or of the leader for `latest`; None where it is not known.
    """

    offset: int
    timestamp_ms: int = NO_TIMESTAMP
    leader_epoch: int | None = None


@dataclass(frozen=True, slots=True)
class OffsetAndTimestamp:
    """The first record at or after a timestamp that was asked for."""

    offset: int
    timestamp_ms: int
