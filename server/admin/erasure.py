"""Proof of an erasure: what every replica of a topic did, and what its files still hold.

I/O: reads every replica's table and lists its files, whether its broker runs or not, and lists what deletions of
replicas left on any broker's root. Nothing is written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pyarrow.compute as pc

from stratalog.replication.folders import replica_of_leftover
from stratalog.replication.metadata.erasures import erase_of, request_erase
from stratalog.replication.metadata.image import ClusterImage, Result
from stratalog.replication.metadata.records import EraseRecord, PartitionRecord
from stratalog.replication.metadata.storage_domains import domain_of, topic_root
from stratalog.server.view.cluster_view import ClusterView
from stratalog.storage.delta.removed import is_list, listed_files
from stratalog.storage.errors import (
    BrokerNotAvailableError,
    InvalidRequestError,
    ObjectNotFoundError,
    StratalogError,
)
from stratalog.storage.files.batch_file import DATA_DIRECTORIES
from stratalog.storage.log.leader_epochs import UNDEFINED_EPOCH
from stratalog.storage.log.reader import LogReader
from stratalog.storage.records import TopicPartition
from stratalog.storage.transactions import OffsetAndEpoch
from stratalog.storage.upkeep.erase import Erase, ErasePredicate, erased_by, matching

READ_TRIES = 5


@dataclass(frozen=True, slots=True)
class ReplicaErasure:
    """One replica's part.

    version         of its table, when the other values were read
    is_applied      it has read all records of the request
    files_rewritten, records_erased  counts; smaller for a replica that was copied from one that had erased
    records_left    records that match and are still in the log, counted now
    files_waiting   data files that may hold an erased record and are still on storage, though not in the log: they are
                    deleted after `file.delete.delay.ms`
    error           why it could not be read; the numbers are meaningless then
    """

    topic_partition: TopicPartition
    broker_id: int
    version: int = -1
    is_applied: bool = False
    files_rewritten: int = 0
    records_erased: int = 0
    records_left: int = 0
    files_waiting: int = 0
    error: StratalogError | None = None

    @property
    def is_erased(self) -> bool:
        """True when no reader of this replica gets a matching record."""
        return self.error is None and self.is_applied and self.records_left == 0

    @property
    def is_gone(self) -> bool:
        """True when also no file on storage holds one."""
        return self.is_erased and self.files_waiting == 0


@dataclass(frozen=True, slots=True)
class ErasureLeftover:
    """What the deletion of a replica left on a broker's root, or a move in a storage domain: data files that may hold
    an erased record. The broker deletes them when it starts, or, in a domain, soon.

    error  why the root could not be listed; it may hold some then
    """

    broker_id: int
    directory: str = ""
    file_count: int = 0
    error: StratalogError | None = None


@dataclass(frozen=True, slots=True)
class ErasureReport:
    """An erasure on every replica of its topic, by partition and broker, and on what was a replica."""

    topic: str
    erase_id: int
    predicate: str
    replicas: tuple[ReplicaErasure, ...]
    leftovers: tuple[ErasureLeftover, ...] = ()

    @property
    def is_erased(self) -> bool:
        return all(replica.is_erased for replica in self.replicas)

    @property
    def is_gone(self) -> bool:
        return all(replica.is_gone for replica in self.replicas) and not self.leftovers


def request_erasure(view: ClusterView, topic: str, predicate: str | Mapping[str, Any], timeout_ms: int | None) -> int:
    """Commit a request about all records committed by now; its id. See `Admin.delete_where`."""
    text = ErasePredicate.parse(predicate).text
    places = view.partitions(topic)
    topic_id = view.image.topic_ids.get(topic, "")
    marks = view.watermarks.of_all(places, timeout_ms)
    ends = [OffsetAndEpoch(marks[place].high_watermark, marks[place].leader_epoch) for place in sorted(marks)]
    request_id = view.ids.new_id()

    def decide(image: ClusterImage) -> Result[EraseRecord]:
        return request_erase(image, topic, topic_id, text, ends, request_id)

    return view.propose(decide).erase_id


def ends_left(view: ClusterView, record: EraseRecord) -> tuple[int, ...]:
    """A request's end offsets, each as far as the records below it are not lost (`Erase.within`), by the leaders' logs.
    Of a log that cannot be read now it is the request's."""
    places = [TopicPartition(record.topic, partition) for partition in range(len(record.end_offsets))]
    return tuple(_end_left(view, place, erase_of(record, place.partition)) for place in places)


