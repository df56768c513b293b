"""A leader's view of its followers: what their fetch sessions published, as `FollowerReader`s have read it.

I/O: through a reader for each follower. With `Ports.threads` each reads in a thread of its own, and no call here waits
for a root of another broker; without, `poll` reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from stratalog.replication import cadence
from stratalog.replication.metadata.image import BrokerState
from stratalog.replication.progress.follower_reader import FollowerReader, FollowerRoot
from stratalog.replication.progress.progress import ReplicaProgress
from stratalog.replication.stores import Ports
from stratalog.storage.objects.wakeup import Wakeup
from stratalog.storage.records import TopicPartition


@dataclass(frozen=True, slots=True)
class _Follower:
    """One broker under one broker epoch: progress of an older registration is ignored. `entries`: the newest ones of
    each session."""

    broker_epoch: int
    reader: FollowerReader
    entries: dict[str, dict[TopicPartition, ReplicaProgress]] = field(default_factory=dict)


class FollowerWatch:
    """The progress that followers published; `poll` returns changes only."""

    def __init__(
        self,
        broker_id: int,
        ports: Ports,
        wakeup: Wakeup,
        poll_ms: Callable[[], int] = lambda: cadence.SESSIONS_LISTED.shortest_ms,
    ) -> None:
        """`wakeup` is the leader's; `poll_ms`: the pause between polls where storage cannot be watched."""
        self._broker_id = broker_id
        self._ports = ports
        self._wakeup = wakeup
        self._poll_ms = poll_ms
        self._followers: dict[int, _Follower] = {}

    def update_brokers(self, brokers: Mapping[int, BrokerState]) -> list[int]:
        """Set the registered brokers; returns those that were fenced or registered again since the last call. What they
        published before does not count any more: the leader may go on in the same leader epoch.

        Of a fenced broker nothing is read, of a new registration only its own progress objects: a broker that was
        fenced registers again before it counts again.
        """
        forgotten = []
        for broker_id, broker in brokers.items():
            known = self._followers.get(broker_id)
            read_epoch = None if known is None else known.broker_epoch
            epoch_to_read = None if broker.fenced else broker.broker_epoch
            if broker_id == self._broker_id or epoch_to_read == read_epoch:
                continue
            self._forget(broker_id)
            if epoch_to_read is not None:
                self._followers[broker_id] = _Follower(epoch_to_read, self._reader_of(broker_id, broker))
            forgotten.append(broker_id)
        for broker_id in set(self._followers) - set(brokers):
            self._forget(broker_id)
        return forgotten

    def _reader_of(self, broker_id: int, broker: BrokerState) -> FollowerReader:
        reading = FollowerRoot(self._broker_id, broker_id, broker.broker_epoch, broker.registration.root, self._poll_ms)
        threads, wakeup = self._ports.threads, self._wakeup
        own = wakeup if threads is None else Wakeup(self._ports.clock)
        reader = FollowerReader(reading, self._ports, own, wakeup.wake)
        if threads is not None:
            threads.start(f"progress-{self._broker_id}-of-{broker_id}", reader.run)
        return reader

    def expect_progress(self) -> None:
        """Followers are about to progress: what cannot be watched is read at once, and again after `poll_ms`."""
        for follower in self._followers.values():
            follower.reader.expect_progress()

    def _forget(self, broker_id: int) -> None:
        follower = self._followers.pop(broker_id, None)
        if follower is not None and self._ports.threads is None:
            follower.reader.unwatch()
        elif follower is not None:
            follower.reader.close()

    def close(self) -> None:
        """Read nothing any more."""
        for broker_id in list(self._followers):
            self._forget(broker_id)

    def broker_epochs(self) -> dict[int, int]:
        """The registration of each follower whose progress is read."""
        return {broker_id: follower.broker_epoch for broker_id, follower in self._followers.items()}

    def poll(self, now_ms: int) -> list[tuple[int, ReplicaProgress]]:
        """Changes since the last poll, as `(follower broker id, progress)`."""
        moved: list[tuple[int, ReplicaProgress]] = []
        for broker_id, follower in self._followers.items():
            if self._ports.threads is None:
                follower.reader.poll(now_ms)
            for session, progress in follower.reader.take():
                if progress is None:
                    follower.entries.pop(session, None)
                    continue
                follower.entries.setdefault(session, {})[progress.topic_partition] = progress
                moved.append((broker_id, progress))
        return moved

    def known(self, topic_partition: TopicPartition) -> Iterable[tuple[int, ReplicaProgress]]:
        """All followers' progress of a partition that this broker has just begun to lead."""
        for broker_id, follower in self._followers.items():
            for entries in follower.entries.values():
                if topic_partition in entries:
                    yield broker_id, entries[topic_partition]
