"""The order in which the partitions that a broker leads append. Pure."""

from __future__ import annotations

from stratalog.storage.records import TopicPartition


class WaitingPartitions:
    """The partitions with requests that wait, in the order in which they append: senders take turns.

    A sender that writes to 100 partitions delays another one by one append at a time, not by 100. A partition waits in
    the line of the sender of its first request.
    """

    def __init__(self) -> None:
        self._lines: dict[str, dict[TopicPartition, None]] = {}
        self._senders: dict[TopicPartition, str] = {}

    def __len__(self) -> int:
        return len(self._senders)

    def add(self, topic_partition: TopicPartition, sender: str) -> None:
        """It waits behind the sender's others, unless it waits already."""
        if self._senders.setdefault(topic_partition, sender) is sender:
            self._lines.setdefault(sender, {})[topic_partition] = None

    def take(self, count: int) -> list[TopicPartition]:
        """The next ones, which wait no longer; the first sender's next one is behind the other senders' then."""
        taken: list[TopicPartition] = []
        while self._lines and len(taken) < count:
            sender = next(iter(self._lines))
            line = self._lines.pop(sender)
            taken.append(next(iter(line)))
            del line[taken[-1]], self._senders[taken[-1]]
            if line:
                self._lines[sender] = line
        return taken
