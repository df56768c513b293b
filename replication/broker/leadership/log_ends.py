"""The ends of other replicas' logs, read from their roots before a broker leads alone: see `longest_log`.

I/O: folds tables in other brokers' roots. With `Ports.threads` each root has a thread of its own, as long as something
is to be read, so that a root that answers nothing blocks nobody else; without, the caller's thread reads.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import NamedTuple

from stratalog.replication import cadence
from stratalog.replication.broker.leadership.longest_log import OWN_LEADS, Comparison, Life, LongestLog, others_of
from stratalog.replication.leader.replica import LeaderReplica
from stratalog.replication.metadata.image import ClusterImage
from stratalog.replication.metadata.storage_domains import replica_root
from stratalog.replication.stores import Ports
from stratalog.storage.delta.table import Conflict, LogTable
from stratalog.storage.errors import StoreError, StratalogError
from stratalog.storage.log.leader_epochs import NO_LOG, LogEnd
from stratalog.storage.log.partition_log import PartitionLog
from stratalog.storage.log_lines import line_logger
from stratalog.storage.objects.wakeup import Wakeup
from stratalog.storage.records import TopicPartition
from stratalog.storage.topic_config import LogConfig

_LOG = line_logger("stratalog.broker")


class _Question(NamedTuple):
    """Which log, of which topic id, since a topic may have been made again, and in which leader epoch it is asked for:
    under another leader the log may have changed meanwhile. `root`: the URL below which its table is."""

    topic_partition: TopicPartition
    topic_id: str
    leader_epoch: int
    root: str


class _RootReader:
    """Reads the ends of one broker's logs, under one registration. `answers` grows.

    Only `ask` and `close` may be called while a thread runs it.
    """

    def __init__(self, ports: Ports, leader: Wakeup) -> None:
        self.answers: dict[_Question, LogEnd] = {}
        self._ports = ports
        self._leader = leader
        self._own = Wakeup(ports.clock)
        self._asked: deque[_Question] = deque()
        self._seen: set[_Question] = set()
        self._is_over = False

    def ask(self, question: _Question) -> None:
        if question not in self._seen:
            self._seen.add(question)
            self._asked.append(question)
            self._own.wake()

    def close(self) -> None:
        """End the thread. A call that is under way is not waited for."""
        self._is_over = True
        self._own.wake()

    def run(self) -> None:
        """Read until `close`: the body of a thread."""
        try:
            while not self._is_over:
                if not self._asked:
                    self._own.wait_ms(cadence.LOG_ENDS_WAIT.ms)
                elif not self.read_next():
                    self._own.wait_ms(cadence.LOG_ENDS_RETRY.ms)
        finally:
            self._own.close()

    def read_next(self) -> bool:
        """Read one; False when the root did not answer: it stays the next."""
        question = self._asked[0]
        try:
            table = self._ports.stores.table(question.root, question.topic_partition)
            self.answers[question] = end_of(table, question.topic_id, self._ports)
        except StoreError as reason:
            _LOG.warning("the end of %s in %s cannot be read: %s", question.topic_partition, question.root, reason)
            return False
        self._asked.popleft()
        self._leader.wake()
        return True


def end_of(table: LogTable, topic_id: str, ports: Ports) -> LogEnd:
    """The end of the log in a table; `NO_LOG` where it could not lead: it is absent, damaged, cannot be read, is to be
    deleted, or of another topic id. Raises StoreError when the store is away."""
    log = PartitionLog(table, LogConfig(), ports.clock, ports.ids)
    try:
        log.refresh()
        if log.topic_id != topic_id or not log.has_started(0) or table.damage() is not None:
            return NO_LOG
        return log.epochs.log_end(log.log_end_offset)
    except StoreError:
        raise
    except StratalogError as reason:
        _LOG.warning("%s could not lead: %s", table.name, reason)
        return NO_LOG


class LogEnds:
    """The comparisons of a broker that stopped uncleanly, for the partitions of which it is `unsure`: it is alone in
    their ISR since it registered, and has not led them since.

    unsure  by partition the leader epoch at that registration, which nobody leads
    """

    def __init__(self, broker_id: int, ports: Ports, wakeup: Wakeup, wait_ms_max: int) -> None:
        """`wakeup`: the broker's, woken by answers. `wait_ms_max`: how long a partition waits for others at most."""
        self.unsure: dict[TopicPartition, int] = {}
        self._broker_id = broker_id
        self._ports = ports
        self._wakeup = wakeup
        self._wait_ms_max = wait_ms_max
        self._comparisons: dict[TopicPartition, LongestLog] = {}
        self._readers: dict[Life, _RootReader] = {}

    def compare(self, replica: LeaderReplica, image: ClusterImage, now_ms: int) -> Comparison:
        """Whether this replica's log is the longest; called again until it is over. Only of a partition that is
        `unsure`, and only where a log is there that may have lost records: one that is gone is another matter.

        Raises StoreError when the broker's own root is away.
        """
        state = replica.state
        if state.topic_partition not in self.unsure:
            return OWN_LEADS
        own = self._own_end(replica)
        if own is None:
            self.decided(state.topic_partition)
            return OWN_LEADS
        comparison = self._comparison(replica, now_ms)
        others = others_of(image, state, self._broker_id)
        for life in comparison.unasked(others):
            root = replica_root(image, state, life.broker_id)
            assert root is not None  # those are registered
            question = _Question(state.topic_partition, replica.topic_id, state.leader_epoch, root)
            reader = self._reader(life)
            reader.ask(question)
            if self._ports.threads is None:
                reader.read_next()
            if question in reader.answers:
                comparison.ends[life] = reader.answers[question]
        found = comparison.compare(own, others, now_ms)
        if found == OWN_LEADS:
            self.decided(state.topic_partition)
        return found

    def end_earlier_epochs(self, replica: LeaderReplica) -> bool:
        """State in the own table the leader epoch at this broker's registration, before another replica leads alone.

        An earlier process of this broker may still be at work, alone in the ISR of an older leader epoch. This process
        begins no epoch, so nothing else would fence the earlier one: it would append and acknowledge what the new
        leader lacks. The epoch of now would not do: a follower would take it for begun (promise 6), and truncate.
        False: the log changed since it was compared.
        """
        epoch = self.unsure[replica.state.topic_partition]
        if replica.log.leader_epoch >= epoch:
            return True
        return not isinstance(replica.log.start_epoch(epoch, as_leader=False), Conflict)

    def _own_end(self, replica: LeaderReplica) -> LogEnd | None:
        log = replica.log
        try:
            log.refresh()
            if log.topic_id == replica.topic_id and log.has_started(0):
                return log.epochs.log_end(log.log_end_offset)
        except StoreError:
            raise
        except StratalogError:
            pass  # absent or unreadable: the start of the epoch says it
        return None

    def _comparison(self, replica: LeaderReplica, now_ms: int) -> LongestLog:
        """That of this leader epoch. The deadline stays: other leader epochs do not make it later."""
        state = replica.state
        known = self._comparisons.get(state.topic_partition)
        now = (replica.topic_id, state.leader_epoch)
        if known is None or (known.topic_id, known.state.leader_epoch) != now:
            deadline_ms = now_ms + self._wait_ms_max if known is None else known.deadline_ms
            known = self._comparisons[state.topic_partition] = LongestLog(replica.topic_id, state, deadline_ms)
        return known

    def _reader(self, life: Life) -> _RootReader:
        if life not in self._readers:
            reader = self._readers[life] = _RootReader(self._ports, self._wakeup)
            if self._ports.threads is not None:
                self._ports.threads.start(f"log-ends-{self._broker_id}-of-{life.broker_id}", reader.run)
        return self._readers[life]

    def apply(self, topic_partition: TopicPartition, image: ClusterImage) -> None:
        """The metadata changed. Once others are in the ISR, this broker is there with a whole log or not at all."""
        state = image.partitions.get(topic_partition)
        if topic_partition in self.unsure and (state is None or state.isr != (self._broker_id,)):
            self.decided(topic_partition)

    def decided(self, topic_partition: TopicPartition) -> None:
        """This broker begins its epoch, or does not lead any more."""
        self.unsure.pop(topic_partition, None)
        self._comparisons.pop(topic_partition, None)
        if not self.unsure:
            self.close()

    def suspect(self, unsure: Mapping[TopicPartition, int]) -> None:
        """The broker has registered after an unclean stop, as one that recovers: see `unsure_of`. What is known stays:
        when this start is repeated, the broker may lead by now."""
        self.unsure = {**unsure, **self.unsure}

    def close(self) -> None:
        """Read nothing any more."""
        for reader in self._readers.values():
            reader.close()
        self._readers.clear()
