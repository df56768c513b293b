"""What a leader knows of its log in memory, for threads beside the broker's loop. Pure.

Source: Kafka's `LogOffsetSnapshot`, `Partition.fetchOffsetSnapshot`.
"""

from __future__ import annotations

from dataclasses import dataclass

from stratalog.storage.log.leader_epochs import LeaderEpochCache
from stratalog.storage.transactions import LastStableOffset, Transactions


@dataclass(frozen=True, slots=True)
class LogOffsetSnapshot:
    """A led log after its newest append, made by the loop before that is answered: no client knows a later offset.

    epochs        the starts of leader epochs, the leader's own among them
    transactions  None while they are not known without reading producer state
    stable        the computation that `last_stable_offset` continues
    """

    leader_epoch: int
    log_end_offset: int
    epochs: LeaderEpochCache
    transactions: Transactions | None
    stable: LastStableOffset

    def last_stable_offset(self, high_watermark: int) -> int | None:
        """The offset below which the outcome of every transaction is known, at a high watermark that was published;
        None while it is not known without reading the log.

        Not above the end of this log: a high watermark beyond it is of a leader epoch of which nothing is known here.
        """
        if self.transactions is None:
            return None
        return self.stable.of(self.transactions, min(high_watermark, self.log_end_offset))
