"""Deliberate bugs: each switches one rule off, to prove that the simulation finds it.

Rules of the replicated log. Seeds that find them are in `first_seeds.json`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from random import Random
from typing import Any, TypeVar
from unittest.mock import patch
from weakref import WeakKeyDictionary

from stratalog.replication.broker.broker import Broker
from stratalog.replication.broker.hosted_replicas import HostedReplicas
from stratalog.replication.broker.leadership.longest_log import OWN_LEADS
from stratalog.replication.broker.own_root import OwnRoot
from stratalog.replication.broker_root import was_shut_down
from stratalog.replication.controller.brokers import FoundRoot, register_broker
from stratalog.replication.controller.sessions import SessionObserver
from stratalog.replication.follower.held_records import HeldRecords
from stratalog.replication.follower.plan import Need
from stratalog.replication.follower.replica import FollowedReplica
from stratalog.replication.leader.partition import UNKNOWN, Partition
from stratalog.replication.leader.purgatory import ProducePurgatory
from stratalog.replication.metadata.image import BrokerState, Result
from stratalog.replication.metadata.log import MetadataLog
from stratalog.replication.metadata.records import NO_LEADER, PartitionRecord, RegisterBrokerRecord
from stratalog.replication.progress.progress import PROGRESS_PREFIX, ProgressHeader, ReplicaProgress, encode_progress
from stratalog.replication.progress.progress_object import ProgressWriter
from stratalog.replication.requests.hand_over import INBOX_PREFIX
from stratalog.replication.stores import NoTurn, Ports
from stratalog.storage.delta import newest
from stratalog.storage.delta.commit_race import CommitRace, Moment, StoredCommit
from stratalog.storage.delta.removed import RemovedObjects
from stratalog.storage.delta.table import LEADER_EPOCH, Conflict
from stratalog.storage.delta.tail_recovery import TailCut
from stratalog.storage.log.leader_epochs import LeaderEpochCache, LogEnd
from stratalog.storage.log.partition_log import PartitionLog
from stratalog.storage.log.state import LogState
from stratalog.storage.objects.port import ObjectStore
from stratalog.storage.producers import Accept, ProducerStates
from tests.simulation.cluster import QUICK_UPKEEP, Setting
from tests.simulation.faults import Faults, Focus
from tests.simulation.mutations.mutation import COMPLETE, TWO_NEEDED, Mutation, mix
from tests.storage.memory_table import MemoryCommitLog, MemoryFiles, MemoryLogTable

T = TypeVar("T")


# -- the three rules: promises 6, 7 and 8 ----------------------------------------------------------------


def no_wait_for_the_leaders_start() -> AbstractContextManager[object]:
    """A follower compares its log with a leader whose table does not show the epoch yet."""
    return patch("stratalog.replication.follower.replica.leader_has_started", lambda leader, leader_epoch: True)


@contextmanager
def no_epoch_in_the_followers_table() -> Iterator[None]:
    """A follower with nothing to truncate continues under the new epoch without a commit."""

    def state_epoch_first(
        own: PartitionLog, leader_epoch: int, truncate_to: int | None, _log_start: int = 0, _epochs: object = None
    ) -> bool:
        if truncate_to is not None and truncate_to < own.log_end_offset:
            return not isinstance(own.start_epoch(leader_epoch, as_leader=False, truncate_to=truncate_to), Conflict)
        own.state._txns[LEADER_EPOCH] = own.state.leader_epoch = leader_epoch  # in memory; the next copy stores it
        return True

    def is_still_under(own: PartitionLog, leader_epoch: int) -> bool:
        own.state._txns[LEADER_EPOCH] = own.state.leader_epoch = leader_epoch
        return True

    with (
        patch("stratalog.replication.follower.replica.state_epoch_first", state_epoch_first),
        patch("stratalog.replication.follower.replica.is_still_under", is_still_under),
    ):
        yield


def progress_of_any_epoch_counts() -> AbstractContextManager[object]:
    """A leader accepts a follower's log end from any epoch."""
    return patch("stratalog.replication.leader.partition.counts_for_epoch", lambda progress, leader_epoch: True)


# -- fencing and elections -------------------------------------------------------------------------------


def no_epoch_check_on_commits() -> AbstractContextManager[object]:
    """A deposed leader appends to its own table, which follows another one already."""

    def writable(log: PartitionLog, leader_epoch: int) -> LogState:
        log._check_not_fenced(log.state, max(leader_epoch, log.leader_epoch))
        return log.state

    return patch.object(PartitionLog, "_writable", writable)


