"""The promises of docs/design/promises.md, checked after every commit, publication, acknowledgement and read.

They see everything at once, which no part of the system can: all tables, the committed metadata image, the answers to
clients. A violation raises `Violation` with the name of the invariant.

SingleLeaderPerEpoch, ValidPartitionState   every partition state in the metadata log
MonotonicLeaderEpoch      the same, and every commit of a replica's table: its epoch never goes back, and records are
                          appended under the epoch that it shows
MonotonicHighWatermark    every leader's publication, over all epochs
LogMatching               every record that a commit adds: equal at equal epoch and offset, after an equal predecessor
LeaderCompleteness        every ISR and every publication: each member of the ISR, which may lead next, holds every
                          record below any published high watermark; every epoch start, of the leader
AckedRecordsNotLost       every acknowledgement (it is below a published high watermark), every epoch start, the end
KeptRecordsNotLost        after a power cut of all brokers at once: a leader has those committed records which the disk
                          of any member of the ISR kept
ConsistentRead            every publication and every read: one offset has one value for ever
NoDuplicates, NoDuplicateSequence   every record when a high watermark passes it
NothingForgotten          every commit that states what is deleted, and the end: a file that left a log is deleted, or
                          known to whoever opens the table
CommittedFilesStand       every commit and every deletion of a data file: the files that a table names are there, whole
OwnTopic                  every commit that adds records, and every read: they were sent to this very topic id
ErasedStaysErased, ErasedIsUnread, ErasedIsGone   `tests.simulation.erasures.erased`
OneController             every metadata commit that only a controller makes: it is the newest one
SessionExpiry             every broker that is fenced: its session was silent for long when its controller looked, or
                          its own root had answered nothing for long when its process looked
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field

from stratalog.replication.controller.domains.moves import placements
from stratalog.replication.folders import topic_folder
from stratalog.replication.internal_topics import is_internal
from stratalog.replication.metadata.image import ClusterImage
from stratalog.replication.metadata.records import (
    NO_LEADER,
    ControllerRecord,
    EraseRecord,
    FenceBrokerRecord,
    MetadataRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from stratalog.replication.progress.progress import ReplicaProgress
from stratalog.storage.delta.snapshot import TableFold
from stratalog.storage.delta.table import DELETED, ERASED, LEADER_EPOCH, Commit
from stratalog.storage.files.damage import DAMAGE_PATH
from stratalog.storage.files.data_file import FileEntry
from stratalog.storage.records import TopicPartition
from tests.simulation.erasures.erased import Erased
from tests.simulation.shadow import RowsCache, Shadow, ShadowMarker, ShadowRecord, folded, topic_id_of
from tests.storage.memory_table import MemoryDisk, MemoryFiles

DOMAINS = {"lake": 0, "sea": -2}
"""Whose table a partition in a storage domain is: no broker's."""
Log = tuple[str, int]
"""Topic id and partition: a topic that was made again under an old name is another one."""


class Violation(AssertionError):  # noqa: N818 - the field's word
    """An invariant does not hold."""

    def __init__(self, invariant: str, message: str) -> None:
        super().__init__(f"{invariant}: {message}")
        self.invariant = invariant
        self.message = message

    def __reduce__(self) -> tuple[type[Violation], tuple[str, str]]:
        return Violation, (self.invariant, self.message)


@dataclass(slots=True)
class History:
    """The permanent facts of one log.

    committed  records that a published high watermark has passed, by offset; `markers`: the ends of transactions
    values     every record ever appended, by epoch and offset; `before`: the epoch of the record before it
    lossy      its last holder lost it with its disk: no promise holds any more
    """

    topic_partition: TopicPartition
    committed: dict[int, ShadowRecord] = field(default_factory=dict)
    acked: dict[int, bytes] = field(default_factory=dict)
    read: dict[int, bytes | None] = field(default_factory=dict)
    values: dict[tuple[int, int], ShadowRecord] = field(default_factory=dict)
    before: dict[tuple[int, int], int] = field(default_factory=dict)
    markers: dict[int, ShadowMarker] = field(default_factory=dict)
    high_watermarks: dict[int, int] = field(default_factory=dict)
    leaders: dict[int, int] = field(default_factory=dict)
    places: dict[bytes, int] = field(default_factory=dict)
    sequences: dict[tuple[int, int, int], int] = field(default_factory=dict)
    one_table: dict[int, str] = field(default_factory=dict)
    """The storage domain with the one table of all replicas in an epoch; "" where there are several tables."""
    states: dict[int, PartitionRecord] = field(default_factory=dict)
    """The newest state of each leader epoch."""
    lossy: bool = False

    @property
    def high_watermark(self) -> int:
        """The highest published one."""
        return max(self.high_watermarks.values(), default=0)


