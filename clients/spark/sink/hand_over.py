"""How a sink's files become records: one hand-over per leader broker, retried until acknowledged or too late.

I/O: `inbox/` objects of the leaders' roots, and the manifest of the batch below the metadata root: what a
batch consists of, written before any of it is handed over. Spark runs a batch again when its driver died, and a task
may then send rows to other partitions. With the manifest the batch's first files are handed over again, and every
partition's log recognizes those it has by (sink id, batch id) (promise 31).

In a transaction a manifest has no files: what an earlier run handed over is aborted. The leaders do not ask the
transaction's coordinator, so the partitions are added to the transaction here.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Protocol
from urllib.parse import quote

from stratalog.clients.spark.options import SinkOptions
from stratalog.clients.spark.sink.batches import Course, Noted, SinkBatchId, Stage, course_without_transaction
from stratalog.clients.spark.sink.rows import NO_PRODUCER, ProducerIdAndEpoch
from stratalog.clients.spark.sink.task import METADATA_MAX_AGE_MS, WrittenFile
from stratalog.replication.metadata.image import BrokerState
from stratalog.replication.metadata.records import NO_LEADER
from stratalog.replication.requests.hand_over import (
    INBOX_PREFIX,
    answer_path,
    decode_answer,
    encode_request,
    request_path,
)
from stratalog.replication.requests.inbox_bell import ring
from stratalog.replication.requests.produce import HandOverRequest, ProduceResponse
from stratalog.server.view.cluster_view import ClusterView
from stratalog.storage import errors
from stratalog.storage.errors import StratalogError
from stratalog.storage.files.data_file import DataFile
from stratalog.storage.log.append import HandedFiles
from stratalog.storage.log_lines import line_logger
from stratalog.storage.objects.wakeup import Wakeup
from stratalog.storage.records import TopicPartition
from stratalog.storage.transactions import NOT_VERIFIED, OffsetAndEpoch

POLL_MS_MIN, POLL_MS_MAX = 2, 20
WATCHED_POLL_MS = 100
"""Refresh interval while answers are watched: the metadata shows whether the broker is still live."""
RETRY_MS = 100
REQUEST_TIMEOUT_MS = 30_000
ANSWER_GRACE_MS = 2_000
_LOG = line_logger("stratalog.sink")

Files = tuple[WrittenFile, ...]


class OpenTransaction(Protocol):
    """A transaction that files become a part of; their rows name its producer."""

    @property
    def producer(self) -> ProducerIdAndEpoch: ...

    def add(self, partitions: Sequence[TopicPartition], timeout_ms: int) -> None:
        """Make partitions part of it. ProducerFencedError, RequestTimedOutError, …"""


@dataclass(slots=True)
class _Part:
    """A partition's files until they are acknowledged. `spare` are this run's while those of an earlier run are handed
    over."""

    files: Files
    spare: Files = ()
    request_id: str | None = None
    not_before_ms: int = 0
    error: StratalogError | None = None
    verified: OffsetAndEpoch = NOT_VERIFIED


@dataclass(frozen=True, slots=True)
class _Request:
    """A hand-over that a broker has not answered yet."""

    broker_id: int
    broker: BrokerState
    partitions: tuple[TopicPartition, ...]
    sent_ms: int


@dataclass(slots=True)
class HandOver:
    """One batch's hand-over; made for one call of `run`."""

    view: ClusterView
    options: SinkOptions
    batch: SinkBatchId
    transaction: OpenTransaction | None = None
    _parts: dict[TopicPartition, _Part] = field(default_factory=dict)
    _requests: dict[str, _Request] = field(default_factory=dict)
    _watched: set[str] = field(default_factory=set)

    def run(self, files: Iterable[WrittenFile]) -> list[ProduceResponse]:
        """Hand all files over and wait until every partition acknowledged them; the answers.

        A batch write that was handed over before and followed by a later version is done: no answers. Raises
        InvalidRequestError for a stream's batch behind a stored one, RequestTimedOutError after `delivery.timeout.ms`,
        or a leader's final refusal. Part of the batch may be stored then; the same batch handed over again stores the
        rest.
        """
        found = _by_partition(files)
        self._parts = {tp: _Part(part) for tp, part in found.items()}
        if self.transaction is not None:
            self._add_to_transaction(self.transaction)
        elif self.batch.is_replayable:
            self._follow_manifest(found)
        wakeup = Wakeup(self.view.clock)
        try:
            return self._until_acknowledged(wakeup)
        finally:
            wakeup.close()

    def _add_to_transaction(self, transaction: OpenTransaction) -> None:
        """A partition's log was not shorter than its high watermark when the coordinator is asked, so that this one is
        the offset at which it is verified; without one the leader refuses once, and says it."""
        for topic_partition, part in self._parts.items():
            marks = self.view.watermarks.published(topic_partition)
            part.verified = NOT_VERIFIED if marks is None else OffsetAndEpoch(marks.high_watermark)
        if self._parts:
            transaction.add(list(self._parts), self.options.delivery_timeout_ms)

    # -- the manifest ------------------------------------------------------------------------------------

    def _follow_manifest(self, found: Mapping[TopicPartition, Files]) -> None:
        """Hand over the files of an earlier run of this batch; nothing when a later one is stored. Otherwise write a
        manifest."""
        noted, stored_files = read_manifest(self.view, self.batch.sink_id)
        course = course_without_transaction(self.batch, noted)
        if course is Course.WRITE and found:
            files = [file for part in found.values() for file in part]
            if write_manifest(self.view, self.batch.sink_id, Noted(self.batch.batch_id), files):
                return
            noted, stored_files = read_manifest(self.view, self.batch.sink_id)  # another run of this batch was first
            course = course_without_transaction(self.batch, noted)
        if course is Course.STORED:
            _LOG.info("batch %d of sink %s was stored before", self.batch.batch_id, self.batch.sink_id)
            self._parts = {}
        elif course is Course.FINISH:
            earlier = _by_partition(stored_files)
            self._parts = {tp: _Part(part, spare=found.get(tp, ())) for tp, part in earlier.items()}
            self._check_earlier_files()

    def _check_earlier_files(self) -> None:
        """Files that no commit names may have been vacuumed since the earlier run, or torn by a power cut: then use
        this run's."""
        for topic_partition, part in self._parts.items():
            for file in part.files:
                if (fault := self._fault_of(file)) is not None:
                    self._use_spare(topic_partition, f"{file.root}/{topic_partition}/{file.file.path}: {fault}")
                    break

    def _fault_of(self, file: WrittenFile) -> StratalogError | None:
        """Why a file cannot be handed over; a local disk's is read as a whole."""
        try:
            self.view.stores.table(file.root, file.topic_partition).check_files([file.file], bits=True)
        except (errors.CorruptMessageError, errors.ObjectNotFoundError, errors.LogDirNotFoundError) as reason:
            return reason
        return None

    def _use_spare(self, topic_partition: TopicPartition, reason: str) -> None:
        part = self._parts[topic_partition]
        if not part.spare:
            raise errors.UnknownServerError(
                f"{topic_partition}: the files of batch {self.batch.batch_id} of sink {self.batch.sink_id} cannot be "
                f"read and this run wrote none for the partition: {reason}"
            )
        part.files, part.spare = part.spare, ()

    # -- sending -----------------------------------------------------------------------------------------

    def _until_acknowledged(self, wakeup: Wakeup) -> list[ProduceResponse]:
        clock = self.view.clock
        deadline_ms = clock.monotonic_ms() + self.options.delivery_timeout_ms
        answers: list[ProduceResponse] = []
        pause_ms = POLL_MS_MIN
        while self._parts:
            self.view.refresh(METADATA_MAX_AGE_MS)
            now_ms = clock.monotonic_ms()
            self._send(now_ms, deadline_ms, wakeup)
            answered = self._collect(now_ms)
            answers += answered
            if self._parts and now_ms >= deadline_ms:
                self._cancel(list(self._requests))
                raise self._expired()
            pause_ms = POLL_MS_MIN if answered else min(2 * pause_ms, POLL_MS_MAX)
            if self._parts:
                is_watched = wakeup.is_active and all(part.request_id for part in self._parts.values())
                wakeup.wait_ms(WATCHED_POLL_MS if is_watched else pause_ms)
        return answers

    def _send(self, now_ms: int, deadline_ms: int, wakeup: Wakeup) -> None:
        """Hand over what was not sent yet, one request per broker."""
        waiting: dict[int, list[TopicPartition]] = {}
        for topic_partition, part in self._parts.items():
            if part.request_id is None and now_ms >= part.not_before_ms:
                leader = self._leader(topic_partition)
                if leader != NO_LEADER and self._is_copied_to(topic_partition, leader, now_ms):
                    waiting.setdefault(leader, []).append(topic_partition)
        for leader, partitions in waiting.items():
            self._watch_answers(leader, wakeup)
            self._put_request(leader, tuple(partitions), now_ms, deadline_ms)

    def _watch_answers(self, leader: int, wakeup: Wakeup) -> None:
        root = self.view.image.brokers[leader].registration.root
        if root not in self._watched:
            with suppress(errors.LogDirNotFoundError):
                wakeup.watch(self.view.stores.objects(root), INBOX_PREFIX, only_new=True)
                self._watched.add(root)

    def _leader(self, topic_partition: TopicPartition) -> int:
        state = self.view.partition_state(topic_partition)
        broker = self.view.image.brokers.get(state.leader)
        if broker is not None and not broker.fenced:
            return state.leader
        self._parts[topic_partition].error = errors.LeaderNotAvailableError(f"{topic_partition} has no live leader")
        return NO_LEADER

    def _is_copied_to(self, topic_partition: TopicPartition, leader: int, now_ms: int) -> bool:
        """Copy the files to where the leader's table is unless they are there; False: try again later."""
        part = self._parts[topic_partition]
        try:
            root = self.view.replica_root(topic_partition, leader)
            if root is None:
                raise errors.LogDirNotFoundError(f"{topic_partition}: broker {leader} has never registered")
            part.files = tuple(self._in_root(file, root) for file in part.files)
        except (errors.ObjectNotFoundError, errors.LogDirNotFoundError) as reason:
            self._use_spare(topic_partition, str(reason))
            return False
        except errors.StoreUnavailableError as reason:
            part.error, part.not_before_ms = reason, now_ms + RETRY_MS
            return False
        return True

    def _in_root(self, file: WrittenFile, root: str) -> WrittenFile:
        if file.root == root:
            return file
        stores = self.view.stores
        source = stores.table(file.root, file.topic_partition)
        stores.table(root, file.topic_partition).copy_file(source, file.file)
        return replace(file, root=root)

    def _put_request(self, leader: int, partitions: tuple[TopicPartition, ...], now_ms: int, deadline_ms: int) -> None:
        broker = self.view.image.brokers[leader]
        timeout_ms = max(1, min(REQUEST_TIMEOUT_MS, deadline_ms - now_ms))
        named = {tp: self.view.image.identified(tp) for tp in partitions}
        handed = [HandOverRequest(named[tp], self._handed(tp), self.options.acks, timeout_ms) for tp in partitions]
        request_id = self.view.ids.new_id()
        try:
            objects = self.view.stores.objects(broker.registration.root)
            objects.put(request_path(request_id), encode_request(handed, broker.broker_epoch))
        except (errors.StoreUnavailableError, errors.LogDirNotFoundError) as reason:
            self._retry(partitions, now_ms, reason)
            return
        with suppress(errors.StoreUnavailableError):  # the broker lists its inbox now and then
            ring(objects, request_id)
        self._requests[request_id] = _Request(leader, broker, partitions, now_ms)
        for topic_partition in partitions:
            self._parts[topic_partition].request_id = request_id

    def _handed(self, topic_partition: TopicPartition) -> HandedFiles:
        part, producer = self._parts[topic_partition], NO_PRODUCER
        if self.transaction is not None:
            producer = self.transaction.producer
        return HandedFiles(
            tuple(written.file for written in part.files),
            self.batch.sink_id,
            self.batch.batch_id,
            *producer,
            is_transactional=self.transaction is not None,
            verified_offset=part.verified.offset,
            verified_leader_epoch=part.verified.leader_epoch,
        )

    # -- answers -----------------------------------------------------------------------------------------

    def _collect(self, now_ms: int) -> list[ProduceResponse]:
        stored: list[ProduceResponse] = []
        for request_id, request in list(self._requests.items()):
            answer = self._answer(request_id, request)
            if answer is not None:
                del self._requests[request_id]
                stored += self._accept(answer, request, now_ms)
            elif self._has_expired(request, now_ms):
                self._cancel([request_id])
                epoch = request.broker.broker_epoch
                reason = errors.RequestTimedOutError(f"broker {request.broker_id} of epoch {epoch} did not answer")
                self._retry(request.partitions, now_ms, reason)
        return stored

    def _answer(self, request_id: str, request: _Request) -> list[ProduceResponse] | None:
        try:
            objects = self.view.stores.objects(request.broker.registration.root)
            data = objects.get_optional(answer_path(request_id))
            if data is None:
                return None
            objects.delete(answer_path(request_id))
        except (errors.StoreUnavailableError, errors.LogDirNotFoundError):
            return None
        return decode_answer(data)

    def _accept(self, answer: Sequence[ProduceResponse], request: _Request, now_ms: int) -> list[ProduceResponse]:
        stored = []
        for response in answer:
            if response.error is None:
                del self._parts[response.topic_partition]
                stored.append(response)
            elif isinstance(response.error, errors.UnverifiedTransactionError) and self.transaction is not None:
                self._verify_again(self.transaction, response.topic_partition, response.error)
            elif response.error.retriable:
                self._retry([response.topic_partition], now_ms, response.error)
            else:
                raise response.error
        missing = set(request.partitions) - {response.topic_partition for response in answer}
        self._retry(missing, now_ms, errors.UnknownServerError("the broker did not answer for it"))
        return stored

    def _verify_again(
        self, transaction: OpenTransaction, topic_partition: TopicPartition, refusal: errors.UnverifiedTransactionError
    ) -> None:
        transaction.add([topic_partition], self.options.delivery_timeout_ms)
        part = self._parts[topic_partition]
        part.request_id, part.error = None, refusal
        part.verified = OffsetAndEpoch(refusal.log_end_offset, refusal.leader_epoch)

    def _has_expired(self, request: _Request, now_ms: int) -> bool:
        """The broker has another registration, or did not answer in time. It need not be known whether it stored the
        batch: the next leader's log recognizes the batch, or does not have it."""
        is_current = self.view.image.is_current(request.broker_id, request.broker.broker_epoch)
        return not is_current or now_ms - request.sent_ms > REQUEST_TIMEOUT_MS + ANSWER_GRACE_MS

    def _cancel(self, request_ids: Iterable[str]) -> None:
        for request_id in request_ids:
            request = self._requests.pop(request_id)
            try:
                objects = self.view.stores.objects(request.broker.registration.root)
                objects.delete(request_path(request_id))
            except (errors.StoreUnavailableError, errors.LogDirNotFoundError) as reason:
                _LOG.info("request %s to broker %d is not deleted: %s", request_id, request.broker_id, reason)

    def _retry(self, partitions: Iterable[TopicPartition], now_ms: int, reason: StratalogError) -> None:
        for topic_partition in partitions:
            part = self._parts[topic_partition]
            part.request_id, part.error, part.not_before_ms = None, reason, now_ms + RETRY_MS

    def _expired(self) -> errors.RequestTimedOutError:
        topic_partition, part = next(iter(self._parts.items()))
        records = sum(written.file.record_count for written in part.files)
        timeout_ms = self.options.delivery_timeout_ms
        return errors.RequestTimedOutError(
            f"Expiring {records} record(s) for {topic_partition}:{timeout_ms} ms has passed since "
            f"batch creation; {len(self._parts)} partitions are not acknowledged; last error: {part.error}"
        )


