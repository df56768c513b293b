"""What a controller counts, for its metrics. Pure.

Source: Kafka's `ControllerStats`, `QuorumControllerMetrics`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from stratalog.replication.metadata.records import NO_LEADER, PartitionRecord
from stratalog.replication.metrics import Histogram


@dataclass(slots=True)
class ControllerCounts:
    """What a candidate counts while it is the controller; other threads read the numbers.

    elections_won     controller epochs that it began
    expired_sessions  brokers that it fenced since their session did not change
    leader_elections  partitions that got another leader, by whoever's commit
    unclean_elections those of them in which records may be lost
    step_time         of each turn
    """

    elections_won: int = 0
    expired_sessions: int = 0
    leader_elections: int = 0
    unclean_elections: int = 0
    step_time: Histogram = field(default_factory=Histogram)

    def count(self, before: PartitionRecord | None, after: PartitionRecord) -> None:
        """A partition's state was replaced."""
        if before is not None:
            self.leader_elections += after.leader not in (before.leader, NO_LEADER)
            self.unclean_elections += max(0, after.unclean - before.unclean)
