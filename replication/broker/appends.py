"""The appends of a broker's loop, and what it publishes of them: log ends, high watermarks, then the answers.

I/O: the replicas' logs, the leader's progress objects. A producer can read what acks=all has confirmed, so answers come
after the publication. In a storage domain readers read the table itself: there the commit is the publication, and what
the progress objects say of it, which is written with the next beat, is evidence alone that the table had records.
"""

from __future__ import annotations

from collections.abc import Callable

from stratalog.replication import cadence
from stratalog.replication.broker.isr_changes import IsrChanges
from stratalog.replication.broker.leadership.epoch_starts import EpochStarts
from stratalog.replication.broker.loop_state import LoopState
from stratalog.replication.broker.polls import Polls
from stratalog.replication.leader.append_queue import AppendQueue
from stratalog.replication.leader.replica import LeaderReplica
from stratalog.replication.progress.of_leader import LeaderProgress
from stratalog.replication.threads.turn_interval import TurnInterval
from stratalog.storage.records import TopicPartition


class LoopAppends:
    """`queue` holds requests of any thread until the loop appends them."""

    def __init__(
        self,
        loop: LoopState,
        polls: Polls,
        starts: EpochStarts,
        isr_changes: IsrChanges,
        queue: AppendQueue,
        turn_interval: TurnInterval,
    ) -> None:
        self.queue = queue
        self.turn_interval = turn_interval
        self.when_published: Callable[[], None] = lambda: None
        """Called by the loop after it published high watermarks, where storage does not report that to this process's
        readers. It must not block."""
        self._loop = loop
        self._polls = polls
        self._starts = starts
        self._isr_changes = isr_changes
        self._progress: LeaderProgress | None = None
        """Of the newest registration. Invariant: None before the first one is announced."""

    def publish_by(self, progress: LeaderProgress) -> None:
        """A new registration publishes by these objects."""
        self._progress = progress

    def forget(self, topic_partition: TopicPartition) -> None:
        """It is not led here any more: publish nothing of it."""
        if self._progress is not None:
            self._progress.forget(topic_partition)
        if self._loop.led_here is not None:
            self._loop.led_here.forget(topic_partition)

    def append_waiting(self, now_ms: int) -> bool:
        """Begin epochs, and append what waits, for a while each; True when something moved."""
        loop, moved = self._loop, self._starts.begin(now_ms)
        for replica in self.queue.append(now_ms, self.turn_interval.work_ms(cadence.APPENDS.ms, now_ms)):
            moved = True
            self.turn_interval.moved(replica.state.topic_partition, now_ms)
            loop.turn.to_publish.add(replica.state.topic_partition)
            loop.raise_high_watermark(replica.state.topic_partition, now_ms)
            if replica.state.has_one_table:  # its commit is all that readers wait for
                self._show(replica)
                replica.complete_waiting()
        if moved:  # records, or the start of an epoch
            self._polls.records_moved(now_ms)
            self._isr_changes.followers.expect_progress()
        return moved

    def publish(self) -> bool:
        """True when everybody can see what changed. Raises StoreUnavailableError: the next turn publishes it."""
        assert self._progress is not None
        loop, turn = self._loop, self._loop.turn
        moved = [loop.leaders[tp] for tp in turn.to_publish if tp in loop.leaders]
        shared = [replica for replica in moved if replica.state.has_one_table]
        for replica in shared:
            self._show(replica)
        own = (replica for replica in moved if not replica.state.has_one_table)
        entries = [progress for replica in own if (progress := replica.progress()) is not None]
        with_beat = [progress for replica in shared if (progress := replica.progress()) is not None]
        beat_is_due = self._polls.is_due("beat", turn.begun_ms, loop.config.broker_heartbeat_interval_ms)
        self._progress.publish(entries, turn.begun_ms, beat_is_due=beat_is_due, with_beat=with_beat)
        turn.to_publish.clear()
        if entries and not self._polls.wakeup.is_active:
            self.when_published()
        return True

    def _show(self, replica: LeaderReplica) -> None:
        """Tell readers of this process what a table in a storage domain holds."""
        entry = replica.progress()
        if entry is not None and self._loop.led_here is not None:
            self._loop.led_here.put(entry)

    def complete(self) -> None:
        """Answer the requests whose records are published."""
        leaders, turn = self._loop.leaders, self._loop.turn
        completed, turn.to_complete = turn.to_complete, set()
        for topic_partition in completed:
            if topic_partition in leaders:
                leaders[topic_partition].complete_waiting()

    def rest_ms(self) -> int:
        """How long the loop rests after a turn that was not cut off, so that the next one has more to publish."""
        if not self.queue.is_empty:
            return 0
        return self.turn_interval.rest_ms(self._loop.turn.begun_ms, self._loop.clock.monotonic_ms())

    @property
    def has_left(self) -> bool:
        """Whether something is to be begun, appended or published that the last turn did not."""
        return self._starts.has_left or bool(self._loop.turn.to_publish) or not self.queue.is_empty

    def retry_ms(self) -> int:
        """The pause while something is left and nothing moved: a store is away, or upkeep is first."""
        return min(cadence.LOOP_RETRY.ms, self.queue.held_ms or cadence.LOOP_RETRY.ms)