def read_manifest(view: ClusterView, sink_id: str) -> tuple[Noted | None, Files]:
    """A sink's newest batch and its files; `(None, ())` without a manifest."""
    objects = view.stores.objects(view.root)
    for each in reversed(objects.list(_manifests(sink_id))):
        manifest = objects.get_optional(each.path)
        if manifest and not _is_torn(manifest):
            return decode_manifest(manifest)
    return None, ()


def write_manifest(view: ClusterView, sink_id: str, noted: Noted, files: Iterable[WrittenFile] = ()) -> bool:
    """Make a manifest, which is durable afterwards, and delete older ones; False when there is one of this batch.

    Each has a name of its own and is made once: a write that is applied after its writer gave up neither hides a newer
    batch nor changes what this one consists of.
    """
    objects, path = view.stores.objects(view.root), manifest_path(sink_id, noted)
    data = encode_manifest(noted, files)
    is_made = objects.create(path, data)
    if not is_made and _is_torn(objects.get_optional(path) or b""):
        objects.put(path, data)
        is_made = True
    objects.sync([path])
    objects.delete_all([each.path for each in objects.list(_manifests(sink_id)) if each.path < path])
    return is_made


def _is_torn(manifest: bytes) -> bool:
    """Whether a power cut left it before its sync."""
    return not manifest.strip(b"\0")


