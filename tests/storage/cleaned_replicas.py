"""Three replicas of a compacted partition, the records sent to each, and the events of random histories."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, Generic, TypeVar

from stratalog.storage.delta.table import Committed
from stratalog.storage.log.copy import Copied
from stratalog.storage.log.leader_epochs import LeaderEpochCache
from stratalog.storage.log.partition_log import PartitionLog
from stratalog.storage.topic_config import LogConfig
from stratalog.storage.upkeep.chore import UpkeepLimits, Work
from stratalog.storage.upkeep.cleaner import Cleaner, CleanerTurn
from stratalog.storage.upkeep.upkeep import Upkeep
from tests.storage.keyed import compacted, view_of
from tests.storage.logs import Replicas

BROKERS = ("1", "2", "3")
LIMITS = UpkeepLimits(checkpoint_commits=5, keep_commits=3, keep_ms=30_000, merge_files_min=2, merge_spread_files=0)
COPY_BYTES = (0, 500, 1 << 30)

Sent = TypeVar("Sent")
"""The record at one offset."""


def config_of(delete_retention_ms: int) -> LogConfig:
    return compacted(
        segment_files_max=4,
        min_cleanable_dirty_ratio=0.1,
        delete_retention_ms=delete_retention_ms,
        file_delete_delay_ms=0,
        stratalog_snapshot_retention_ms=0,
    )


class CleanedReplicas(ABC, Generic[Sent]):
    """The third replica is out of sync for most of the time, so it misses tombstones and markers."""

    def __init__(self, rng: random.Random, root: Path | None, config: LogConfig) -> None:
        self.rng = rng
        self.config = config
        self.replicas = Replicas.new(root)
        self.logs = {broker: self.replicas.log(broker, config) for broker in BROKERS}
        self.sent: dict[str, list[Sent]] = {broker: [] for broker in BROKERS}
        self.work: dict[str, Work[Any] | None] = dict.fromkeys(BROKERS)
        self.leader, self.epoch, self.values = "1", -1, 0
        self.restart_cleaners()
        self.elect()

    def restart_cleaners(self) -> None:
        """Make new cleaners, without a pass in progress, as after a start."""
        self.cleaners = {b: Cleaner(log, CleanerTurn(), 200) for b, log in self.logs.items()}
        self.upkeeps = {b: Upkeep(log, LIMITS, cleans_below=lambda: 0) for b, log in self.logs.items()}

    @property
    def follower(self) -> str:
        return "2" if self.leader == "1" else "1"

    @property
    def now_ms(self) -> int:
        return self.replicas.clock.now_ms

    @property
    def high_watermark(self) -> int:
        return min(len(self.sent["1"]), len(self.sent["2"]))

    def elect(self) -> None:
        self.epoch += 1
        self.leader = self.rng.choice(["1", "2"])
        leader = self.logs[self.leader]
        assert isinstance(leader.start_epoch(self.epoch, as_leader=True), Committed)
        for broker in (self.follower, "3"):
            own = self.logs[broker]
            cut = LeaderEpochCache.agreed_end(
                own.epochs, own.log_end_offset, leader.epochs, leader.log_end_offset, leader.log_start_offset
            )
            assert isinstance(own.start_epoch(self.epoch, as_leader=False, truncate_to=cut), Committed)
            del self.sent[broker][cut:]
            assert self.sent[broker] == self.sent[self.leader][:cut]

    def copy(self) -> None:
        own = self.sent[self.follower]
        outcome = self.logs[self.follower].copy_from(self.logs[self.leader], self.epoch, self.rng.choice(COPY_BYTES))
        assert isinstance(outcome, Copied)
        assert outcome.start_offset == len(own)
        own += self.sent[self.leader][len(own) : outcome.end_offset]

    def copy_late(self) -> None:
        """The third replica comes back for a round, or until it has everything."""
        own, leader = self.logs["3"], self.logs[self.leader]
        for _ in range(self.rng.choice([0, 1, 100])):
            if own.log_end_offset < leader.log_end_offset:
                assert isinstance(own.copy_from(leader, self.epoch, self.rng.choice(COPY_BYTES)), Copied)
        self.sent["3"] = self.sent[self.leader][: own.log_end_offset]
        if own.log_end_offset == leader.log_end_offset:
            self.check_replica("3", own)

    def clean_on(self, broker: str) -> None:
        """The next piece of a pass; any event may happen between two pieces."""
        work = self.work[broker]
        if work is None:
            high_watermark = min(self.high_watermark, len(self.sent[broker]))
            done = self.cleaners[broker].begin(view_of(self.logs[broker], self.now_ms, high_watermark))
        else:
            done = work.finish(work.run())
        self.work[broker] = done if isinstance(done, Work) else None

    def upkeep(self) -> None:
        broker = self.rng.choice(BROKERS)
        if self.work[broker] is None:
            for _ in range(3):
                self.upkeeps[broker].step(self.now_ms, self.high_watermark, self.epoch)

    def check(self) -> None:
        """A reader from the start, also in the middle of a pass, receives the records that were sent."""
        broker = self.rng.choice(["1", "2"])
        self.check_replica(broker, self.rng.choice([self.logs[broker], self.replicas.log(broker, self.config)]))

    @abstractmethod
    def check_replica(self, broker: str, log: PartitionLog) -> None:
        """The records that a reader of the replica must receive."""