def leader_epoch_stays() -> AbstractContextManager[object]:
    """An election keeps the leader epoch."""
    original = PartitionRecord.changed
    return patch.object(PartitionRecord, "changed", lambda *a, **k: original(*a, **{**k, "bump_leader_epoch": False}))


def unclean_elections() -> AbstractContextManager[object]:
    """Any live replica may lead when no member of the ISR is alive, whatever the topic's configs."""
    return patch(
        "stratalog.replication.controller.controller.Controller._unclean_of", lambda self, image: lambda topic: True
    )


def deposed_controllers_go_on() -> AbstractContextManager[object]:
    """The metadata log accepts records of a controller of an older epoch."""
    return patch.object(MetadataLog, "_check_controller", lambda self, controller_epoch: None)


def metadata_is_acted_on_at_once() -> AbstractContextManager[object]:
    """Promise 4: a part of a broker acts on metadata that its writer has not synced yet."""
    return patch.object(MetadataLog, "_make_durable", lambda self: None)


def metadata_folds_never_go_back() -> AbstractContextManager[object]:
    """A fold of the metadata log stands where it stood, though the log has lost commits that it had.

    Not one of `MUTATIONS`: those who act sync what they fold, so only a client's fold is affected, and only if it reads
    at the moment of the power cut. `tests/replication/metadata/test_log.py` has that history.
    """
    fold_next, fold_anew = MetadataLog._fold_next, MetadataLog._refold
    ends: WeakKeyDictionary[MetadataLog, int] = WeakKeyDictionary()

    def next_up_to(self: MetadataLog, end_offset: int) -> bool:
        ends[self] = end_offset
        return fold_next(self, end_offset)

    def again(self: MetadataLog) -> None:
        fold_anew(self)
        self.next_offset = max(self.next_offset, ends.pop(self, 0))

    return patch.multiple(MetadataLog, _fold_next=next_up_to, _refold=again)


def lagging_sessions_make_tables() -> AbstractContextManager[object]:
    """A session makes an absent table by the metadata that it has folded, of whatever registration it is."""
    return patch.object(HeldRecords, "_newest", lambda _self, state: state)


def late_tables_are_logs() -> AbstractContextManager[object]:
    """Promise 13: whether a follower may make its absent table is decided before the request, and never again."""
    return patch.object(FollowedReplica, "check_again", lambda _self: None)


def copies_fold_without_the_turn() -> AbstractContextManager[object]:
    """Copies that are made side by side fold their session's metadata although another one does."""
    made = HeldRecords.__init__

    def without_turn(
        self: HeldRecords, broker_id: int, broker_epoch: int, root: str, metadata: MetadataLog, ports: Ports
    ) -> None:
        made(self, broker_id, broker_epoch, root, metadata, replace(ports, turn=NoTurn()))

    return patch.object(HeldRecords, "__init__", without_turn)


def isr_may_be_empty() -> AbstractContextManager[object]:
    """Promise 11: without a survivor the ISR is emptied, so no clean election is possible any more."""
    original = PartitionRecord.changed

    def changed(*arguments: object, **changes: object) -> PartitionRecord:
        state = original(*arguments, **changes)  # type: ignore[arg-type]
        return replace(state, isr=()) if state.leader == NO_LEADER else state

    return patch.object(PartitionRecord, "changed", changed)


@contextmanager
def registration_changes_nothing() -> Iterator[None]:
    """Promise 13: a broker that restarts keeps leaderships, ISRs and the commits of its earlier process."""

    def register(*arguments: object, **named: object) -> Result[int]:
        result = register_broker(*arguments, **named)  # type: ignore[arg-type]
        return Result(tuple(r for r in result.records if isinstance(r, RegisterBrokerRecord)), result.response)

    with (
        patch("stratalog.replication.broker.registration.register_broker", register),
        patch(
            "stratalog.replication.controller.brokers.check_broker_epoch", lambda image, broker_id, broker_epoch: None
        ),
    ):
        yield


def the_last_one_to_register_leads() -> AbstractContextManager[object]:
    """When a whole ISR has lost power, the member that registers last leads, whatever its disk kept."""
    return patch("stratalog.replication.broker.leadership.log_ends.LogEnds.compare", lambda *_: OWN_LEADS)


