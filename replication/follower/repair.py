"""How a follower repairs a table that is damaged or gone: it copies it again. Damage of the leader's table is reported.

I/O: the record of the damage in the own root, the metadata log, the leader's inbox. A replica that lost records must
not be counted on: not in the ISR, and not by what it published before. So it leaves the ISR with a new leader epoch,
and drops what is damaged only under a later epoch than that in which the damage was found (`may_repair`). A table that
is gone is made again under the epoch after that in which others relied on it (`is_lost`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum

from stratalog.replication.controller.brokers import leave_isr
from stratalog.replication.metadata.image import ClusterImage, Result
from stratalog.replication.metadata.log import MetadataLog
from stratalog.replication.metadata.records import PartitionRecord
from stratalog.replication.requests.hand_over import damage_report_path, encode_damage_report
from stratalog.replication.requests.inbox_bell import ring
from stratalog.replication.stores import Stores
from stratalog.storage import errors
from stratalog.storage.delta.table import LogTable
from stratalog.storage.errors import StratalogError
from stratalog.storage.files.damage import UNSETTLED, Damage, damage_in, is_about
from stratalog.storage.files.data_file import FileEntry
from stratalog.storage.log_lines import line_logger
from stratalog.storage.records import IdentifiedPartition

_LOG = line_logger("stratalog.fetcher")


class ReplicaFinding(StrEnum):
    """What an error is about."""

    LEADER = "the leader's table cannot be trusted"
    DAMAGED = "the own table is damaged: it is copied again"
    ABSENT = "a table is not there, or is another one by now: both are opened again"
    LOST = "the own table is gone, with records that others rely on: it is copied again"
    ALIEN = "the own table has commits of a foreign writer: it is not changed"
    OTHER = "something else"


def finding(reason: StratalogError, own_name: str, leader_name: str) -> ReplicaFinding:
    """Whose table an error is about, and whether copying again repairs it."""
    if isinstance(reason, errors.UnknownTopicOrPartitionError | errors.TableReplacedError):
        return ReplicaFinding.ABSENT
    if isinstance(reason, errors.LogLostError):
        return ReplicaFinding.LOST
    damage, is_alien = (
        damage_in(reason),
        isinstance(reason, errors.ForeignCommitError | errors.UnsupportedTableFeatureError),
    )
    if own_name == leader_name or (damage is None and not is_alien):
        return ReplicaFinding.OTHER
    if is_about(reason, leader_name):
        return ReplicaFinding.LEADER
    if not is_about(reason, own_name):
        return ReplicaFinding.OTHER
    return ReplicaFinding.ALIEN if damage is None else ReplicaFinding.DAMAGED


def may_repair(damage: Damage, state: PartitionRecord, broker_id: int) -> bool:
    """Whether a follower may drop what is damaged under the epoch that began with `state`.

    Not while it is in the ISR or the ELR, which may be elected from; and not under an epoch in which an overlapping
    session may have published what the table held.
    """
    return broker_id not in (*state.isr, *state.elr) and damage.leader_epoch < state.leader_epoch


def is_lost(state: PartitionRecord, broker_id: int, leader_end: int, *, is_relied_on: bool) -> bool:
    """Whether an absent table of a follower had records that count under the epoch that began with `state`: then it
    leaves ISR and ELR before it makes a new one.

    leader_end    the log end of the leader, which has begun this epoch; at 0 a member of the ISR had nothing to lose
    is_relied_on  whether the leader may count on records of the follower in this epoch: if its own log is empty now,
                  its records are lost, too
    """
    return is_relied_on or (leader_end > 0 and has_had_a_table(state, broker_id))


def has_had_a_table(state: PartitionRecord, broker_id: int) -> bool:
    """Whether a partition's state shows that this replica has had a table, on which others rely.

    A topic's first ISR makes its tables under leader epoch 0, and a newly assigned replica is not in the ISR. Nobody is
    eligible from the beginning, so in the ELR a replica is relied on under epoch 0, too: the ISR shrinks without a new
    epoch.
    """
    return broker_id in state.elr or (state.leader_epoch > 0 and broker_id in state.isr)


def sound_end(files: Sequence[FileEntry], damage: Damage) -> int | None:
    """Up to where a log need not be copied again: a damaged file of offsets [100, 110) gives 100.

    None when the file left the log already. `files` are ordered by offset.
    """
    return next((entry.start_offset for entry in files if entry.path == damage.path), None)


class ReplicaRepair:
    """The repairs of one fetch session's replicas, as broker `broker_id` under `broker_epoch`."""

    def __init__(self, broker_id: int, broker_epoch: int, metadata: MetadataLog, stores: Stores) -> None:
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._metadata = metadata
        self._stores = stores

    def begin(
        self, state: PartitionRecord, topic_id: str, own: LogTable, leader_name: str, reason: StratalogError
    ) -> bool:
        """False when it is the leader's table, or one is absent: the follower tries again. Otherwise the own replica is
        offline; if copying again repairs it, until the epoch that begins."""
        found, named = finding(reason, own.name, leader_name), IdentifiedPartition(topic_id, state.topic_partition)
        if found is ReplicaFinding.LEADER:
            _LOG.warning("%s cannot be copied by broker %d: %s", state.topic_partition, self._broker_id, reason)
            self._report_to_leader(state, reason)
            return False
        if found is ReplicaFinding.ABSENT:
            _LOG.warning("%s is opened again by broker %d: %s", state.topic_partition, self._broker_id, reason)
            return False
        _LOG.error("%s goes offline on broker %d: %s", state.topic_partition, self._broker_id, reason)
        if found is ReplicaFinding.DAMAGED:
            self._recopy(own, named, reason)
        elif found is ReplicaFinding.ALIEN:
            self._leave_isr(named, ends_epoch=False)  # the leader must not wait for it
        elif found is ReplicaFinding.LOST:
            self._leave_isr(named, ends_epoch=True, lost_under=state.leader_epoch)
        return True

    def _recopy(self, own: LogTable, named: IdentifiedPartition, reason: StratalogError) -> None:
        """Record the damage, then end the epoch and leave the ISR: under a later epoch `may_repair` is true.

        It is recorded first, without an epoch, so that no other session follows with this table meanwhile.
        """
        damage = damage_in(reason)
        assert damage is not None
        own.note_damage(damage)
        epoch = self._leave_isr(named, ends_epoch=True)
        if epoch is not None:
            own.note_damage(replace(damage, leader_epoch=epoch - 1))

    def _leave_isr(self, named: IdentifiedPartition, *, ends_epoch: bool, lost_under: int = UNSETTLED) -> int | None:
        """The epoch that begins; None when it was not in the ISR, or its registration is over.

        `lost_under`: the epoch under which a table was found to be gone; under a later one it is looked for again.
        """

        def decide(image: ClusterImage) -> Result[int | None]:
            newest = image.state_of(named)
            if newest is not None and newest.leader_epoch > lost_under:
                return Result((), newest.leader_epoch)
            return leave_isr(image, self._broker_id, self._broker_epoch, named, ends_epoch=ends_epoch)

        try:
            return self._metadata.propose(decide)
        except errors.StaleBrokerEpochError as reason:
            _LOG.info("broker %d: %s", self._broker_id, reason)
            return None

    def _report_to_leader(self, state: PartitionRecord, reason: StratalogError) -> None:
        """The leader checks its table, and goes offline if the report is right."""
        damage = damage_in(reason)
        root = self._metadata.image.brokers[state.leader].registration.root
        content = encode_damage_report(state.topic_partition, "" if damage is None else damage.path)
        try:
            objects = self._stores.objects(root)
            objects.put(damage_report_path(state.topic_partition), content)
            ring(objects, f"{self._broker_id}-{self._broker_epoch}-{state.topic_partition}-{state.leader_epoch}")
        except errors.StoreUnavailableError as failure:
            _LOG.warning("damage cannot be reported to leader %d: %s", state.leader, failure)