@dataclass(slots=True)
class Invariants:
    """The observer. `disks` are the brokers' roots by broker id, and the storage domains by their numbers in `DOMAINS`.

    clean       False: topics from now on allow unclean elections, so no promise holds for them
    only_leaders   a record that a member of the ISR lacks is a violation only when it leads
    live        broker epochs of the brokers that are registered and not fenced
    controller  broker id and controller epoch of the newest one
    torn        brokers whose disk lost unsynced files and that have not registered since; `wiped`: all files
    removed     replicas whose directory was removed, until an epoch begins without them in the ISR, or in a new table
    retained    topics by name whose logs start later with time
    compacted   topic ids whose records may be removed: a later committed one has the same key, or they are aborted
    """

    disks: Mapping[int, MemoryDisk]
    clean: bool = True
    only_leaders: bool = False
    session_silence_ms_min: int = 0
    root_silence_ms_min: int = 0
    partitions: dict[TopicPartition, PartitionRecord] = field(default_factory=dict)
    topic_ids: dict[str, str] = field(default_factory=dict)
    histories: dict[Log, History] = field(default_factory=dict)
    compacted: set[str] = field(default_factory=set)
    retained: Set[str] = frozenset()
    live: dict[int, int] = field(default_factory=dict)
    controller: tuple[int, int] = (NO_LEADER, 0)
    torn: set[int] = field(default_factory=set)
    wiped: set[int] = field(default_factory=set)
    ever_wiped: set[int] = field(default_factory=set)
    removed: set[tuple[int, TopicPartition]] = field(default_factory=set)
    deletable: dict[Log, int | None] = field(default_factory=dict)
    """Up to where DeleteRecords was asked for; None: up to wherever the high watermark is."""
    sent_to: dict[bytes, Log] = field(default_factory=dict)
    """The log that the producer of a value named. Values are unique."""
    erased: Erased = field(default_factory=Erased)
    leader_changes: int = 0
    acked_count: int = 0
    kept: dict[TopicPartition, dict[int, ShadowRecord]] = field(default_factory=dict)
    _back: dict[int, int] = field(default_factory=dict)
    _shadows: dict[tuple[int, TopicPartition], Shadow] = field(default_factory=dict)
    _rows: RowsCache = field(default_factory=RowsCache)

    def log_id(self, topic_partition: TopicPartition) -> Log | None:
        """The log that has this name now."""
        topic_id = self.topic_ids.get(topic_partition.topic)
        return None if topic_id is None else (topic_id, topic_partition.partition)

    def history(self, topic_partition: TopicPartition) -> History | None:
        log = self.log_id(topic_partition)
        if log is None:
            return None
        known = self.histories.get(log)
        if known is None:
            known = self.histories[log] = History(topic_partition, lossy=not self.clean)
        return known

    def may_delete(self, log: Log, offset: int | None) -> None:
        """DeleteRecords is asked for, up to this offset; None: the high watermark."""
        known = self.deletable.get(log, 0)
        self.deletable[log] = None if offset is None or known is None else max(known, offset)

    # -- metadata ----------------------------------------------------------------------------------------

    def metadata_committed(self, records: Iterable[MetadataRecord], by: tuple[int, int | None] | None) -> None:
        """A version was committed to the metadata log. `by`: broker id and assumed epoch of a controller."""
        registered: list[RegisterBrokerRecord] = []
        changed: list[TopicPartition] = []
        for record in records:
            match record:
                case PartitionRecord():
                    self._check_controller(by, record)
                    self._replicas_committed(record)
                    self._partition_committed(record)
                    changed.append(record.topic_partition)
                case ControllerRecord():
                    self.controller = (record.controller_id, record.controller_epoch)
                case RegisterBrokerRecord():
                    self.live[record.broker_id] = record.broker_epoch
                    registered.append(record)
                case FenceBrokerRecord():
                    self._check_controller(by, record)
                    self.live.pop(record.broker_id, None)
                case _:
                    self._topic_committed(record)
        for registration in registered:
            self._came_back(registration.broker_id, registration.broker_epoch)
        for topic_partition in changed:
            self._check_state(topic_partition)

    def _topic_committed(self, record: MetadataRecord) -> None:
        match record:
            case TopicRecord():
                self.topic_ids[record.name] = record.topic_id
            case EraseRecord():
                self.erased.requested(self.topic_ids[record.topic], record)
            case RemoveTopicRecord():
                self._topic_removed(record.name)

    def metadata_lost(self, image: ClusterImage) -> None:
        """The metadata log lost its tail, on which nobody had acted; `image` is that of the rest."""
        self.partitions = dict(image.partitions)
        self.topic_ids = dict(image.topic_ids)
        self.erased.lost(image)
        self.controller = (image.controller_id, image.controller_epoch)
        self.live = {i: broker.broker_epoch for i, broker in image.brokers.items() if not broker.fenced}
        known = {i: broker.broker_epoch for i, broker in image.brokers.items()}
        self.torn |= {i for i, epoch in self._back.items() if epoch > known.get(i, -1)}
        for topic_partition, state in self.partitions.items():
            history = self.history(topic_partition)
            if history is not None:
                history.leaders = {epoch: i for epoch, i in history.leaders.items() if epoch <= state.leader_epoch}

    def _check_controller(self, by: tuple[int, int | None] | None, record: MetadataRecord) -> None:
        if by is not None and by != self.controller:
            raise Violation("OneController", f"{record} by controller {by}, the newest is {self.controller}")

    def _topic_removed(self, name: str) -> None:
        self.topic_ids.pop(name, None)
        for topic_partition in [tp for tp in self.partitions if tp.topic == name]:
            del self.partitions[topic_partition]
            self.kept.pop(topic_partition, None)

    def _came_back(self, broker_id: int, broker_epoch: int) -> None:
        """A broker with a lost tail is out of every ISR with another member; where it is alone, records may be lost."""
        if broker_id not in self.torn:
            return
        self.torn.discard(broker_id)
        self._back[broker_id] = broker_epoch
        is_wiped = broker_id in self.wiped
        self.wiped.discard(broker_id)
        for topic_partition, state in self.partitions.items():
            history = self.history(topic_partition)
            is_here = not is_wiped and self._are_in_roots(state, {broker_id} | self.torn)
            if history is not None and is_here:
                history.lossy = True
            elif history is not None:
                self._check_members(topic_partition, state, history, history.committed)

    def _are_in_roots(self, state: PartitionRecord, brokers: Set[int]) -> bool:
        """Whether the ISR is of these brokers alone, each with a table in its root."""
        return set(state.isr) <= brokers and not any(state.domain_of(member) for member in state.isr)

    def _replicas_committed(self, state: PartitionRecord) -> None:
        if state.leader != NO_LEADER and set(state.isr) & set(state.offline) - {state.leader}:
            raise Violation("InSyncCanServe", f"a member of the ISR reported that it cannot serve: {state}")
        previous = self.partitions.get(state.topic_partition)
        if previous is not None and not set(placements(previous)) <= set(placements(state)):
            self.kept.pop(state.topic_partition, None)  # perhaps the one that kept most was removed

    def _epoch_committed(self, state: PartitionRecord, history: History) -> None:
        one_table = state.domain_of(state.replicas[0]) if state.has_one_table else ""
        history.states[state.leader_epoch] = state
        if history.one_table.setdefault(state.leader_epoch, one_table) != one_table:
            raise Violation("ValidPartitionState", f"other tables within a leader epoch: {state}")
        if state.leader == NO_LEADER:
            return
        known = history.leaders.setdefault(state.leader_epoch, state.leader)
        if known != state.leader:
            where = f"{state.topic_partition} epoch {state.leader_epoch}"
            raise Violation("SingleLeaderPerEpoch", f"{where}: {known} and {state.leader}")

    def _partition_committed(self, state: PartitionRecord) -> None:
        topic_partition = state.topic_partition
        previous = self.partitions.get(topic_partition)
        history = self.history(topic_partition)
        if history is not None:
            self._epoch_committed(state, history)
        if state.leader != NO_LEADER and state.leader not in state.isr:
            raise Violation("ValidPartitionState", f"leader not in ISR: {state}")
        if not state.isr or not set(state.isr) <= set(state.replicas) or len(set(state.isr)) < len(state.isr):
            raise Violation("ValidPartitionState", f"ISR empty or outside the replicas: {state}")
        if previous is not None and state.leader_epoch < previous.leader_epoch:
            raise Violation("MonotonicLeaderEpoch", f"{previous} then {state}")
        if previous is not None and state.partition_epoch <= previous.partition_epoch:
            raise Violation("MonotonicLeaderEpoch", f"partition epoch: {previous} then {state}")
        is_fewer = previous is not None and set(state.replicas) < set(previous.replicas)
        if history is not None and is_fewer:
            history.lossy |= self._are_in_roots(state, self.torn)  # the others were lost before the election
        if not set(state.lost) <= self.ever_wiped:
            raise Violation("Liveness", f"a log is taken for lost, but no disk was: {state}")
        if previous is not None and history is not None and state.unclean > previous.unclean:
            history.lossy |= bool(previous.lost)  # an operator preferred an empty partition to an offline one
        self._new_epoch(previous, state)
        self.leader_changes += previous is not None and state.leader_epoch > previous.leader_epoch
        self.partitions[topic_partition] = state

    def _new_epoch(self, previous: PartitionRecord | None, state: PartitionRecord) -> None:
        """If an epoch begins, those outside ISR and ELR have to catch up before they count again."""
        if previous is not None and state.leader_epoch > previous.leader_epoch:
            outside = set(state.replicas) - {*state.isr, *state.elr}
            self.removed -= {(broker_id, state.topic_partition) for broker_id in outside}

    def _check_state(self, topic_partition: TopicPartition) -> None:
        state = self.partitions.get(topic_partition)
        history = self.history(topic_partition)
        if state is None or history is None:
            return
        if state.leader != NO_LEADER and state.leader not in self.live:
            raise Violation("ValidPartitionState", f"the leader is fenced: {state}")
        self._check_members(topic_partition, state, history, history.committed)

    def fenced(self, broker_id: int, silent_ms: int) -> None:
        """A controller fenced a broker whose session had last changed `silent_ms` before the controller read it."""
        if silent_ms < self.session_silence_ms_min:
            raise Violation("SessionExpiry", f"broker {broker_id} was fenced, its session was {silent_ms} ms old")

    def fenced_itself(self, broker_id: int, silent_ms: int) -> None:
        """A process fenced its own broker, whose root had last answered a write `silent_ms` before it looked."""
        if silent_ms < self.root_silence_ms_min:
            raise Violation("SessionExpiry", f"broker {broker_id} fenced itself, its root answered {silent_ms} ms ago")

    # -- logs --------------------------------------------------------------------------------------------

    def place_of(
        self, broker_id: int, topic_partition: TopicPartition, state: PartitionRecord | None = None
    ) -> tuple[int, str]:
        """On whose disk the table of a replica is, by this state or the newest, and its name there."""
        state = state or self.partitions.get(topic_partition)
        name = "" if state is None else state.domain_of(broker_id)
        if not name:
            return broker_id, str(topic_partition)
        return DOMAINS[name], _table_name(DOMAINS[name], topic_partition, self.topic_ids[topic_partition.topic])

    def table_committed(
        self, broker_id: int, topic_partition: TopicPartition, version: int, commit: Commit, table: str = ""
    ) -> None:
        """A version was committed to a replica's table. `table`: its name, where it is in a storage domain."""
        files = self.disks[broker_id].tables[table or str(topic_partition)]
        shadow = self._shadows.get((broker_id, topic_partition))
        if version == 0 or shadow is None or shadow.files is not files or version != shadow.version + 1:
            # Version 0 made again where clean-up has deleted it is no new table: its writer slept meanwhile.
            is_new = version == 0 and files.checkpoint is None
            shadow = Shadow(files, topic_id_of(files)) if is_new else folded(files, self._rows, version)
            self._shadows[broker_id, topic_partition] = shadow
            if shadow.version != version - 1:
                return  # not part of the log
        history = self.history(topic_partition)
        if history is None or self.topic_ids[topic_partition.topic] != shadow.topic_id:
            history = History(topic_partition)  # of a topic that is gone
        before = shadow.leader_epoch
        if commit.operation == "WRITE" and any(e.leader_epoch != commit.txns[LEADER_EPOCH] for e in commit.adds):
            raise Violation(
                "MonotonicLeaderEpoch",
                f"{topic_partition} on {broker_id}: {commit.adds} appended under epoch {commit.txns[LEADER_EPOCH]}",
            )
        shadow.apply(version, commit, self._rows)
        _check_files(f"{topic_partition} on {broker_id}", files, commit.adds)
        if shadow.leader_epoch < before:
            where = f"{topic_partition} on {broker_id}"
            raise Violation("MonotonicLeaderEpoch", f"{where}: table of epoch {before} then {shadow.leader_epoch}")
        if DELETED in commit.txns and (left := shadow.not_deleted(commit.txns[DELETED])):
            raise Violation(
                "NothingForgotten",
                f"{topic_partition} on {broker_id}: all that versions up to {commit.txns[DELETED]} removed is said to "
                f"be deleted, but {sorted(left)} are on storage",
            )
        self._made_anew(broker_id, topic_partition, shadow)
        self._check_deleted(broker_id, topic_partition, shadow)
        self._check_erased(broker_id, topic_partition, shadow, commit)
        for entry in commit.adds:
            self._check_matching(broker_id, shadow, history, entry)
        self._all_is_committed(broker_id, shadow, history)
        if commit.operation == "TRUNCATE":
            self._check_truncated(broker_id, shadow, history)
        if commit.operation in ("START EPOCH", "TRUNCATE"):
            self._check_leader(broker_id, topic_partition, history, commit.txns[LEADER_EPOCH])

    def _all_is_committed(self, broker_id: int, shadow: Shadow, history: History) -> None:
        """A table that all replicas share, in a storage domain, has nothing that is not committed for good."""
        state, domain = self.partitions.get(history.topic_partition), history.one_table.get(shadow.leader_epoch)
        if state is None or not domain or DOMAINS[domain] != broker_id:
            return
        highest, log = history.high_watermark, (shadow.topic_id, history.topic_partition.partition)
        if shadow.log_end > highest:
            by_epoch = history.high_watermarks
            by_epoch[shadow.leader_epoch] = max(by_epoch.get(shadow.leader_epoch, 0), shadow.log_end)
            _commit_records(shadow, history, range(highest, shadow.log_end))
        self.erased.published(log, state.leader, shadow, shadow.version)

    def _check_deleted(self, broker_id: int, topic_partition: TopicPartition, shadow: Shadow) -> None:
        """Without retention a log starts where DeleteRecords of this very topic was asked for, not further up."""
        topic_id = shadow.topic_id
        asked = self.deletable.get((topic_id, topic_partition.partition), 0)
        if topic_partition.topic not in self.retained and asked is not None and shadow.log_start > asked:
            raise Violation(
                "DeletedAsAsked",
                f"{topic_partition} of topic id {topic_id} on {broker_id} starts at {shadow.log_start}, records below "
                f"{asked} were to be deleted",
            )

    def _check_erased(self, broker_id: int, topic_partition: TopicPartition, shadow: Shadow, commit: Commit) -> None:
        log = (shadow.topic_id, topic_partition.partition)
        if not self.erased.requests.get(log) or not (commit.adds or ERASED in commit.txns):
            return
        if left := self.erased.left_in(log, shadow):
            raise Violation(
                "ErasedStaysErased",
                f"{topic_partition} on {broker_id} has applied erasures up to {shadow.erased}, and has {left}",
            )
        state = self.partitions.get(topic_partition)
        if ERASED in commit.txns and state is not None and self.log_id(topic_partition) == log:
            self.erased.applied(log, [self.shadow(each, topic_partition) for each in state.replicas])

    def _made_anew(self, broker_id: int, topic_partition: TopicPartition, shadow: Shadow) -> None:
        """A new table in the place of a removed one counts from the newest epoch on."""
        newest = self.partitions.get(topic_partition)
        if newest is not None and shadow.leader_epoch == newest.leader_epoch:
            self.removed.discard((broker_id, topic_partition))

    def file_deleted(self, broker_id: int, topic_partition: TopicPartition, files: MemoryFiles, path: str) -> None:
        """A data file of a replica was deleted."""
        shadow = self._shadows.get((broker_id, topic_partition))
        if shadow is not None and shadow.files is files and path in shadow.entries and broker_id not in self.torn:
            raise Violation("CommittedFilesStand", f"{topic_partition} on {broker_id}: {path} was deleted, but is live")

    def _check_matching(self, broker_id: int, shadow: Shadow, history: History, entry: FileEntry) -> None:
        before: int | None = None
        where = str(history.topic_partition)
        for offset, record in self._rows.of(shadow.files, entry):
            self._check_own_topic((shadow.topic_id, history.topic_partition.partition), offset, record.value)
            known = history.values.setdefault((record.epoch, offset), record)
            if known != record:
                raise Violation("LogMatching", f"{where} offset {offset}: {known}, but {record} on {broker_id}")
            previous = shadow.records.get(offset - 1)
            if before is None and previous is not None and offset > shadow.log_start:
                before = previous.epoch
            if before is not None:
                expected = history.before.setdefault((record.epoch, offset), before)
                if expected != before:
                    raise Violation(
                        "LogMatching",
                        f"{where} offset {offset} of epoch {record.epoch} comes after epoch {expected}, and after "
                        f"{before} on {broker_id}",
                    )
            before = record.epoch

    def _check_own_topic(self, log: Log, offset: int, value: bytes | None) -> None:
        sent_to = self.sent_to.get(value) if value is not None else None
        if sent_to not in (None, log):
            raise Violation("OwnTopic", f"{value!r} is at offset {offset} of {log}, it was sent to {sent_to}")

    def _check_truncated(self, broker_id: int, shadow: Shadow, history: History) -> None:
        """A member of the ISR does not truncate committed records."""
        state = self.partitions.get(history.topic_partition)
        is_member = state is not None and any(
            self.place_of(member, history.topic_partition)[0] == broker_id for member in state.isr
        )
        if history.lossy or state is None or not is_member or broker_id in self.torn or self.only_leaders:
            return
        gone = [offset for offset in history.committed if offset >= shadow.log_end and offset >= shadow.log_start]
        if gone:
            raise Violation(
                "LeaderCompleteness",
                f"{history.topic_partition}: member {broker_id} of ISR {list(state.isr)} truncates to "
                f"{shadow.log_end}, but {gone} are committed",
            )

    def shadow(
        self, broker_id: int, topic_partition: TopicPartition, state: PartitionRecord | None = None
    ) -> Shadow | None:
        """The content of the replica's table, by this state or the newest; None without a table, or with one of an
        older topic of this name."""
        broker_id, table = self.place_of(broker_id, topic_partition, state)
        files = self.disks[broker_id].tables.get(table)
        if files is None:
            return None
        shadow = self._shadows.get((broker_id, topic_partition))
        if shadow is None or shadow.files is not files:
            shadow = self._shadows[broker_id, topic_partition] = folded(files, self._rows)
        return shadow if shadow.topic_id == self.topic_ids.get(topic_partition.topic) else None

    def was_wiped(self, broker_id: int) -> None:
        """The broker's disk is empty: unlike a lost tail, this is known when it returns, so it leads nothing that had a
        record, unless by an unclean election."""
        self.lost_power(broker_id)
        self.wiped.add(broker_id)
        self.ever_wiped.add(broker_id)

    def was_removed(self, broker_id: int, topic_partition: TopicPartition) -> None:
        """The directory of a replica is gone, under a broker that may run."""
        self.removed.add((broker_id, topic_partition))
        self.ever_wiped.add(broker_id)

    def lost_power(self, broker_id: int) -> None:
        """The broker's disk lost unsynced files."""
        self.torn.add(broker_id)
        for key in [key for key in self._shadows if key[0] == broker_id]:
            del self._shadows[key]

    def all_lost_power(self) -> None:
        """All brokers have just lost power: of each log a member of the ISR still has some committed records. One whose
        table has a damage noted does not count: nobody relies on it while another member may lead."""
        self.kept.clear()
        for topic_partition, state in self.partitions.items():
            history = self.history(topic_partition)
            if history is None or history.lossy:
                continue
            shadows = [s for m in state.isr if (s := self.shadow(m, topic_partition)) is not None]
            shadows = [shadow for shadow in shadows if DAMAGE_PATH not in shadow.files.objects]
            self.kept[topic_partition] = {
                offset: record
                for offset, record in history.committed.items()
                if any(shadow.records.get(offset) == record for shadow in shadows)
            }

    def is_led(self) -> bool:
        """Whether the leader of each log that was kept has begun its epoch."""
        return all(map(self._has_begun, self.kept))

    def _has_begun(self, topic_partition: TopicPartition) -> bool:
        state = self.partitions.get(topic_partition)
        if state is None or state.leader == NO_LEADER:
            return False
        shadow = self.shadow(state.leader, topic_partition)
        return shadow is not None and shadow.leader_epoch == state.leader_epoch

    def check_kept(self) -> None:
        """Whoever leads by now has what was kept when all lost power."""
        for topic_partition in filter(self._has_begun, self.kept):
            state = self.partitions[topic_partition]
            shadow = self.shadow(state.leader, topic_partition)
            for offset, record in self.kept[topic_partition].items():
                if not self._holds(shadow, topic_partition, offset, record):
                    raise Violation(
                        "KeptRecordsNotLost",
                        f"{topic_partition}: leader {state.leader} of epoch {state.leader_epoch} lacks {record} at "
                        f"offset {offset}, which a member of the ISR kept when all lost power",
                    )
        self.kept.clear()

    def _check_members(
        self,
        topic_partition: TopicPartition,
        state: PartitionRecord,
        history: History,
        records: Mapping[int, ShadowRecord],
    ) -> None:
        """Every member of the ISR, each of which may lead next, holds these committed records."""
        if history.lossy or not records or self.only_leaders:
            return
        for member in state.isr:
            is_gone = member in self.torn or member in state.lost or (member, topic_partition) in self.removed
            if is_gone and not state.domain_of(member):
                continue
            shadow = self.shadow(member, topic_partition)
            for offset, record in records.items():
                if not self._holds(shadow, topic_partition, offset, record):
                    has = shadow.records.get(offset) if shadow is not None else "no table"
                    raise Violation(
                        "LeaderCompleteness",
                        f"{topic_partition} offset {offset} below the high watermark is {record}, member {member} of "
                        f"ISR {list(state.isr)} (epoch {state.leader_epoch}) has {has}",
                    )

    def _holds(self, shadow: Shadow | None, topic_partition: TopicPartition, offset: int, record: ShadowRecord) -> bool:
        if shadow is None:
            return False
        found = shadow.records.get(offset)
        if found is not None or offset < shadow.log_start:
            return found is None or found == record or offset < shadow.log_start
        topic_id = self.topic_ids[topic_partition.topic]
        if self.erased.is_requested((topic_id, topic_partition.partition), offset, record):
            return True
        if topic_id not in self.compacted:
            return False
        history = self.history(topic_partition)
        markers = shadow.markers if history is None else {**shadow.markers, **history.markers}
        if _is_aborted(offset, record, markers):
            return True
        return any(
            later > offset and other.key == record.key and not _is_aborted(later, other, markers)
            for later, other in shadow.records.items()
        )

    def _check_leader(self, broker_id: int, topic_partition: TopicPartition, history: History, epoch: int) -> None:
        """A new leader holds every offset below any published high watermark, and every acknowledged record."""
        newest = self.partitions.get(topic_partition)
        if newest is not None and broker_id == self.place_of(newest.leader, topic_partition)[0]:
            broker_id = newest.leader
        if history.lossy or newest is None or (newest.leader, newest.leader_epoch) != (broker_id, epoch):
            return  # a follower, or a deposed leader that starts its epoch too late: it has no followers
        shadow = self.shadow(broker_id, topic_partition)
        for offset, record in history.committed.items():
            if not self._holds(shadow, topic_partition, offset, record):
                name = "AckedRecordsNotLost" if offset in history.acked else "LeaderCompleteness"
                raise Violation(
                    name, f"{topic_partition}: leader {broker_id} of epoch {epoch} lacks {record} at offset {offset}"
                )

    # -- publications and answers ----------------------------------------------------------------------

    def high_watermark_published(self, broker_id: int, progress: ReplicaProgress, *, is_late: bool = False) -> None:
        """A leader published a high watermark. `is_late`: its request arrived after the leader had given it up, perhaps
        after that of a later publication."""
        if progress.high_watermark < 0 or self.topic_ids.get(progress.topic_partition.topic) != progress.topic_id:
            return  # nothing yet, or of a deleted topic that had this name
        topic_partition, epoch = progress.topic_partition, progress.leader_epoch
        history = self.history(topic_partition)
        state = self.partitions.get(topic_partition)
        if history is None or state is None:
            return
        shadow = self.shadow(broker_id, topic_partition, history.states.get(epoch))
        log = progress.topic_id, topic_partition.partition
        if history.one_table.get(epoch):
            if progress.high_watermark > history.high_watermark:
                raise Violation("LeaderCompleteness", f"{progress} says more than the table, {history.high_watermark}")
            return
        if shadow is not None and not is_late:
            self.erased.published(log, broker_id, shadow, progress.version)
        by_epoch = history.high_watermarks
        floor = max((hw for e, hw in by_epoch.items() if e <= epoch), default=0)
        if progress.high_watermark < floor and is_late:
            return
        if progress.high_watermark < floor and not history.lossy:
            raise Violation(
                "MonotonicHighWatermark",
                f"{topic_partition} epoch {epoch}: {progress.high_watermark} after {floor} (broker {broker_id})",
            )
        highest = history.high_watermark
        by_epoch[epoch] = max(by_epoch.get(epoch, 0), progress.high_watermark)
        if progress.high_watermark > highest and not history.lossy:
            records = _commit_records(shadow, history, range(highest, progress.high_watermark))
            self._check_members(topic_partition, state, history, records)

    def acknowledged(self, log: Log, offset: int, value: bytes) -> None:
        """A client received the acknowledgement of its record (acks=all). Of a deleted topic nothing is promised: a
        leader that has not heard of the deletion answers as before."""
        history = self.histories.get(log)
        if history is None or history.lossy or log != self.log_id(history.topic_partition):
            return
        self.acked_count += 1
        where = f"{history.topic_partition} offset {offset}"
        if offset >= history.high_watermark:
            raise Violation(
                "AckedRecordsNotLost", f"{where}: acknowledged, but the high watermark is {history.high_watermark}"
            )
        record = history.committed.get(offset)
        if record is not None and record.value != value:
            raise Violation("AckedRecordsNotLost", f"{where}: {value!r} was acknowledged, {record} is there")
        history.acked[offset] = value

    def was_read(self, log: Log, offset: int, value: bytes | None, since_ms: int = 0) -> None:
        """A consumer that began to read at `since_ms` saw this value at this offset, below the high watermark."""
        record = self.appended(log, offset, value) if self.erased.requests.get(log) else None
        if record is not None and self.erased.was_erased(log, offset, record, since_ms):
            raise Violation("ErasedIsUnread", f"{value!r} at offset {offset} of {log}: {record}")
        self._check_own_topic(log, offset, value)
        history = self.histories.get(log)
        if history is None or history.lossy:
            return
        committed = history.committed.get(offset)
        known = history.read.setdefault(offset, value)
        if known != value or (committed is not None and committed.value != value):
            where = f"{history.topic_partition} offset {offset}"
            raise Violation("ConsistentRead", f"{where}: {known!r}, {committed}, then read {value!r}")

    def appended(self, log: Log, offset: int, value: bytes | None) -> ShadowRecord | None:
        """The record of this value, as some leader appended it there."""
        history = self.histories.get(log)
        records = [] if history is None else [each for (_, at), each in history.values.items() if at == offset]
        return next((each for each in records if each.value == value), None)

    # -- the end -----------------------------------------------------------------------------------------

    def check_end(self) -> None:
        """After all faults every replica holds all that was committed, acknowledged and read, and knows what it has to
        delete."""
        self._check_nothing_is_forgotten()
        for topic_partition, state in self.partitions.items():
            history = self.history(topic_partition)
            if history is None or history.lossy:
                continue
            for member in state.replicas:
                shadow = self.shadow(member, topic_partition)
                for offset, record in history.committed.items():
                    if not self._holds(shadow, topic_partition, offset, record):
                        name = "AckedRecordsNotLost" if offset in history.acked else "LeaderCompleteness"
                        raise Violation(name, f"{topic_partition}: at the end {member} lacks {record} at {offset}")

    def _check_nothing_is_forgotten(self) -> None:
        for (broker_id, topic_partition), shadow in self._shadows.items():
            files = self.disks[broker_id].tables.get(_table_name(broker_id, topic_partition, shadow.topic_id))
            if files is None or shadow.files is not files:
                continue
            fold = TableFold(files.checkpoint, str(topic_partition))
            while (stored := files.commits.get(fold.version + 1)) is not None:
                fold.apply(stored)
            if left := shadow.not_deleted(fold.version) - set(fold.snapshot().removed):
                raise Violation(
                    "NothingForgotten",
                    f"{topic_partition} on {broker_id}: {sorted(left)} left the log, are on storage and not known",
                )


