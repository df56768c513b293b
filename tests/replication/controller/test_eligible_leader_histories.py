"""One broker may lose its disk at any time, and with `min.insync.replicas` 2 nothing that was committed is lost.

A model of logs beside the real decisions (KIP-966): brokers copy, lag, are fenced and come back; broker 1 also loses
what it has. Whoever is elected has every committed record, unless one of the two rules is switched off.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from stratalog.replication.controller.brokers import (
    IsrChange,
    alter_partition,
    fence_brokers,
    online_partitions,
    register_broker,
)
from stratalog.replication.controller.election import eligible_leaders
from stratalog.replication.leader.partition import Partition
from stratalog.replication.metadata.records import NO_LEADER, PartitionRecord
from stratalog.replication.progress.progress import ReplicaProgress
from tests.replication.images import broker_epochs_of, commit, image_of, partition, state

BROKERS = (1, 2, 3)
FRAIL = 1
MIN_ISR = 2
HISTORIES = 150
STEPS = 150
LAG_MS_MAX = 1_000


class RecordLostError(AssertionError):
    """A committed record is not in a clean leader's log."""


class History:
    """A partition's records are numbers; a log is what a broker has of them, in order."""

    def __init__(self, seed: int, min_isr: int = MIN_ISR) -> None:
        self.random = random.Random(seed)
        self.image = image_of(BROKERS, partition(BROKERS, 1, BROKERS), min_isr=MIN_ISR)
        self.logs: dict[int, list[int]] = {i: [] for i in BROKERS}
        self.incarnations = {i: f"run-{i}" for i in BROKERS}
        self.committed: list[int] = []
        self.count = 0
        self.elections = 0
        self.led: Partition | None = None
        self._min_isr = min_isr
        self._follow()

    def run(self, steps: int) -> None:
        often: tuple[Callable[[], None], ...] = (self.append, self.copy, self.copy, self.join, self.return_)
        events = (*often * 3, self.shrink, self.fence, self.fence, self.ruin)
        for _ in range(steps):
            self.random.choice(events)()
            self._follow()

    def _follow(self) -> None:
        """The leader takes the committed state in, and says what is committed."""
        now = state(self.image)
        if now.leader == NO_LEADER:
            self.led = None
            return
        if self.led is None or self.led.leader_epoch != now.leader_epoch:
            self._begin(now)
        assert self.led is not None
        self.led.update_state(now, 0)
        if self.led.maybe_increment_high_watermark(10 * LAG_MS_MAX, LAG_MS_MAX):
            self.committed = self.logs[now.leader][: self.led.high_watermark]

    def _begin(self, now: PartitionRecord) -> None:
        log = self.logs[now.leader]
        self.elections += 1
        if log[: len(self.committed)] != self.committed:
            raise RecordLostError(f"{now}: has {log}, committed was {self.committed}")
        self.led = Partition(now, now.leader, len(log), 0, 0, self._min_isr)
        self.led.appended(len(log), 0)

    # -- what may happen -----------------------------------------------------------------------------------

    def append(self) -> None:
        if self.led is not None:
            self.count += 1
            self.logs[self.led.broker_id].append(self.count)
            self.led.appended(len(self.logs[self.led.broker_id]), 0)

    def copy(self) -> None:
        """A follower drops what its leader has not, then takes some records."""
        follower = self.random.choice(BROKERS)
        if self.led is None or follower == self.led.broker_id or follower not in self.image.live_brokers():
            return
        source, own = self.logs[self.led.broker_id], self.logs[follower]
        pairs = zip(source, own, strict=False)
        agreed = next((i for i, (one, other) in enumerate(pairs) if one != other), min(len(source), len(own)))
        end = agreed + self.random.randint(0, 3)
        self.logs[follower] = source[:end]
        progress = ReplicaProgress(self.led.state.topic_partition, self.led.leader_epoch, len(source[:end]), end)
        self.led.follower_progressed(follower, progress, 0)

    def join(self) -> None:
        if self.led is not None:
            joining = self.led.may_join(self.image.live_brokers())
            self._change((*self.led.isr, *sorted(joining)))

    def shrink(self) -> None:
        """A member lags: the leader takes it out."""
        if self.led is not None:
            lagging = self.random.choice(BROKERS)
            self._change(tuple(r for r in self.led.isr if r in (self.led.broker_id, *({*BROKERS} - {lagging}))))

    def _change(self, isr: tuple[int, ...]) -> None:
        assert self.led is not None
        now = state(self.image)
        epochs = broker_epochs_of(self.image)
        change = IsrChange(
            self.image.identified(now.topic_partition), now.leader_epoch, now.partition_epoch, isr, epochs
        )
        commit(self.image, alter_partition(self.image, now.leader, epochs[now.leader], [change]))

    def fence(self) -> None:
        broker_id = self.random.choice(BROKERS)
        commit(self.image, fence_brokers(self.image, {broker_id: self.image.brokers[broker_id].broker_epoch}))

    def return_(self) -> None:
        """The same process comes back: whatever it has, it has kept."""
        self._register(self.random.choice(BROKERS))

    def ruin(self) -> None:
        """The frail broker loses its disk, and is replaced at once, or later."""
        self.logs[FRAIL] = []
        self.incarnations[FRAIL] = f"run-{self.random.random()}"
        if self.random.random() < 0.5:
            commit(self.image, fence_brokers(self.image, {FRAIL: self.image.brokers[FRAIL].broker_epoch}))
        self._register(FRAIL)

    def _register(self, broker_id: int) -> None:
        """The leader hears of a new registration, and forgets what the broker had."""
        root, known = f"/data/{broker_id}", self.image.brokers[broker_id].broker_epoch
        epoch = commit(self.image, register_broker(self.image, broker_id, self.incarnations[broker_id], root))
        if self.led is not None and epoch != known:
            self.led.forget_follower(broker_id, 0)
        commit(self.image, online_partitions(self.image))


def lost(min_isr: int = MIN_ISR) -> int:
    """In how many histories a committed record was lost."""
    losses = 0
    for seed in range(HISTORIES):
        try:
            History(seed, min_isr).run(STEPS)
        except RecordLostError:
            losses += 1
    return losses


def test_one_broker_may_lose_its_disk_and_nothing_committed_is_lost() -> None:
    histories = [History(seed) for seed in range(HISTORIES)]
    for history in histories:
        history.run(STEPS)
    assert sum(history.elections for history in histories) > 5 * HISTORIES
    assert sum(len(history.committed) for history in histories) > 2 * HISTORIES, "records are committed"


def test_with_a_high_watermark_that_goes_on_under_min_insync_replicas_records_are_lost() -> None:
    assert lost(min_isr=1) > 0


def test_without_eligible_replicas_the_last_one_standing_takes_records_with_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def nobody(before: PartitionRecord, after: PartitionRecord, *_: object, **__: object) -> PartitionRecord:
        return replace(after, elr=(), last_known_elr=())

    monkeypatch.setattr(eligible_leaders, "with_eligible_leaders", nobody)
    monkeypatch.setattr("stratalog.replication.controller.brokers.with_eligible_leaders", nobody)
    assert lost() > 0


def test_if_an_unclean_restart_did_not_end_eligibility_records_would_be_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    real = eligible_leaders.with_eligible_leaders

    def forgiving(before: PartitionRecord, after: PartitionRecord, min_isr: int, lost: object = ()) -> PartitionRecord:
        return real(before, after, min_isr)

    monkeypatch.setattr(eligible_leaders, "with_eligible_leaders", forgiving)
    assert lost() > 0