def records_alone_count() -> AbstractContextManager[object]:
    """Logs are compared by the leader epoch of their last record, as if an epoch without records were none."""

    def log_end(self: LeaderEpochCache, log_end_offset: int) -> LogEnd:
        return LogEnd(self.epoch_at(max(0, log_end_offset - 1)), log_end_offset)

    return patch.object(LeaderEpochCache, "log_end", log_end)


def earlier_epochs_go_on() -> AbstractContextManager[object]:
    """Promise 13: a broker has another replica lead, and leaves its own table as an earlier process knows it."""
    return patch("stratalog.replication.broker.leadership.log_ends.LogEnds.end_earlier_epochs", lambda *_: True)


def clean_stop_without_its_mark() -> AbstractContextManager[object]:
    """Promise 13: a controlled shutdown that the metadata remembers is believed, whatever the disk shows."""

    def has_kept_log(known: BrokerState, incarnation_id: str, _root: str, _found: FoundRoot) -> bool:
        return known.clean_shutdown or known.registration.incarnation_id == incarnation_id

    return patch("stratalog.replication.controller.brokers._has_kept_log", has_kept_log)


def empty_logs_lead() -> AbstractContextManager[object]:
    """Promise 13: the last member of an ISR leads, though its table went with its disk."""
    return patch("stratalog.replication.controller.brokers._Restart._is_lost", lambda self, partition: False)


def absent_tables_are_made_at_once() -> AbstractContextManager[object]:
    """Promise 13: a follower whose table is gone makes a new one, and stays in the ISR while it copies."""
    return patch("stratalog.replication.follower.replica.is_lost", lambda *_arguments, **_named: False)


def old_progress_goes() -> AbstractContextManager[object]:
    """Promise 13: a registration deletes what all but the last one before it published, whatever that says."""

    def remove(objects: ObjectStore, _image: object, broker_epoch: int) -> None:
        paths = [meta.path for meta in objects.list(PROGRESS_PREFIX)]
        earlier = sorted({int(path.split("/")[1]) for path in paths} - {broker_epoch})
        for path in paths:
            if int(path.split("/")[1]) in earlier[:-1]:
                objects.delete(path)

    return patch("stratalog.replication.broker.broker.remove_old_progress", remove)


@contextmanager
def recovery_among_writers() -> Iterator[None]:
    """Promise 5: a broker recovers its tables before it registers, and cuts them while an earlier process writes."""

    def start(self: Broker) -> None:
        loop, registration = self._loop, self._registration
        loop.metadata.refresh()
        image = loop.metadata.image
        registration.found = loop.hosted.tables.found_in_root(image, registration.found.directory_id)
        if not was_shut_down(registration.found.previous_broker_epoch, image.brokers.get(self.broker_id)):
            loop.hosted.recover(image, loop.clock.monotonic_ms())
        self._register()

    def cut_at_once(_name: str, list_log: Callable[[], T], examine: Callable[[T], TailCut]) -> TailCut:
        return examine(list_log())

    with patch.object(Broker, "start", start), patch("tests.storage.memory_table.settled_cut", cut_at_once):
        yield


def no_gap_between_polls() -> AbstractContextManager[object]:
    """Promise 14: an observer that was paused expires every session."""
    original = SessionObserver.observe

    def observe(
        self: SessionObserver, now_ms: int, contents: Mapping[int, bytes | None], heard_ms: Mapping[int, int]
    ) -> set[int]:
        self._poll_gap_ms_max = 1 << 60
        return original(self, now_ms, contents, heard_ms)

    return patch.object(SessionObserver, "observe", observe)


# -- upkeep ----------------------------------------------------------------------------------------------


def removed_files_are_forgotten() -> AbstractContextManager[object]:
    """A log remembers the newest two files that left it, as it remembered 20,000."""
    original = RemovedObjects.replay

    def replay(self: RemovedObjects, *arguments: Any) -> None:
        original(self, *arguments)
        self.forget(list(self)[:-2])

    return patch.object(RemovedObjects, "replay", replay)


def deleted_up_to_the_newest_commit() -> AbstractContextManager[object]:
    """A commit states that all is deleted that left the log before, as soon as something is."""

    def deleted(self: LogState, paths: Iterable[str]) -> None:
        self.removed.forget(paths)
        self._deleted_version = self.version

    return patch.object(LogState, "deleted", deleted)


