"""A replica that follows: one round of truncation check, copy and commit (KIP-101, KIP-279).

I/O: through two `PartitionLog`s, the own one and the leader's (which it only reads). The rules that make this safe are
promises 6 and 7. Each is a function of its own here, so that a test can switch it off and the simulation then finds
the history that it prevents.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from stratalog.replication import cadence
from stratalog.replication.follower.plan import Need, Standing, need
from stratalog.replication.follower.repair import is_lost, may_repair, sound_end
from stratalog.replication.metadata.records import NO_LEADER, PartitionRecord
from stratalog.replication.progress.progress import ReplicaProgress
from stratalog.storage import errors
from stratalog.storage.delta.table import Conflict
from stratalog.storage.errors import StratalogError
from stratalog.storage.files.damage import Damage
from stratalog.storage.log.copy import ROUND_FILES_MAX, is_behind, lacks_records
from stratalog.storage.log.leader_epochs import LeaderEpochCache
from stratalog.storage.log.partition_log import PartitionLog
from stratalog.storage.log.segments import files_between
from stratalog.storage.log_lines import line_logger

_LOG = line_logger("stratalog.fetcher")

FOLD_AHEAD_COMMITS = 32
"""Commits of a table that are folded ahead at a time."""


def leader_has_started(leader: PartitionLog, leader_epoch: int) -> bool:
    """Rule (a): the leader's own table shows this very epoch.

    Before that its log may still change under an older epoch, and what it shows is not yet what this
    epoch begins with (Kafka: only a broker that is the leader answers OffsetsForLeaderEpoch).
    """
    return leader.leader_epoch == leader_epoch


def state_epoch_first(
    own: PartitionLog,
    leader_epoch: int,
    truncate_to: int | None,
    log_start: int = 0,
    leader: LeaderEpochCache | None = None,
) -> bool:
    """Rule (b): the epoch stands in the follower's own table before anything is done under it.

    A straggling fetch task of an older epoch then meets Conflict and is fenced. False: a race was lost.
    `truncate_to` None leaves the log as it is. What lies below `log_start` is hidden. `leader`: the leader's epochs.
    """
    outcome = own.start_epoch(
        leader_epoch, as_leader=False, truncate_to=truncate_to, log_start=log_start, leader=leader
    )
    return not isinstance(outcome, Conflict)


def is_still_under(own: PartitionLog, leader_epoch: int) -> bool:
    """After a lost race: the own table still shows this epoch, so the winner only copied the same records.

    The other half of rule (b): a commit under another epoch means that the logs must be compared again.
    """
    return own.leader_epoch == leader_epoch


class FollowedReplica:
    """One followed partition for one leader epoch."""

    def __init__(
        self,
        state: PartitionRecord,
        topic_id: str,
        own: PartitionLog,
        leader: PartitionLog,
        broker_id: int = NO_LEADER,
        is_relied_on: Callable[[int], bool] = lambda _leader_end: False,
    ) -> None:
        """`broker_id` is the follower's. `is_relied_on`: whether the leader, whose log has this end, may count on its
        records in this epoch."""
        self.state = state
        self.broker_id = broker_id
        self.topic_id = topic_id
        self.own = own
        self.leader = leader
        self.has_started = False
        self.failure: StratalogError | None = None
        self._is_relied_on = is_relied_on
        self._old_end = 0
        self.copied_count = 0
        self.copied_bytes = 0
        self.copied_files = 0
        """How many files the last copy added."""
        self.has_backlog = False
        """Whether the last copy left more: a round was not enough."""
        self.starts = cadence.REPLICA_RETRY
        """Invariant: `failures` counts the attempts to start in a row that found the leader in an older epoch."""

    @property
    def leader_epoch(self) -> int:
        return self.state.leader_epoch

    @property
    def file_count(self) -> int:
        """How many files the two folds name."""
        return sum(len(log.files) for log in (self.own, self.leader) if log.is_folded)

    def need(self, published: ReplicaProgress, elders: ReplicaProgress | None = None) -> Need:
        """Compare this replica with its leader's published progress: whether it is to be copied, checked or left.

        published  the leader's progress
        elders     this replica's progress as the earlier fetch session published it; None: there is none
        """
        return need(self._standing(elders), published)

    def _standing(self, elders: ReplicaProgress | None) -> Standing:
        start, end = (self.own.log_start_offset, self.own.log_end_offset) if self.own.is_folded else (0, 0)
        wanted = self.topic_id, self.leader_epoch
        if elders is not None and not self.has_started and (elders.topic_id, elders.leader_epoch) == wanted:
            end = max(end, elders.log_end_offset)
        return Standing(self.topic_id, self.leader_epoch, self.has_started, start, end, self.has_backlog)

    def stands(self) -> bool:
        """True unless a table that was folded was made again or cleaned up past the fold: then open both again."""
        return all(log.table.still_stands() for log in (self.own, self.leader) if log.is_folded)

    def fold_ahead(self) -> bool:
        """Fold some new commits of both tables, as far as they exist, and what else a copy needs; True when there may
        be more. Commits nothing."""
        has_more = False
        for log in (self.leader, self.own):
            with contextlib.suppress(StratalogError):  # the copy raises it again
                seen = log.version if log.is_folded else None
                log.refresh(FOLD_AHEAD_COMMITS)
                has_more |= seen is not None and log.version >= seen + FOLD_AHEAD_COMMITS
                log.fold_ahead()
        return has_more

    def catch_up(self, max_bytes: int) -> bool:
        """One bounded round; True when there may be more to do at once.

        Raises StoreUnavailableError: try again later; a commit was written as a whole or not at all. A table that was
        made again is to be opened again (`stands`).
        """
        if self.failure is not None:
            return False
        try:
            if not self.has_started:
                return self._start()
            return self._copy(max_bytes)
        except (errors.FencedLeaderEpochError, errors.UnknownLeaderEpochError, errors.TableReplacedError) as reason:
            # This session's metadata is behind the tables, or ahead of them; the next refresh shows which.
            _LOG.debug("%s: %s", self.state.topic_partition, reason)
            self.has_started = False
            return False

    def _open_own(self) -> bool:
        """False when there is no table, or one that was made and has never been under an epoch."""
        try:
            self.own.refresh()
        except errors.UnknownTopicOrPartitionError:
            return False
        if self.own.topic_id != self.topic_id:
            raise errors.InconsistentTopicIdError(
                f"{self.own.name}: topic id {self.own.topic_id}, expected {self.topic_id}"
            )
        return self.own.leader_epoch >= 0

    def _make_own(self) -> bool:
        """Make the table that is absent. False: nothing is made yet. Raises as `check_not_lost`.

        The request may arrive long after it was decided on, and in the place of another session's table that was
        removed meanwhile. It makes a table that has never been under an epoch, which is no log yet: whether it becomes
        one is decided once it is there.
        """
        self.check_not_lost()
        try:
            self.own.exists_or_create(self.topic_id, producers_from=self.leader.state.producers_from)
        except errors.UnknownTopicOrPartitionError:
            return False  # the table that was made is gone again: the newest metadata decide whether to make one
        if self.own.leader_epoch < 0:
            self.check_again()
        return True

    def check_again(self) -> None:
        """`check_not_lost`, after a request that may have taken long."""
        self.leader.refresh()
        self.check_not_lost()

    def check_not_lost(self) -> None:
        """LogLostError: others rely on records of the absent table in this epoch, so none is made under it."""
        leader_end = self.leader.log_end_offset
        is_relied_on = self._is_relied_on(leader_end)
        if is_lost(self.state, self.broker_id, leader_end, is_relied_on=is_relied_on):
            raise errors.LogLostError(
                f"{self.own.name}: there is no log here, but the leader's ends at {leader_end} under leader epoch "
                f"{self.leader_epoch}, ISR {list(self.state.isr)}, ELR {list(self.state.elr)}: this replica leaves both"
                " and is copied again. Find out what removed the directory."
            )

    def _start(self) -> bool:
        damage = self._damage()
        table = self.own.table
        if damage is not None and not damage.path and table.has_rested() and table.drop(self._has_noted_damage):
            _LOG.warning("%s is dropped, to be copied again: %s", self.own.name, damage.reason)
            return True
        has_log = self._open_own()
        try:
            self.leader.refresh()
        except errors.UnknownTopicOrPartitionError:
            return False  # the leader has not made its table yet
        if self.leader.topic_id != self.topic_id:
            return False
        if not leader_has_started(self.leader, self.leader_epoch):
            return False
        if not (has_log or self._make_own()):
            return True
        if self.own.leader_epoch > self.leader_epoch:
            return False
        end = self._truncate_to(damage)
        # Below the leader's log start nothing was compared: it must not be shown, should this replica lead later.
        own_end = self.own.log_end_offset
        log_start = min(self.leader.log_start_offset, own_end if end is None else min(end, own_end))
        self.has_started = state_epoch_first(self.own, self.leader_epoch, end, log_start, self.leader.epochs)
        self._old_end = self.leader.log_end_offset
        self.starts = cadence.REPLICA_RETRY
        if not self.has_started:
            self.own.refresh()
            return True
        if damage is not None:
            self.own.table.note_damage(None)
        return is_behind(self.own, self.leader)

    def _has_noted_damage(self) -> bool:
        return self.own.table.damage() is not None

    def _damage(self) -> Damage | None:
        """The damage to be repaired now. Raises DamagedFileError when it must not be repaired under this epoch."""
        damage = self.own.table.damage()
        if damage is not None and not may_repair(damage, self.state, self.broker_id):
            raise errors.DamagedFileError(f"{self.own.name}: not repaired yet: {damage.reason}", damage.path)
        return damage

    def _truncate_to(self, damage: Damage | None) -> int | None:
        """Where the logs diverge, or where the own one is damaged: what lies above is copied again."""
        divergence = self._divergence()
        end = None if damage is None else sound_end(self.own.files, damage)
        if end is None:
            return divergence
        _LOG.warning("%s is copied again from offset %d on: %s", self.own.name, end, damage.reason if damage else "")
        return end if divergence is None else min(end, divergence)

    def _divergence(self) -> int | None:
        """The offset up to which the own log agrees with the leader's (KIP-101, KIP-279): where to truncate to.

        None when that was checked before: since this epoch began only copies were added.
        """
        if self.own.leader_epoch == self.leader_epoch:
            return None
        return LeaderEpochCache.agreed_end(
            self.own.epochs,
            self.own.log_end_offset,
            self.leader.epochs,
            self.leader.log_end_offset,
            self.leader.log_start_offset,
        )

    def _copy(self, max_bytes: int) -> bool:
        self.leader.refresh()
        if not leader_has_started(self.leader, self.leader_epoch):
            return False
        if not is_behind(self.own, self.leader):
            self.has_backlog = False
            return False
        if self.own.log_end_offset < self._old_end:
            self._check_old_files(max_bytes)
        outcome = self.own.copy_from(self.leader, self.leader_epoch, max_bytes)
        if isinstance(outcome, Conflict):
            # Another session of this broker copied first (then continue from there), or a newer epoch began.
            self.own.refresh()
            self.has_started = is_still_under(self.own, self.leader_epoch)
            return self.has_started
        self.copied_count += 1
        copied = files_between(self.own.files, outcome.start_offset, outcome.end_offset)
        self.copied_files = len(copied)
        self.copied_bytes += sum(entry.file.size_bytes for entry in copied)
        self.has_backlog = lacks_records(self.own, self.leader)
        return self.has_backlog

    def _check_old_files(self, max_bytes: int) -> None:
        """Read the leader's files of before this replica started: they may have decayed since they were written, and
        bytes are copied as they are. What the leader writes later is not read. Raises DamagedFileError."""
        size_bytes, old = 0, files_between(self.leader.files, self.own.log_end_offset, self._old_end)
        for entry in old[:ROUND_FILES_MAX]:
            size_bytes += entry.file.size_bytes
            if size_bytes > max_bytes and size_bytes > entry.file.size_bytes:
                return
            try:
                self.leader.table.check_files([entry.file], bits=True)
            except errors.DamagedFileError:
                if not self.leader.refresh():  # else it was merged away, and what is copied now are others
                    raise
                return

    def progress(self) -> ReplicaProgress | None:
        """What this replica may publish: nothing before the epoch stands in its own table."""
        if not self.has_started:
            return None
        return ReplicaProgress(
            self.state.topic_partition,
            self.leader_epoch,
            self.own.log_end_offset,
            self.own.version,
            log_start_offset=self.own.log_start_offset,
            topic_id=self.topic_id,
            unclean=self.state.unclean,
        )
