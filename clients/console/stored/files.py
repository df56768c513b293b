"""What the tables of a topic take: live files, dead files, commits; and the calls to stores that this process made.

I/O: the replicas' tables and listings of their directories.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from stratalog.clients.console.asker import Asker
from stratalog.clients.console.question import Parameter, Question
from stratalog.clients.console.stored.commits import CommitReader
from stratalog.clients.console.stored.storage import ReplicaLog, replica_logs, stored_view
from stratalog.replication.metadata.acls import Operation, ResourceType
from stratalog.replication.metadata.storage_domains import replica_directory
from stratalog.server.view.cluster_view import ClusterView
from stratalog.storage.delta.table import LOG_END, Commit
from stratalog.storage.errors import InvalidRequestError, ReplicaNotAvailableError, StratalogError
from stratalog.storage.files.batch_file import DATA_DIRECTORIES
from stratalog.storage.log.reader import LogReader
from stratalog.storage.metering.calls import calls_of
from stratalog.storage.objects.port import ObjectMeta
from stratalog.storage.records import TopicPartition

PARTITIONS_MAX = 100
"""Partitions whose replicas are read for one answer about a topic."""
FILES_MAX, COMMITS_MAX = 500, 200
"""Limits of files and commits in one answer."""
HOUR_MS = 3_600_000
LEADER = -1


@dataclass(frozen=True, slots=True)
class LiveFile:
    """A data file that the table has. `path` is below the table; times are those of its records."""

    path: str
    segment: int
    leader_epoch: int
    start_offset: int
    end_offset: int
    record_count: int
    size_bytes: int
    min_timestamp_ms: int | None
    max_timestamp_ms: int | None


@dataclass(frozen=True, slots=True)
class DeadFile:
    """A data file that is on storage and not in the table: removed a while ago, or written and not committed."""

    path: str
    size_bytes: int
    modified_ms: int


@dataclass(frozen=True, slots=True)
class FileCommit:
    """A commit: what it added and removed, and where the log ended after it."""

    version: int
    timestamp_ms: int
    operation: str
    files_added: int
    bytes_added: int
    records_added: int
    files_removed: int
    log_end_offset: int | None


@dataclass(frozen=True, slots=True)
class ReplicaFiles:
    """What one replica takes.

    log_objects, log_bytes  commits and checkpoints in `_delta_log`
    commits_in_hour         of the last hour
    error                   why it cannot be read; the numbers are 0 then
    """

    partition: int
    broker_id: int
    is_leader: bool
    version: int = -1
    segments: int = 0
    live_files: int = 0
    live_bytes: int = 0
    live_records: int = 0
    dead_files: int = 0
    dead_bytes: int = 0
    log_objects: int = 0
    log_bytes: int = 0
    log_start_offset: int = 0
    log_end_offset: int = 0
    commits_in_hour: int = 0
    error: str = ""


@dataclass(frozen=True, slots=True)
class CallsOfStore:
    """Calls that this process made to one store since it began, by kind."""

    root: str
    calls: dict[str, int]
    failed: int
    read_bytes: int
    written_bytes: int


@dataclass(frozen=True, slots=True)
class TopicFiles:
    """The files, commits and bytes of a topic.

    replicas  of the first `PARTITIONS_MAX` partitions, or of the one that is asked about
    files, dead, commits
              of one replica, when a partition is asked about; the newest ones
    is_cut    whether there are more partitions, files or commits
    calls     empty for those who may not describe the cluster
    """

    topic: str
    replicas: tuple[ReplicaFiles, ...]
    live_bytes: int
    dead_bytes: int
    files: tuple[LiveFile, ...]
    dead: tuple[DeadFile, ...]
    commits: tuple[FileCommit, ...]
    is_cut: bool
    calls: tuple[CallsOfStore, ...]


def files(asker: Asker, topic: str, partition: int, broker: int) -> TopicFiles:
    """What the replicas of a topic take, or those of one partition with the files of one of them."""
    asker.check_topic(topic, Operation.READ)
    view = stored_view(asker, "the files of tables are")
    view.refresh()
    places = view.partitions(topic) if partition < 0 else (TopicPartition(topic, partition),)
    taken: list[ReplicaFiles] = []
    shown: ReplicaLog | None = None
    for place in places[:PARTITIONS_MAX]:
        for replica in replica_logs(view, view.stores, place):
            taken.append(_taken(view, place, replica, asker.now_ms))
            is_wanted = replica.broker_id == broker or (broker == LEADER and shown is None)
            if partition >= 0 and is_wanted and replica.log is not None:
                shown = replica
    is_cut = len(places) > PARTITIONS_MAX
    live: Sequence[LiveFile] = ()
    dead: Sequence[DeadFile] = ()
    commits: Sequence[FileCommit] = ()
    if partition >= 0:
        if shown is None or shown.log is None:
            raise ReplicaNotAvailableError(f"{places[0]}: no replica on broker {broker} can be read")
        live = [_live(shown.log, number) for number in range(len(shown.log.files))][::-1]
        dead = _dead(view, places[0], shown.broker_id, shown.log)
        commits = list(_commits(shown.log, COMMITS_MAX))
        is_cut = len(live) > FILES_MAX or len(dead) > FILES_MAX
    return TopicFiles(
        topic,
        tuple(taken),
        sum(each.live_bytes for each in taken),
        sum(each.dead_bytes for each in taken),
        tuple(live[:FILES_MAX]),
        tuple(dead[:FILES_MAX]),
        tuple(commits),
        is_cut,
        tuple(_calls(view)) if asker.may(Operation.DESCRIBE, ResourceType.CLUSTER) else (),
    )


def _taken(view: ClusterView, place: TopicPartition, replica: ReplicaLog, now_ms: int) -> ReplicaFiles:
    named = place.partition, replica.broker_id, replica.is_leader
    log = replica.log
    if log is None:
        return ReplicaFiles(*named, error=f"{replica.error}")
    try:
        dead = _dead(view, place, replica.broker_id, log)
        of_log = _objects(view, place, replica.broker_id, "_delta_log/")
        recent = sum(each.timestamp_ms >= now_ms - HOUR_MS for each in _commits(log, COMMITS_MAX))
    except StratalogError as error:
        return ReplicaFiles(*named, error=f"{error}")
    live = [entry.file for entry in log.files]
    return ReplicaFiles(
        *named,
        log.version,
        len(log.segments),
        len(live),
        sum(file.size_bytes for file in live),
        sum(file.record_count for file in live),
        len(dead),
        sum(each.size_bytes for each in dead),
        len(of_log),
        sum(each.size_bytes for each in of_log),
        log.log_start_offset,
        log.log_end_offset,
        recent,
    )


def _live(log: LogReader, number: int) -> LiveFile:
    entry = log.files[number]
    file = entry.file
    place = entry.path, entry.segment, entry.leader_epoch, entry.start_offset, entry.end_offset
    return LiveFile(*place, file.record_count, file.size_bytes, file.min_timestamp_ms, file.max_timestamp_ms)


def _dead(view: ClusterView, place: TopicPartition, broker_id: int, log: LogReader) -> list[DeadFile]:
    """The newest first. A file that came since the fold of the log is none of them."""
    listed = [each for name in DATA_DIRECTORIES for each in _objects(view, place, broker_id, name)]
    log.refresh()
    live = {entry.path for entry in log.files}
    found = [DeadFile(each.path, each.size_bytes, each.last_modified_ms) for each in listed if each.path not in live]
    return sorted(found, key=lambda each: -each.modified_ms)


def _objects(view: ClusterView, place: TopicPartition, broker_id: int, prefix: str) -> list[ObjectMeta]:
    """What is below a replica's table, with paths that begin there."""
    found = replica_directory(view.image, view.partition_state(place), broker_id)
    if found is None:
        raise InvalidRequestError(f"broker {broker_id} has never registered")
    root, directory = found
    listed = view.stores.objects(root).list(f"{directory}/{prefix}")
    return [meta._replace(path=meta.path.removeprefix(f"{directory}/")) for meta in listed]