# -- the high watermark and the ISR ----------------------------------------------------------------------


def high_watermark_is_the_log_end() -> AbstractContextManager[object]:
    """The leader's own log end is the high watermark."""

    def raise_it(self: Partition, now_ms: int, lag_ms_max: int) -> bool:
        if self.log_end_offset <= self.high_watermark:
            return False
        self.high_watermark = self.log_end_offset
        return True

    return patch.object(Partition, "maybe_increment_high_watermark", raise_it)


@contextmanager
def high_watermark_read_as_a_follower() -> Iterator[None]:
    """Promise 15: a new leader begins with the high watermark that it read last as a follower."""
    need, begin = FollowedReplica.need, Partition.__init__
    published: dict[object, int] = {}

    def remember(self: FollowedReplica, progress: ReplicaProgress, elders: ReplicaProgress | None = None) -> Need:
        published[self.broker_id, self.state.topic_partition] = progress.high_watermark
        return need(self, progress, elders)

    def begin_with_it(self: Partition, state: PartitionRecord, broker_id: int, *arguments: int) -> None:
        begin(self, state, broker_id, *arguments)
        self.high_watermark = published.get((broker_id, state.topic_partition), UNKNOWN)

    with (
        patch.object(FollowedReplica, "need", remember),
        patch.object(Partition, "__init__", begin_with_it),
    ):
        yield


def former_progress_counts() -> AbstractContextManager[object]:
    """Promise 8: a leader goes on in its epoch and counts what a follower published before it registered again."""
    return patch.object(HostedReplicas, "forget_follower", lambda self, broker_id, now_ms: None)


def joins_one_offset_early() -> AbstractContextManager[object]:
    """A follower that lacks the last committed record joins the ISR."""

    def may_join(self: Partition, live: Sequence[int], *, again: bool = False) -> set[int]:
        if self.held_by_isr == UNKNOWN:
            return set()
        needed = max(self.held_by_isr, self.epoch_start_offset) - 1
        outside = (set(self.followers) & set(live)) - (set(self.isr) if again else self.maximal_isr)
        return {r for r in outside if self.followers[r].log_end_offset >= needed}

    return patch.object(Partition, "may_join", may_join)


def high_watermark_of_the_known_isr() -> AbstractContextManager[object]:
    """No maximal ISR: the high watermark waits only for members whose joining the leader knows to be committed."""

    def maybe_increment(self: Partition, now_ms: int, lag_ms_max: int) -> bool:
        log_ends = [self.followers[r].log_end_offset for r in self.isr if r in self.followers]
        candidate = min([self.log_end_offset, *log_ends])
        if candidate < self.epoch_start_offset:
            return False
        self.held_by_isr = max(self.held_by_isr, candidate)
        if self.is_under_min_isr or candidate <= self.high_watermark:
            return False
        self.high_watermark = candidate
        return True

    return patch.object(Partition, "maybe_increment_high_watermark", maybe_increment)


def answered_when_appended() -> AbstractContextManager[object]:
    """acks=all is answered like acks=1."""
    return patch.object(ProducePurgatory, "add", lambda self, delayed: delayed.complete(delayed.response))


@contextmanager
def truncation_to_the_high_watermark() -> Iterator[None]:
    """Promise 16: a follower cuts its log at the high watermark that it read last, as Kafka did before KIP-101."""
    original = FollowedReplica.need
    published: dict[object, int] = {}

    def need(self: FollowedReplica, progress: ReplicaProgress, elders: ReplicaProgress | None = None) -> Need:
        published[self.own.name, self.broker_id] = progress.high_watermark
        return original(self, progress, elders)

    def divergence(self: FollowedReplica) -> int | None:
        if self.own.leader_epoch == self.leader_epoch:
            return None
        return min(self.own.log_end_offset, max(0, published.get((self.own.name, self.broker_id), 0)))

    with (
        patch.object(FollowedReplica, "need", need),
        patch.object(FollowedReplica, "_divergence", divergence),
    ):
        yield


# -- commits, producers, progress ------------------------------------------------------------------------


def orphaned_commits_count() -> AbstractContextManager[object]:
    """Promise 1: a create that won counts, even if clean-up has deleted its predecessors."""
    return patch.object(CommitRace, "_stands_before", lambda self, version, stored: True)


