"""Upkeep of many replicas by the one loop that commits to them, a little at a time.

I/O: through each replica's `Upkeep`. A replica is checked only for a reason: its log took commits that may need work,
or a time came. Those replicas take turns until none has work or the time is used up, so that neither a busy replica nor
a damaged table keeps the others waiting.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from heapq import heappop, heappush

from stratalog.replication import cadence
from stratalog.replication.config import BrokerConfig
from stratalog.replication.replica.load import Load
from stratalog.storage import errors
from stratalog.storage.clock import Clock
from stratalog.storage.delta.table import Commit
from stratalog.storage.errors import StoreError, StratalogError
from stratalog.storage.log.partition_log import PartitionLog
from stratalog.storage.log_lines import line_logger
from stratalog.storage.records import TopicPartition
from stratalog.storage.upkeep.chore import UpkeepDone, UpkeepLimits
from stratalog.storage.upkeep.upkeep import Upkeep

_LOG = line_logger("stratalog.upkeep")


Step = Callable[[TopicPartition, Upkeep, bool], UpkeepDone | None]


def limits_of(config: BrokerConfig, limits: UpkeepLimits | None = None) -> UpkeepLimits:
    """The limits of the cluster's settings; `limits` are a test's, whose times are shorter."""
    return replace(
        limits or UpkeepLimits(garbage_ms=config.stratalog_checkpoint_interval_ms),
        retention_check_ms=config.log_retention_check_interval_ms,
        scrub_ms=config.stratalog_scrub_interval_ms,
        slowdown_count=config.stratalog_upkeep_slowdown_count,
        stop_count=config.stratalog_upkeep_stop_count,
    )


def most_live_files(logs: Iterable[PartitionLog]) -> int:
    """Files of the log that has the most; logs not folded yet do not count. Called from any thread."""
    return max((len(log.files) for log in logs if log.is_folded), default=0)


class UpkeepRounds:
    """The upkeep of one broker's or one fetcher's replicas."""

    def __init__(self, clock: Clock, read_bytes: Callable[[], int] = lambda: 0) -> None:
        """`read_bytes`: what clients have read from this broker so far, for which large merges wait, too."""
        self._clock = clock
        self._read_bytes = read_bytes
        self._load = Load(clock.monotonic_ms())
        self._upkeep: dict[TopicPartition, Upkeep] = {}
        self._due: dict[TopicPartition, None] = {}
        self._later: list[tuple[int, int, TopicPartition]] = []
        self._later_ms: dict[TopicPartition, int] = {}
        self._overdue: set[TopicPartition] = set()
        self._working: set[TopicPartition] = set()
        self.put_off: set[TopicPartition] = set()
        """Those whose log could not be changed when they were due: each round asks again."""
        self._pauses_ms: dict[TopicPartition, int] = {}
        self._warned_ms = clock.monotonic_ms() - cadence.UPKEEP_WARNED.ms
        self._serial = 0
        self._appended_bytes = 0
        self._commits = 0
        self._left_ms = cadence.UPKEEP_ROUND.ms
        self._is_cut = False

    def add(self, topic_partition: TopicPartition, upkeep: Upkeep) -> None:
        """Begin the upkeep of this replica."""
        self.drop(topic_partition)
        self._upkeep[topic_partition] = upkeep
        self._due[topic_partition] = None
        upkeep.log.on_commit = lambda commit: self._committed(topic_partition, upkeep, commit)

    def wake(self, topic_partition: TopicPartition) -> None:
        """Check this replica in the next round: something else than its log changed."""
        if topic_partition in self._upkeep:
            self._due[topic_partition] = None

    def wake_all(self) -> None:
        """Check every replica in the next rounds: another session has done their upkeep meanwhile."""
        self._due.update(dict.fromkeys(self._upkeep))

    def drop(self, topic_partition: TopicPartition) -> None:
        """End the upkeep of this replica."""
        upkeep = self._upkeep.pop(topic_partition, None)
        if upkeep is not None:
            upkeep.log.on_commit = None
        self._due.pop(topic_partition, None)
        self._later_ms.pop(topic_partition, None)
        self._overdue.discard(topic_partition)
        self._working.discard(topic_partition)
        self.put_off.discard(topic_partition)
        self._pauses_ms.pop(topic_partition, None)

    def append_pause_ms(self, topic_partition: TopicPartition, file_count: int) -> int:
        """How long this replica's next append has to wait after one that added so many files
        (`storage.upkeep.append_pause`); 0 for a replica without upkeep."""
        upkeep = self._upkeep.get(topic_partition)
        pause_ms = upkeep.append_pause_ms(file_count) if upkeep is not None else 0
        if upkeep is None or not pause_ms:
            self._pauses_ms.pop(topic_partition, None)
            return 0
        self._pauses_ms[topic_partition] = pause_ms
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._warned_ms >= cadence.UPKEEP_WARNED.ms:
            self._warned_ms = now_ms
            what = "%s has %d live files; upkeep of %d files or commits is overdue, so appends wait %d ms"
            _LOG.warning(what, topic_partition, len(upkeep.log.files), upkeep.overdue_count, pause_ms)
        return pause_ms

    @property
    def pause_ms_max(self) -> int:
        """The longest of the replicas' newest pauses. Called from any thread."""
        return max(list(self._pauses_ms.values()), default=0)

    @property
    def is_pressing(self) -> bool:
        """Whether a round was cut off, or an overdue log waits for its next piece of work: `run` now, not at its
        interval."""
        return self._is_cut or any(tp in self._due or self._upkeep[tp].has_result for tp in self._overdue)

    @property
    def has_result(self) -> bool:
        """Whether work that was begun is done, and waits for its commit."""
        return any(self._upkeep[topic_partition].has_result for topic_partition in self._working)

    def _committed(self, topic_partition: TopicPartition, upkeep: Upkeep, commit: Commit) -> None:
        self._commits += 1
        if commit.data_change:
            self._appended_bytes += sum(entry.file.size_bytes for entry in commit.adds)
        if topic_partition not in self._due and upkeep.needs_step(commit):
            self._due[topic_partition] = None

    def run(self, step: Step, on_broken: Callable[[TopicPartition, StratalogError], None]) -> None:
        """Work for about `cadence.UPKEEP_ROUND`, in pieces where others wait; continues where it stopped the last time.

        `step` does one piece of work and is called with whether the loop is busy. With a store that is away it is
        retried a little later. `on_broken` receives a table that cannot be served, or has a damaged file. A table that
        is corrupt otherwise is served as it is, without upkeep (Kafka: "uncleanable").
        """
        now_ms = self._clock.monotonic_ms()
        end_ms = now_ms + self._piece_ms()
        is_busy = self._load.is_busy(now_ms, self._appended_bytes, self._read_bytes())
        self._come_due(now_ms)
        self._due.update((tp, None) for tp in sorted(self._working) if self._upkeep[tp].has_result)
        while self._due:
            topic_partition = next(iter(self._due))
            del self._due[topic_partition]
            upkeep = self._upkeep[topic_partition]
            rest_ms = self._step(step, topic_partition, upkeep, on_broken, is_busy)
            if topic_partition not in self._upkeep:
                continue
            if rest_ms is None:
                self._due[topic_partition] = None
            else:
                self._put_off(topic_partition, self._clock.monotonic_ms() + max(rest_ms, 1))
            if self._clock.monotonic_ms() > end_ms:
                break
        self._due.update(dict.fromkeys(sorted(self.put_off)))
        self._left_ms -= max(1, self._clock.monotonic_ms() - now_ms)
        self._is_cut = any(tp not in self.put_off for tp in self._due) and self._left_ms > 0

    def _piece_ms(self) -> int:
        """The whole budget when no log took a commit since the last piece: another turn may be long in coming."""
        if not self._is_cut:
            self._left_ms = cadence.UPKEEP_ROUND.ms
        commits, self._commits = self._commits, 0
        return min(self._left_ms, cadence.UPKEEP_PIECE.ms) if commits or self._is_cut else cadence.UPKEEP_ROUND.ms

    def _come_due(self, now_ms: int) -> None:
        while self._later and self._later[0][0] <= now_ms:
            due_ms, _, topic_partition = heappop(self._later)
            if self._later_ms.get(topic_partition) == due_ms:
                del self._later_ms[topic_partition]
                self._due.setdefault(topic_partition)

    def _put_off(self, topic_partition: TopicPartition, due_ms: int) -> None:
        """An earlier time stays: it costs at most one check that finds nothing."""
        if self._later_ms.get(topic_partition, due_ms + 1) <= due_ms:
            return
        self._later_ms[topic_partition] = due_ms
        self._serial += 1
        heappush(self._later, (due_ms, self._serial, topic_partition))

    def _step(
        self,
        step: Step,
        topic_partition: TopicPartition,
        upkeep: Upkeep,
        on_broken: Callable[[TopicPartition, StratalogError], None],
        is_busy: bool,
    ) -> int | None:
        """How long the replica may rest; None when there may be more work at once."""
        self._overdue.discard(topic_partition)
        self._working.discard(topic_partition)
        try:
            is_done = step(topic_partition, upkeep, is_busy) is not None
            if upkeep.is_overdue and topic_partition in self._upkeep:
                self._overdue.add(topic_partition)
            if upkeep.is_working and topic_partition in self._upkeep:
                self._working.add(topic_partition)
            if topic_partition in self._pauses_ms:
                self.append_pause_ms(topic_partition, 1)
            return None if is_done else upkeep.rest_ms(self._clock.wall_ms())
        except StoreError as reason:
            _LOG.warning("upkeep of %s, trying again: %s", topic_partition, reason)
        except (errors.KafkaStorageError, errors.DamagedFileError) as reason:
            on_broken(topic_partition, reason)
        except errors.CorruptMessageError as reason:
            _LOG.error("no more upkeep of %s: %s", topic_partition, reason)
            self.drop(topic_partition)
        return cadence.UPKEEP_RETRY.ms
