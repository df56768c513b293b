"""One turn of a broker's loop after the other: what is still to be done. Pure.

Like the `Ready` of etcd's raft: the steps of a turn fill it, and the broker performs it at the turn's end, in the order
in which others may see it: new ISRs, log ends and high watermarks, answers. What a store that is away prevents stays
for the next turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from stratalog.replication.metadata.records import (
    ConfigRecord,
    EraseRecord,
    MetadataRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from stratalog.storage.records import TopicPartition


@dataclass(slots=True)
class Turn:
    """The work of one turn, and what is left of the turns before it.

    begun_ms     when the turn began
    to_apply     partitions whose newest state the replicas here do not show yet; `applies_all`: of all partitions.
                 Invariant: a partition leaves it only after its state was applied
    to_start     leaders whose epoch is to begin, in the order in which they were elected
    to_expand    partitions whose followers progressed: their ISR may grow
    to_publish   partitions whose log end, log start or high watermark moved. Invariant: only a publication that
                 succeeded empties it
    to_complete  partitions whose waiting requests may be answered. Invariant: none is answered before what was in
                 `to_publish` at that time was published
    has_more     whether some step of this turn was cut off: the next turn follows at once
    """

    begun_ms: int = 0
    to_apply: set[TopicPartition] = field(default_factory=set)
    applies_all: bool = True
    to_start: dict[TopicPartition, None] = field(default_factory=dict)
    to_expand: set[TopicPartition] = field(default_factory=set)
    to_publish: set[TopicPartition] = field(default_factory=set)
    to_complete: set[TopicPartition] = field(default_factory=set)
    has_more: bool = False

    def begin(self, begun_ms: int) -> None:
        """The next turn begins, with what is left of this one."""
        self.begun_ms, self.has_more = begun_ms, False

    def metadata_changed(
        self, changed: Iterable[MetadataRecord], partitions: Callable[[], Iterable[TopicPartition]]
    ) -> None:
        """Newly folded records of the metadata log; `partitions` are all that the image or this broker knows.

        Filled before anything can fail: what was folded once is not reported again.
        """
        topics: set[str] = set()
        for record in changed:
            match record:
                case PartitionRecord():
                    self.to_apply.add(record.topic_partition)
                case TopicRecord() | RemoveTopicRecord():
                    topics.add(record.name)
                case ConfigRecord() if record.is_of_all_topics:
                    self.applies_all = True
                case ConfigRecord() | EraseRecord():
                    topics.add(record.topic)
        if topics or self.applies_all:
            self.to_apply |= {each for each in partitions() if self.applies_all or each.topic in topics}
            self.applies_all = False

    def start(self, topic_partition: TopicPartition) -> None:
        """A leader was elected here."""
        self.to_start.pop(topic_partition, None)
        self.to_start[topic_partition] = None