def time_does_not_pass() -> AbstractContextManager[object]:
    """Promise 1: a leader that has made the commit before does not ask whether it stands, however long ago that was."""
    return patch.object(Moment, "is_within", lambda self, limit_ms, later: True)


def crowded_logs_lose_young_commits() -> AbstractContextManager[object]:
    """Promise 1: a crowded log is cleaned up however young its commits are."""
    clean_log = MemoryLogTable.clean_log

    def of_any_age(
        self: MemoryLogTable, keep_from_version: int, keep_from_ms: int, crowded_below: int = 0
    ) -> Iterator[int]:
        dates = self._log.files.modified_ms
        dates.update(dict.fromkeys(self._log.files.commits, 0))
        yield from clean_log(self, keep_from_version, keep_from_ms, crowded_below)

    return patch.object(MemoryLogTable, "clean_log", of_any_age)


def conflicts_are_not_read_back() -> AbstractContextManager[object]:
    """Promise 3: a request that arrived twice counts as a lost race."""
    created = CommitRace._created

    def not_read_back(race: CommitRace, version: int, stored: StoredCommit) -> tuple[StoredCommit, bool]:
        if race._log.create_version(version, stored):
            return stored, True
        found, _ = created(race, version, stored)
        return replace(found, commit=replace(found.commit, commit_id="")), False

    return patch.object(CommitRace, "_created", not_read_back)


@contextmanager
def commits_behind_another_count() -> Iterator[None]:
    """Promise 1: a create that won behind another commit counts if that one is checkpointed, and is folded, as one that
    names no table."""
    with (
        patch.object(StoredCommit, "is_of_another", lambda *_: False),
        patch.object(CommitRace, "_is_behind_another", lambda self, version, newest_checkpoint: False),
        patch("stratalog.storage.delta.newest.follows", lambda stored, last_id: True),
    ):
        yield


def clean_up_deletes_by_name() -> AbstractContextManager[object]:
    """Clean-up that slept deletes versions of the table that was made in its place meanwhile: decision 0004."""
    deleted = MemoryCommitLog.deleted

    def of_the_name(log: MemoryCommitLog, _files: MemoryFiles, version: int, *, alone: bool) -> None:
        deleted(log, log.files, version, alone=alone)

    return patch.object(MemoryCommitLog, "deleted", of_the_name)


def folds_go_on_without_their_past() -> AbstractContextManager[object]:
    """Promise 1: a fold takes the next commit if that names the one before it, although that one is gone, or another
    one by now: the table was removed, and a commit that was under way remained in its place."""

    def has_its_predecessor(race: CommitRace, version: int, _stored: StoredCommit) -> bool:
        log = race._log
        return version == 0 or log.has_version(version - 1, None) or log.newest_checkpoint() <= version

    return patch.object(CommitRace, "_has_its_predecessor", has_its_predecessor)


@contextmanager
def the_pointer_is_trusted() -> Iterator[None]:
    """Promise 1: a fold begins with the checkpoint that `_last_checkpoint` names, and every writer of one puts it;
    where it names one, there is a table."""
    original = newest._above

    def above(log: newest.CheckpointLog, tail: newest._Tail) -> newest._Tail:
        return original(log, tail) if tail.fold.version < 0 else tail

    with (
        patch("stratalog.storage.delta.newest._above", above),
        patch("tests.storage.memory_table.point_to", lambda log, version: log.put_pointer(version)),
        patch("tests.storage.memory_table.pointed", lambda log: log.checkpoint_hint()),
        patch.object(CommitRace, "_is_before_clean_up", lambda race: race._log.checkpoint_hint() <= 0),
    ):
        yield


@contextmanager
def recovery_takes_the_first_commit_of_any_table() -> Iterator[None]:
    """Promise 5: a commit that names none before it follows any other one, of whatever table."""

    def follows(stored: StoredCommit, last_id: str | None) -> bool:
        return None in (last_id, stored.previous_id) or stored.previous_id == last_id

    with (
        patch.object(StoredCommit, "is_of_another", lambda *_: False),
        patch("stratalog.storage.delta.snapshot.follows", follows),
        patch("stratalog.storage.delta.newest.follows", follows),
    ):
        yield


def producers_stay_when_the_log_is_cut() -> AbstractContextManager[object]:
    """Promise 20: truncation leaves the producers' state as it was."""
    return patch.object(PartitionLog, "_producers_after", lambda self, state, cut, sliced: None)


