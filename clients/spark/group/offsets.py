"""What a query in a group commits, and where it begins. Pure.

An offset is the next one to read, in the group's committed offsets as in Spark's checkpoint.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from stratalog.storage.errors import OffsetOutOfRangeError
from stratalog.storage.records import TopicPartition

Offsets = Mapping[TopicPartition, int]

SET_RESET_POLICY = "Set stratalog.auto.offset.reset to earliest or latest, or reset the group's offsets."
RENEW_MS = 600_000
"""Pause after which all offsets are committed again: a partition without records would lose its offset after
`offsets.retention.minutes`, which counts from the last commit where a group has no members."""


@dataclass(frozen=True, slots=True)
class OffsetBounds:
    """Where reading may begin: `earliest` and `latest` of each partition, and `auto.offset.reset`.

    ends_at_lso  `latest` is the last stable offset. A committed offset above it was another reader's, of uncommitted
                 records: reading begins at `latest` then, and skips nothing
    """

    earliest: Offsets
    latest: Offsets
    reset: str = "latest"
    ends_at_lso: bool = False

    def start(self, topic_partition: TopicPartition, committed: int | None) -> int:
        """Where reading begins for a committed offset, None if there is none.

        OffsetOutOfRangeError where neither it nor `auto.offset.reset=none` decides, in words of Kafka's consumer.
        """
        earliest, latest = self.earliest[topic_partition], self.latest[topic_partition]
        if committed is not None and earliest <= committed <= latest:
            return committed
        if committed is not None and committed > latest and self.ends_at_lso:
            return latest
        if self.reset == "none":
            if committed is None:
                raise OffsetOutOfRangeError(
                    f"Undefined offset with no reset policy for partitions: [{topic_partition}]. {SET_RESET_POLICY}"
                )
            raise OffsetOutOfRangeError(
                f"Fetch position out of range with no reset policy for partitions: {{{topic_partition}={committed}}}. "
                f"{SET_RESET_POLICY}"
            )
        return earliest if self.reset == "earliest" else latest


@dataclass(slots=True)
class CommitProgress:
    """How far a query's offsets are committed: `wanted` by the query, `stored` in the group.

    >>> progress = CommitProgress()
    >>> progress.want({TopicPartition("t", 0): 5, TopicPartition("t", 1): 2})
    >>> progress.stored_now(progress.due(now_ms=0), now_ms=0)
    >>> progress.want({TopicPartition("t", 0): 9, TopicPartition("t", 1): 2})
    >>> progress.due(now_ms=1)
    {TopicPartition(topic='t', partition=0): 9}
    """

    wanted: dict[TopicPartition, int] = field(default_factory=dict)
    stored: dict[TopicPartition, int] = field(default_factory=dict)
    renewed_ms: int | None = None

    def want(self, offsets: Offsets) -> None:
        """The query has stored everything below these offsets; others are not its own any more."""
        self.wanted = dict(offsets)

    def due(self, now_ms: int) -> dict[TopicPartition, int]:
        """What has to be committed now: offsets that changed, and every `RENEW_MS` all."""
        if self.renewed_ms is None or now_ms - self.renewed_ms >= RENEW_MS:
            return dict(self.wanted)
        return {tp: offset for tp, offset in self.wanted.items() if self.stored.get(tp) != offset}

    def stored_now(self, sent: Offsets, now_ms: int) -> None:
        """The coordinator has stored these."""
        if self.renewed_ms is None or now_ms - self.renewed_ms >= RENEW_MS:
            self.renewed_ms = now_ms
        self.stored.update(sent)