def _end_left(view: ClusterView, place: TopicPartition, erase: Erase) -> int:
    with suppress(StratalogError):
        if UNDEFINED_EPOCH < erase.leader_epoch < view.partition_state(place).leader_epoch:
            return erase.within(view.records.read_from_log(place, lambda log: log.epochs, 0)).end_offset
    return erase.end_offset


def erasure_report(view: ClusterView, topic: str, erase_id: int) -> ErasureReport:
    """See `Admin.describe_erasure`."""
    places = view.partitions(topic)
    view.refresh()
    image = view.image
    record = image.erases.get(topic, {}).get(erase_id)
    if record is None:
        known = sorted(image.erases.get(topic, {}))
        raise InvalidRequestError(f"topic '{topic}' has no erasure {erase_id}, only {known}")
    replicas = [
        _replica_erasure(view, place, broker_id, record)
        for place in places
        for broker_id in sorted(image.partition(place).replicas)
    ]
    leftovers = [
        leftover
        for broker_id, broker in sorted(image.brokers.items())
        for leftover in _leftovers(view, topic, broker_id, broker.registration.root)
    ]
    left = [each for place in places for each in _left_tables(view, place)]
    return ErasureReport(topic, erase_id, record.predicate, tuple(replicas), (*leftovers, *left))


def _left_tables(view: ClusterView, place: TopicPartition) -> list[ErasureLeftover]:
    """What a partition left in storage domains that its leader deletes soon."""
    image = view.image
    state = image.partition(place)
    return [_left_table(view, state, topic_root(domain_of(image, name), place.topic, image.topic_ids[place.topic]))
            for name in state.left]  # fmt: skip


def _left_table(view: ClusterView, state: PartitionRecord, root: str) -> ErasureLeftover:
    url, _, folder = root.rpartition("/")
    directory = f"{folder}/{state.topic_partition}"
    try:
        objects = view.stores.objects(url)
        count = sum(len(objects.list(f"{directory}/{each}")) for each in DATA_DIRECTORIES)
        return ErasureLeftover(state.leader, f"{url}/{directory}", count)
    except StratalogError as error:
        return ErasureLeftover(state.leader, f"{url}/{directory}", error=error)


def _leftovers(view: ClusterView, topic: str, broker_id: int, root: str) -> list[ErasureLeftover]:
    """Those of the topic's name: they do not show which topic of that name they were of."""
    try:
        objects, found = view.stores.objects(root), []
        for directory in objects.leftovers():
            place = replica_of_leftover(directory)
            if place is not None and place.topic == topic:
                count = sum(len(objects.list(f"{directory}/{each}")) for each in DATA_DIRECTORIES)
                found.append(ErasureLeftover(broker_id, directory, count))
        return found
    except StratalogError as error:
        return [ErasureLeftover(broker_id, error=error)]


def _replica_erasure(view: ClusterView, place: TopicPartition, broker_id: int, record: EraseRecord) -> ReplicaErasure:
    erase = erase_of(record, place.partition)
    try:
        root = view.replica_root(place, broker_id)
        if root is None:
            raise BrokerNotAvailableError(f"{place}: broker {broker_id} has never registered")
        for _ in range(READ_TRIES):
            with suppress(ObjectNotFoundError):  # a file was replaced while it was being read
                return replica_state(LogReader(view.stores.table(root, place), view.clock), place, broker_id, erase)
        return replica_state(LogReader(view.stores.table(root, place), view.clock), place, broker_id, erase)
    except StratalogError as error:
        return ReplicaErasure(place, broker_id, error=error)


def replica_state(log: LogReader, place: TopicPartition, broker_id: int, erase: Erase) -> ReplicaErasure:
    """What one replica's log and files still have of the records to be erased."""
    log.remembers_removed = True
    log.refresh()
    erase = erase.within(log.state.epochs)
    listed = {path for each in DATA_DIRECTORIES for path, _ in log.table.list_objects(each)}
    left = 0
    for entry in log.files:
        if entry.start_offset < erase.end_offset:
            left += pc.sum(matching(log.table.read_file(entry.file), entry, erase)).as_py() or 0
    erased = erased_by(log.state, erase.erase_id)
    harmless = {path for path, removed_ms in _removed_files(log) if removed_ms > erased.swapped_ms}
    return ReplicaErasure(
        place,
        broker_id,
        log.version,
        erased.is_complete,
        erased.file_count,
        erased.record_count,
        left,
        len(listed - {entry.path for entry in log.files} - harmless),
    )


def _removed_files(log: LogReader) -> Iterator[tuple[str, int]]:
    """(path, when it was removed) of what left the log. ObjectNotFoundError."""
    for path, removed in log.state.removed.items():
        if is_list(path):
            yield from listed_files(log.table.read_object(path), path)
        else:
            yield path, removed.removed_ms