def a_late_write_is_a_dead_root() -> AbstractContextManager[object]:
    """A broker fences itself as soon as a write to its own root takes a moment."""
    return patch.object(OwnRoot, "is_dead", lambda own: own._unanswered_ms is not None)


def a_publication_is_one_answer() -> AbstractContextManager[object]:
    """Only the last object of a publication counts as an answer of the own root."""

    def put_register(own: OwnRoot, path: str, data: bytes) -> None:
        own.asks()
        own._store.put_register(path, data)
        if path.endswith("/leader"):
            own.answered()

    return patch.object(OwnRoot, "put_register", put_register)


def answers_to_requests_do_not_count() -> AbstractContextManager[object]:
    """What a broker answers to requests in its inbox is no answer of its own root."""
    original = OwnRoot.put

    def put(own: OwnRoot, path: str, data: bytes) -> None:
        if path.startswith(INBOX_PREFIX):
            own._store.put(path, data)
        else:
            original(own, path, data)

    return patch.object(OwnRoot, "put", put)


def sequences_are_not_checked() -> AbstractContextManager[object]:
    """A batch that is sent again is appended again."""
    return patch.object(ProducerStates, "check", lambda self, *arguments: Accept())


def progress_without_an_image() -> AbstractContextManager[object]:
    """Promise 21: the progress object holds the last changes, and nothing holds the rest."""

    def publish(self: ProgressWriter, beat: int = 0) -> None:
        newest = [row for _, row in self._rows.values()][-1:]
        header = ProgressHeader(self._sequence, 0, beat, self.state)
        self._store.put_register(self._path, encode_progress(header, newest))
        self._published_sequence = self._sequence

    return patch.object(ProgressWriter, "publish", publish)


def failed_copies_remove_by_name() -> AbstractContextManager[object]:
    """A copy that fails removes whatever has its file's name by then."""
    return patch.object(
        MemoryLogTable, "_remove_failed", lambda self, files, path, part: self._delete_file(files, path)
    )


# -- the mixes of faults --------------------------------------------------------------


def _doubled(rng: Random) -> Faults:
    return replace(mix(crash=1)(rng), doubled=0.1)


def _unanswered(rng: Random) -> Faults:
    """Leaders do not learn whether their ISR change was committed, and lead on while they are out of reach."""
    return replace(mix(crash=3, pause_session=3, cut_session=3)(rng), lost_answer=0.03, outage_ms=2_500)


def _half_copied(rng: Random) -> Faults:
    """Sessions fall silent in the middle of a copy, which fails when they wake."""
    return replace(mix(Focus("put:piece", 0.3, "f"), 5_000, crash=1)(rng), failed_copy=0.3)


def _removed_under_way(rng: Random) -> Faults:
    """The directories of followers go while commits are under way, whose writers then fail to withdraw them."""
    return replace(mix(Focus("create", 0.3, "f", "/t-0/"), 500, removed_table=4)(rng), lost_request=0.03)


CROWDED = replace(QUICK_UPKEEP, keep_ms=3_000, keep_commits_max=4)