def manifest_path(sink_id: str, noted: Noted) -> str:
    """Path of the manifest of a sink's batch, below the metadata root; in order of batches and their stages."""
    return f"{_manifests(sink_id)}{noted.batch_id:020}-{list(Stage).index(noted.stage)}.json"


def _manifests(sink_id: str) -> str:
    return f"sinks/{quote(sink_id, safe='')}.manifests/"


def encode_manifest(noted: Noted, files: Iterable[WrittenFile] = ()) -> bytes:
    entries = [
        {"topic_partition": each.topic_partition, "root": each.root, "file": each.file.as_json()} for each in files
    ]
    stage = {} if noted.stage is Stage.HANDED_OVER else {"stage": noted.stage}
    return json.dumps({"batch_id": noted.batch_id, "files": entries, **stage}).encode()


def decode_manifest(data: bytes) -> tuple[Noted, Files]:
    """The batch and its files. Raises CorruptMessageError when it is not a manifest."""
    try:
        body = json.loads(data)
        files = tuple(
            WrittenFile(TopicPartition(*item["topic_partition"]), item["root"], DataFile(**item["file"]))
            for item in body["files"]
        )
        return Noted(int(body["batch_id"]), Stage(body.get("stage", Stage.HANDED_OVER))), files
    except (ValueError, KeyError, TypeError) as reason:
        raise errors.CorruptMessageError(f"not a sink's manifest: {data[:200]!r} ({reason})") from reason


def _by_partition(files: Iterable[WrittenFile]) -> dict[TopicPartition, Files]:
    parts: dict[TopicPartition, list[WrittenFile]] = {}
    for file in files:
        parts.setdefault(file.topic_partition, []).append(file)
    return {topic_partition: tuple(part) for topic_partition, part in sorted(parts.items())}