def _commit_records(shadow: Shadow | None, history: History, offsets: range) -> dict[int, ShadowRecord]:
    """A high watermark passes these offsets of a table: their records are final."""
    records = {o: shadow.records[o] for o in offsets if o in shadow.records} if shadow is not None else {}
    if shadow is not None:
        history.markers |= {offset: marker for offset, marker in shadow.markers.items() if offset in offsets}
    for offset, record in records.items():
        history.committed[offset] = record
        is_a_clients = not is_internal(history.topic_partition.topic)  # coordinators may write the same twice
        if is_a_clients and record.value is not None and history.places.setdefault(record.value, offset) != offset:
            raise Violation(
                "NoDuplicates",
                f"{history.topic_partition}: {record.value!r} at {history.places[record.value]} and at {offset}",
            )
        if record.producer_id >= 0 and record.sequence >= 0:
            key = (record.producer_id, record.producer_epoch, record.sequence)
            first = history.sequences.setdefault(key, offset)
            if first != offset:
                raise Violation(
                    "NoDuplicateSequence",
                    f"{history.topic_partition} producer {key[:2]} sequence {key[2]}: offsets {first} and {offset}",
                )
    return records


def _table_name(broker_id: int, topic_partition: TopicPartition, topic_id: str) -> str:
    if broker_id not in DOMAINS.values():
        return str(topic_partition)
    return f"{topic_folder(topic_partition.topic, topic_id)}/{topic_partition}"


def _check_files(where: str, files: MemoryFiles, adds: Iterable[FileEntry]) -> None:
    for entry in adds:
        found = files.data_files.get(entry.path)
        if found is None or found.num_rows != entry.file.record_count:
            what = "is not there" if found is None else f"has {found.num_rows} of {entry.file.record_count} rows"
            raise Violation("CommittedFilesStand", f"{where}: {entry.path} {what}")


def _is_aborted(offset: int, record: ShadowRecord, markers: Mapping[int, ShadowMarker]) -> bool:
    """Whether the first marker of a record's producer after it aborts."""
    ends = ((end, each.is_commit) for end, each in markers.items() if each.producer_id == record.producer_id)
    _, is_commit = min((end for end in ends if end[0] > offset), default=(offset, True))
    return record.producer_id >= 0 and not is_commit
