"""Erasures of a topic: the requests, how far each replica is, and the proof that nothing is left.

I/O: the metadata log; for one erasure every replica's table and the listings of its files, and typed tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from stratalog.clients.console.asker import Asker
from stratalog.clients.console.question import Parameter, Question
from stratalog.clients.console.stored.past import recorded_metadata
from stratalog.clients.console.stored.storage import stored_view
from stratalog.clients.console.typed.proof import ErasedTable, erased_tables
from stratalog.replication.metadata.acls import Operation, ResourceType
from stratalog.replication.metadata.records import EraseRecord
from stratalog.server.admin.erasure import ErasureReport, erasure_report
from stratalog.server.view.cluster_view import ClusterView


@dataclass(frozen=True, slots=True)
class ErasureRequest:
    """A request to erase the records below `end_offsets[partition]` that match.

    predicate     JSON
    requested_ms  when it was committed; null: the log does not say any more
    """

    topic: str
    erase_id: int
    predicate: str
    end_offsets: tuple[int, ...]
    requested_ms: int | None


@dataclass(frozen=True, slots=True)
class ErasureRequests:
    """Requests, the newest first."""

    requests: tuple[ErasureRequest, ...]


@dataclass(frozen=True, slots=True)
class ErasedReplica:
    """One replica's part; see `server.admin.erasure.ReplicaErasure`."""

    partition: int
    broker_id: int
    version: int
    is_applied: bool
    is_erased: bool
    is_gone: bool
    files_rewritten: int
    records_erased: int
    records_left: int
    files_waiting: int
    error: str


@dataclass(frozen=True, slots=True)
class ErasedLeftover:
    """What the deletion of a replica left on a broker's root, which may hold an erased record."""

    broker_id: int
    directory: str
    file_count: int
    error: str


@dataclass(frozen=True, slots=True)
class ErasureProof:
    """An erasure on every replica, and in the typed tables that the console knows, as read now.

    is_erased  no reader of any replica gets a matching record
    is_gone    also no file on storage holds one, of replicas or typed tables
    read_ms    when it was read
    """

    request: ErasureRequest
    is_erased: bool
    is_gone: bool
    replicas: tuple[ErasedReplica, ...]
    replicas_done: int
    records_erased_max: int
    files_waiting: int
    leftovers: tuple[ErasedLeftover, ...]
    read_ms: int
    typed_tables: tuple[ErasedTable, ...] = ()


def erasures(asker: Asker, topic: str) -> ErasureRequests:
    """The requests of one topic, or of all that the asker may read: a predicate may name what a record holds."""
    if topic:
        asker.check_topic(topic, Operation.READ)
    view = stored_view(asker, "requests to erase are")
    times = _request_times(view)
    topics = [topic] if topic else sorted(view.image.erases)
    found = [
        _request(record, times)
        for name in topics
        if asker.may(Operation.READ, ResourceType.TOPIC, name)
        for record in view.image.erases.get(name, {}).values()
    ]
    return ErasureRequests(
        tuple(sorted(found, key=lambda each: (-(each.requested_ms or 0), each.topic, -each.erase_id)))
    )


def erasure(asker: Asker, topic: str, erase_id: int) -> ErasureProof:
    """One erasure, proved on every replica. InvalidRequestError when there is none, UnknownTopicOrPartitionError."""
    asker.check_topic(topic, Operation.READ)
    view = stored_view(asker, "what an erasure leaves is")
    report = erasure_report(view, topic, erase_id)
    record = view.image.erases[topic][erase_id]
    tables = erased_tables(asker, view, record)
    return proof_of(report, _request(record, _request_times(view)), asker.now_ms, tables)


def proof_of(
    report: ErasureReport, request: ErasureRequest, now_ms: int, tables: tuple[ErasedTable, ...] = ()
) -> ErasureProof:
    """A report as it is shown."""
    replicas = tuple(
        ErasedReplica(
            each.topic_partition.partition,
            each.broker_id,
            each.version,
            each.is_applied,
            each.is_erased,
            each.is_gone,
            each.files_rewritten,
            each.records_erased,
            each.records_left,
            each.files_waiting,
            "" if each.error is None else f"{each.error.name}: {each.error}",
        )
        for each in report.replicas
    )
    leftovers = tuple(
        ErasedLeftover(each.broker_id, each.directory, each.file_count, "" if each.error is None else str(each.error))
        for each in report.leftovers
    )
    most: dict[int, int] = {}
    for each in replicas:
        most[each.partition] = max(most.get(each.partition, 0), each.records_erased)
    return ErasureProof(
        request,
        report.is_erased,
        report.is_gone and all(each.is_gone for each in tables),
        replicas,
        sum(each.is_erased for each in replicas),
        sum(most.values()),
        sum(each.files_waiting for each in replicas) + sum(each.file_count for each in leftovers),
        leftovers,
        now_ms,
        tables,
    )


def _request(record: EraseRecord, times: Mapping[str, int]) -> ErasureRequest:
    requested_ms = times.get(record.request_id)
    return ErasureRequest(record.topic, record.erase_id, record.predicate, record.end_offsets, requested_ms)


def _request_times(view: ClusterView) -> dict[str, int]:
    """When requests were committed, by their client's id."""
    rows = recorded_metadata(view).rows
    return {record.request_id: time for _, time, record in rows if isinstance(record, EraseRecord)}


QUESTIONS = (
    Question(
        "erasures",
        "Requests to erase records, the newest first.",
        erasures,
        {"topic": Parameter(str, "the topic; empty: all", "")},
    ),
    Question(
        "erasure",
        "One erasure: each replica's progress, and the proof that no record and no file is left, also in typed tables.",
        erasure,
        {"topic": Parameter(str, "the topic"), "erase_id": Parameter(int, "the erasure's id in its topic")},
    ),
)