LOG_MUTATIONS: dict[str, Mutation] = {
    "a": Mutation(
        no_wait_for_the_leaders_start,
        COMPLETE,
        mix(Focus("create", 0.4, "bf", "broker-"), 1_500, cut_broker=4, pause_broker=2, restart_all=1),
        TWO_NEEDED,
    ),
    "b": Mutation(
        no_epoch_in_the_followers_table,
        (*COMPLETE, "MonotonicLeaderEpoch"),
        mix(Focus("create", 0.6, "f", "/t-0/"), 3_000, cut_broker=3, crash=2, restart_all=3),
        Setting(pause_ms_max=1_500),
        8_000,
    ),
    "c": Mutation(
        progress_of_any_epoch_counts,
        COMPLETE,
        mix(removed_table=4, cut_broker=2, crash=1, restart_all=1),
    ),
    "orphaned commits": Mutation(
        orphaned_commits_count,
        ("CommitsFollow", *COMPLETE, "MonotonicHighWatermark"),
        mix(Focus("create", 0.3, "b", "metadata"), 4_000, pause_broker=3, pause_session=2, crash=2, restart_all=2),
        Setting(upkeep=QUICK_UPKEEP),
        8_000,
    ),
    "time does not pass": Mutation(
        time_does_not_pass,
        ("CommitsFollow", *COMPLETE),
        mix(Focus("create", 0.3, "b", "/t-0/"), 4_000, pause_broker=3, second_process=2, crash=1, restart_all=2),
        Setting(upkeep=QUICK_UPKEEP, is_durable=True, pause_ms_max=30),
        8_000,
    ),
    "young commits": Mutation(
        crowded_logs_lose_young_commits,
        ("CommitsFollow", *COMPLETE),
        mix(Focus("create", 0.3, "b", "/t-0/"), 1_500, second_process=4, pause_broker=2, restart_all=2),
        Setting(upkeep=CROWDED, is_durable=True, pause_ms_max=30),
        8_000,
    ),
    "behind another commit": Mutation(
        commits_behind_another_count,
        ("CommitsFollow",),
        mix(Focus("create", 0.1, "f", "/t-0/"), removed_table=4),
        Setting(upkeep=QUICK_UPKEEP),
        6_000,
    ),
    "cleaned by name": Mutation(
        clean_up_deletes_by_name,
        ("CommitsFollow", *COMPLETE),
        mix(Focus("delete", 0.3, "f", "/t-0/"), 3_000, damage=4, crash=1, restart_all=2, pause_session=1),
        Setting(upkeep=QUICK_UPKEEP),
        6_000,
    ),
    "removed past": Mutation(
        folds_go_on_without_their_past,
        ("CommitsFollow",),
        _removed_under_way,
        Setting(pause_ms_max=300),
    ),
    "pointer": Mutation(
        the_pointer_is_trusted,
        ("Liveness", *COMPLETE),
        mix(Focus("put", 0.5, "bfc", "_last_checkpoint"), 4_000, second_process=3, crash=1, restart_all=2),
        Setting(upkeep=QUICK_UPKEEP),
        6_000,
    ),
    "first commit of another table": Mutation(
        recovery_takes_the_first_commit_of_any_table, ("RecoveredLog",), mix(power_cut=3, crash=1, restart_all=3)
    ),
    "producers when cut": Mutation(
        producers_stay_when_the_log_is_cut,
        ("AckedRecordsNotLost", "NoDuplicateSequence"),
        mix(Focus("create", 0.3, "f", "/t-0/"), 1_500, crash=3, restart_all=3, cut_broker=2),
        duration_ms=6_000,
    ),
    "registration": Mutation(registration_changes_nothing, COMPLETE, mix(second_process=3, power_cut=2, restart_all=2)),
    "clean by the metadata": Mutation(
        clean_stop_without_its_mark,
        COMPLETE,
        mix(shut_down=4, another_disk=4, crash=2, restart_all=2),
        TWO_NEEDED,
    ),
    "longest log": Mutation(
        the_last_one_to_register_leads,
        ("KeptRecordsNotLost",),
        mix(Focus("create", 0.2, "f", "/t-0/"), 500, power_cut_of_all=2, pause_session=1),
        Setting(pause_ms_max=30),
    ),
    "epochs without records": Mutation(records_alone_count, COMPLETE, _unanswered, Setting(pause_ms_max=30), 6_000),
    "earlier epochs": Mutation(
        earlier_epochs_go_on,
        COMPLETE,
        mix(Focus("create", 0.2, "b", "/t-0/"), 2_000, second_process=4, restart_all=1),
    ),
    "empty logs": Mutation(empty_logs_lead, COMPLETE, mix(another_disk=4, crash=3, restart_all=2)),
    "absent tables": Mutation(absent_tables_are_made_at_once, COMPLETE, mix(removed_table=4, crash=2, restart_all=2)),
    "old progress": Mutation(
        old_progress_goes, COMPLETE, mix(removed_table=3, metadata_power_cut=4, crash=1, restart_all=3)
    ),
    "recovery among writers": Mutation(
        recovery_among_writers,
        (*COMPLETE, "Liveness", "MonotonicHighWatermark", "SingleLeaderPerEpoch"),
        mix(Focus("head", 0.5, "b"), 2_500, second_process=4, crash=1, restart_all=2),
        Setting(upkeep=QUICK_UPKEEP, pause_ms_max=30),
        6_000,
    ),
    "read back": Mutation(conflicts_are_not_read_back, ("NoDuplicates", *COMPLETE), _doubled),
    "followed high watermark": Mutation(
        high_watermark_read_as_a_follower,
        ("MonotonicHighWatermark",),
        mix(crash=2, restart_all=1, cut_broker=2),
    ),
    "no image": Mutation(
        progress_without_an_image, ("AckedRecordsNotLost", "Liveness"), mix(crash=1), Setting(partitions=3)
    ),
    "empty ISR": Mutation(isr_may_be_empty, ("ValidPartitionState",), mix(crash=4)),
    "gap": Mutation(
        no_gap_between_polls,
        ("SessionExpiry",),
        mix(Focus("get", 0.1, "c", "sessions/"), 4_000, pause_controller=3),
    ),
    "append without epoch": Mutation(
        no_epoch_check_on_commits,
        ("MonotonicLeaderEpoch", "LogMatching"),
        mix(Focus("create", 0.2, "b", "/t-0/"), 2_000, second_process=4, restart_all=1),
    ),
    "one epoch": Mutation(leader_epoch_stays, ("SingleLeaderPerEpoch", "MonotonicLeaderEpoch"), mix(crash=2)),
    "unclean": Mutation(unclean_elections, COMPLETE, mix(crash=3, pause_session=3, restart_all=2)),
    "two controllers": Mutation(
        deposed_controllers_go_on,
        ("OneController",),
        mix(Focus("create", 0.7, "c", "metadata"), 2_500, cut_broker=3, pause_broker=2, crash=1, restart_all=1),
        Setting(brokers=4),
        8_000,
    ),
    "metadata sync": Mutation(
        metadata_is_acted_on_at_once,
        ("ActedOnStays",),
        mix(Focus("create:done", 0.5, "bc", "metadata"), 1_500, metadata_power_cut=4, crash=2),
    ),
    "lagging sessions": Mutation(
        lagging_sessions_make_tables,
        COMPLETE,
        mix(removed_table=4, second_process=3, pause_broker=2, restart_all=1),
        Setting(pause_ms_max=1_000),
        6_000,
    ),
    "late tables": Mutation(
        late_tables_are_logs,
        COMPLETE,
        mix(Focus("create", 0.3, "f", "/t-0/"), removed_table=4, second_process=3, restart_all=1),
        Setting(pause_ms_max=1_000),
        6_000,
    ),
    "turn of copies": Mutation(
        copies_fold_without_the_turn,
        ("SameImage",),
        mix(Focus("get", 0.2, "f"), another_disk=4, removed_table=4, crash=3, restart_all=2),
        Setting(partitions=4, notifies=False, producers=5, calls_max=32),
    ),
    "log end": Mutation(high_watermark_is_the_log_end, COMPLETE, mix(crash=1)),
    "joins early": Mutation(
        joins_one_offset_early,
        COMPLETE,
        mix(Focus("create", 0.3, "f", "/t-0/"), 400, crash=2, restart_all=3),
        Setting(pause_ms_max=30),
    ),
    "former progress": Mutation(
        former_progress_counts, COMPLETE, mix(power_cut=3, another_disk=3, crash=1, restart_all=2)
    ),
    "no maximal ISR": Mutation(high_watermark_of_the_known_isr, COMPLETE, _unanswered, Setting(pause_ms_max=30), 6_000),
    "acks one": Mutation(answered_when_appended, ("AckedRecordsNotLost",), mix(crash=1)),
    "cut at the high watermark": Mutation(
        truncation_to_the_high_watermark, COMPLETE, mix(crash=2, restart_all=1, cut_broker=1)
    ),
    "removed files": Mutation(removed_files_are_forgotten, ("NothingForgotten",), mix(crash=1, restart_all=1)),
    "deleted version": Mutation(deleted_up_to_the_newest_commit, ("NothingForgotten",), mix(crash=1, pause_session=1)),
    "failed copies": Mutation(
        failed_copies_remove_by_name,
        ("CommittedFilesStand",),
        _half_copied,
        duration_ms=8_000,
    ),
    "late write": Mutation(a_late_write_is_a_dead_root, ("SessionExpiry",), mix(crash=1)),
    "one answer": Mutation(
        a_publication_is_one_answer, ("SessionExpiry",), mix(Focus("put", 0.5, "b", "/leader"), 280)
    ),
    "inbox answers": Mutation(
        answers_to_requests_do_not_count,
        ("SessionExpiry",),
        _unanswered,
        Setting(pause_ms_max=30, sinks=6),
        6_000,
    ),
    "sequences": Mutation(sequences_are_not_checked, ("NoDuplicateSequence", "NoDuplicates"), mix(cut_broker=2)),
}
