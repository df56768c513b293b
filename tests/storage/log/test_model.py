"""A log against a plain list: random appends, copies, merges, checkpoints, clean-ups, retention, truncations, reads."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from stratalog.storage.delta.table import Committed, Conflict
from stratalog.storage.errors import OffsetOutOfRangeError
from stratalog.storage.log.append import Appended, BatchAppended
from stratalog.storage.log.copy import Copied
from stratalog.storage.log.leader_epochs import LeaderEpochCache
from stratalog.storage.log.partition_log import PartitionLog
from stratalog.storage.topic_config import LogConfig
from stratalog.storage.upkeep.chore import UpkeepLimits
from stratalog.storage.upkeep.upkeep import Upkeep
from tests.storage.logs import Replicas, batch, contents, idempotent

LIMITS = UpkeepLimits(checkpoint_commits=5, keep_commits=3, keep_ms=30_000, retention_check_ms=20_000)
CONFIG = LogConfig.from_properties(
    {"segment.files.max": 20, "file.delete.delay.ms": 0, "stratalog.snapshot.retention.ms": 0}
)
EXPIRING = LogConfig.from_properties({**CONFIG.overrides, "segment.files.max": 5, "retention.bytes": 4_000})


class Model:
    """Two brokers' replicas, two instances on each, and the records of the leader's log: (value, batch, epoch).

    `records` begin at offset 0, also after an expiry; `starts` are the log starts that were seen last.
    """

    def __init__(self, seed: int, root: Path | None, config: LogConfig = CONFIG) -> None:
        self.rng = random.Random(seed)
        self.config = config
        self.starts = {"1": 0, "2": 0}
        self.replicas = Replicas.new(root)
        self.logs = {b: [self.replicas.log(b, config) for _ in range(2)] for b in ("1", "2")}
        self.upkeeps = {b: [Upkeep(log, LIMITS) for log in logs] for b, logs in self.logs.items()}
        self.records: dict[str, list[tuple[str, int, int]]] = {"1": [], "2": []}
        self.leader = "1"
        self.epoch = -1
        self.words = 0
        self.sequence: dict[str, int] = {}
        self.elect()

    def either(self, broker: str) -> PartitionLog:
        return self.rng.choice(self.logs[broker])

    @property
    def follower(self) -> str:
        return "2" if self.leader == "1" else "1"

    def elect(self) -> None:
        """A new epoch: the leader begins it, the follower truncates to the common part."""
        self.epoch += 1
        self.leader = self.rng.choice(["1", "2"])
        leader, follower = self.either(self.leader), self.either(self.follower)
        leader.refresh()
        assert isinstance(leader.start_epoch(self.epoch, as_leader=True), Committed)
        follower.refresh()
        cut = LeaderEpochCache.agreed_end(
            follower.epochs, follower.log_end_offset, leader.epochs, leader.log_end_offset, leader.log_start_offset
        )
        assert isinstance(follower.start_epoch(self.epoch, as_leader=False, truncate_to=cut), Committed)
        self.followed_to(cut, leader, follower)

    def followed_to(self, cut: int, leader: PartitionLog, follower: PartitionLog) -> None:
        """The follower was truncated: where both logs have records, they agree."""
        ours, theirs = self.records[self.leader], self.records[self.follower]
        del theirs[cut:]
        self.starts[self.follower] = min(self.starts[self.follower], follower.log_start_offset)
        start = max(leader.log_start_offset, follower.log_start_offset)
        assert theirs[start:] == ours[start:cut]

    def append(self) -> None:
        log = self.either(self.leader)
        batches, own = [], self.records[self.leader]
        for _ in range(self.rng.randint(1, 3)):
            words = [str(self.words + i) for i in range(self.rng.randint(1, 4))]
            self.words += len(words)
            batches.append(batch(words))
        if log.leader_epoch != self.epoch:
            log.refresh()
        outcome = log.append(batches, self.epoch, self.replicas.clock.wall_ms())
        if isinstance(outcome, Conflict):
            assert log.refresh()
            outcome = log.append(batches, self.epoch, self.replicas.clock.wall_ms())
        assert isinstance(outcome, Appended)
        for new, result in zip(batches, outcome.results, strict=True):
            assert result == BatchAppended(len(own), len(own) + new.record_count - 1)
            own += [(v.decode(), result.base_offset, self.epoch) for v in new.payload["value"].to_pylist()]

    def append_idempotent(self) -> None:
        """A separate producer per epoch, whose next sequence the leader knows; each batch is sent twice."""
        log = self.either(self.leader)
        log.refresh()
        own = self.records[self.leader]
        sequence = sum(1 for value, _, epoch in own if value == "p" and epoch == self.epoch)
        new = idempotent("p" * self.rng.randint(1, 3), sequence, producer_id=100 + self.epoch)
        first = BatchAppended(len(own), len(own) + new.record_count - 1)
        for expected in (first, BatchAppended(first.base_offset, first.last_offset, duplicate=True)):
            outcome = log.append([new], self.epoch, self.replicas.clock.wall_ms())
            assert isinstance(outcome, Appended)
            assert outcome.results == (expected,)
        own += [("p", first.base_offset, self.epoch)] * new.record_count

    def copy(self) -> None:
        leader, follower = self.either(self.leader), self.either(self.follower)
        leader.refresh()
        follower.refresh()
        outcome = follower.copy_from(leader, self.epoch, self.rng.choice([0, 2_000, 1 << 30]))
        assert isinstance(outcome, Copied)
        own = self.records[self.follower]
        assert outcome.start_offset == max(len(own), leader.log_start_offset)
        own += self.records[self.leader][len(own) : outcome.end_offset]
        assert follower.log_start_offset >= min(leader.log_start_offset, outcome.end_offset)

    def upkeep(self) -> None:
        broker = self.rng.choice(["1", "2"])
        upkeep = self.rng.choice(self.upkeeps[broker])
        high_watermark = min(len(records) for records in self.records.values())
        for _ in range(3):
            before = upkeep.log.log_start_offset
            upkeep.step(self.replicas.clock.wall_ms(), high_watermark, self.epoch)
            assert before <= upkeep.log.log_start_offset <= max(before, high_watermark)

    def unclean(self) -> None:
        """The leader loses its tail: a cut in the middle of anything, at a batch boundary in the end."""
        log, own = self.either(self.leader), self.records[self.leader]
        log.refresh()
        cut = self.rng.randint(max(0, len(own) - 10), len(own))
        if cut < len(own):
            cut = own[cut][1]
        self.epoch += 1
        assert isinstance(log.start_epoch(self.epoch, as_leader=True, truncate_to=cut), Committed)
        del own[cut:]
        self.starts[self.leader] = min(self.starts[self.leader], cut)
        other = self.either(self.follower)
        other.refresh()
        agreed = LeaderEpochCache.agreed_end(
            other.epochs, other.log_end_offset, log.epochs, log.log_end_offset, log.log_start_offset
        )
        other.start_epoch(self.epoch, as_leader=False, truncate_to=agreed)
        self.followed_to(agreed, log, other)

    def check(self) -> None:
        """Any instance, refreshed or not after a pause, reads the list; so does a new one."""
        broker = self.rng.choice(["1", "2"])
        self.replicas.clock.sleep_ms(20_000)
        log = self.rng.choice([self.either(broker), self.replicas.log(broker, self.config)])
        log.refresh()
        own = self.records[broker]
        assert self.starts[broker] <= log.log_start_offset <= len(own) == log.log_end_offset
        self.starts[broker] = log.log_start_offset
        assert contents(log) == [(i, value) for i, (value, _, _) in enumerate(own)][log.log_start_offset :]
        start = self.rng.randint(log.log_start_offset, len(own))
        table = log.read(start, self.rng.choice([0, 3_000]), self.rng.randint(start, len(own) + 2))
        for row in table.select(["offset", "batch_base_offset", "leader_epoch"]).to_pylist():
            assert own[row["offset"]][1:] == (row["batch_base_offset"], row["leader_epoch"])
        with pytest.raises(OffsetOutOfRangeError):
            log.read(len(own) + 1, 1)

    def run(self, steps: int) -> None:
        actions = [self.append] * 6 + [self.append_idempotent] * 2 + [self.copy] * 5 + [self.upkeep] * 5
        actions += [self.check] * 2 + [self.elect, self.unclean]
        for _ in range(steps):
            self.replicas.clock.sleep_ms(3_000)
            self.rng.choice(actions)()
        self.check()


@pytest.mark.parametrize("seed", range(40))
def test_a_log_in_memory_is_a_list(seed):
    Model(seed, None).run(150)


@pytest.mark.parametrize("seed", range(4))
def test_a_log_on_delta_is_a_list(seed, tmp_path):
    Model(seed, tmp_path).run(100)


@pytest.mark.parametrize("seed", range(20))
def test_a_log_with_retention_is_the_end_of_a_list(seed):
    model = Model(seed, None, EXPIRING)
    model.run(300)
    assert max(model.starts.values()) > 0