def _commits(log: LogReader, limit: int) -> Iterator[FileCommit]:
    """The newest commits, the newest first, as far as they are still there."""
    read = CommitReader(log.table, log.version)
    for version in range(log.version, max(-1, log.version - limit), -1):
        commit = read(version)
        if commit is None:
            return
        yield file_commit(version, commit)


def file_commit(version: int, commit: Commit) -> FileCommit:
    """A commit as it is shown."""
    added = [entry.file for entry in commit.adds]
    return FileCommit(
        version,
        commit.timestamp_ms,
        commit.operation,
        len(added),
        sum(file.size_bytes for file in added),
        sum(file.record_count for file in added),
        len(commit.removes),
        commit.txns.get(LOG_END),
    )


def _calls(view: ClusterView) -> Iterator[CallsOfStore]:
    roots = [view.root, *(each.registration.root for _, each in sorted(view.image.brokers.items()))]
    for root in roots:
        counted = calls_of(view.stores.objects(root).url)
        made = {kind: count for kind, count in counted.made.items() if count}
        yield CallsOfStore(root, made, counted.failed, counted.read_bytes, counted.written_bytes)


QUESTIONS = (
    Question(
        "files",
        "What a topic's tables take: live and dead files, sizes, commits, and store calls of this process by kind.",
        files,
        {
            "topic": Parameter(str, "the topic"),
            "partition": Parameter(
                int, "the partition whose files and commits are listed; -1: none, all in numbers", -1
            ),
            "broker": Parameter(int, "whose replica's files are listed; -1: the leader's", LEADER),
        },
    ),
)
