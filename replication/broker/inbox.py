"""The broker's end of the inbox: accepts hand-overs of other processes, writes the answers.

I/O: objects below `inbox/` of the broker's own root. A request is deleted after its answer is stored. If the broker
dies in between, its next incarnation refuses the request by its broker epoch: the writer asks the new leader, whose
sink or producer state shows whether the files were stored.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace

from stratalog.replication.leader.replica import WaitingAppend
from stratalog.replication.metadata.records import NO_BROKER_EPOCH
from stratalog.replication.requests.hand_over import (
    ANSWER_SUFFIX,
    DAMAGE_REPORT_SUFFIX,
    INBOX_PREFIX,
    answer_path,
    decode_damage_report,
    decode_request,
    encode_answer,
    request_id_of,
    request_path,
)
from stratalog.replication.requests.inbox_bell import InboxBell
from stratalog.replication.requests.inbox_frames import FRAMES_SUFFIX
from stratalog.replication.requests.produce import ProduceResponse
from stratalog.storage.errors import CorruptMessageError, InvalidRequestError, NotLeaderOrFollowerError
from stratalog.storage.log_lines import line_logger
from stratalog.storage.objects.port import ObjectMeta, ObjectStore
from stratalog.storage.records import IdentifiedPartition, TopicPartition

_LOG = line_logger("stratalog.broker")

ANSWER_KEEP_MS = 600_000
"""Age at which an answer that its writer did not fetch is removed."""

FramesListed = Callable[[Sequence[ObjectMeta], int], None]
"""Receives the objects with request frames that the inbox has now, in order, and the broker epoch."""


def _of_no_topic(topic_partition: TopicPartition) -> IdentifiedPartition:
    return IdentifiedPartition("", topic_partition)


class BrokerInbox:
    """Polled by the broker's loop. Answers are written by the loop too, when all parts of a request are done.

    frames_listed  called with each listing, by the broker's loop; it must not block. None: frames stay where they are
    has_requests   whether the last listing had any; answers that nobody fetched do not count

    A listing of a far store is paid: while no request came for long its bell is read instead (`inbox_bell`).
    """

    def __init__(
        self,
        store: ObjectStore,
        enqueue: Callable[[WaitingAppend], None],
        examine: Callable[[TopicPartition, str], None] = lambda _topic_partition, _path: None,
        put_answer: Callable[[str, bytes], None] | None = None,
        identified: Callable[[TopicPartition], IdentifiedPartition] = _of_no_topic,
    ) -> None:
        """`examine` is called with a replica that a follower reports as damaged, and the file. `put_answer` writes an
        answer to a path of `store`; None is its `put`. `identified`: a partition of the topic that has the name now,
        for writers that name no topic id."""
        self.broker_epoch = NO_BROKER_EPOCH
        self.frames_listed: FramesListed | None = None
        self.has_requests = False
        self._store = store
        self._enqueue = enqueue
        self._examine = examine
        self._put_answer = put_answer or store.put
        self._identified = identified
        self._bell = InboxBell(store)
        self._accepted: set[str] = set()
        self._answers: deque[tuple[str, list[ProduceResponse]]] = deque()

    @property
    def objects(self) -> ObjectStore:
        """The broker's root."""
        return self._store

    def poll(self, lists: bool = True) -> bool:
        """Write finished answers, accept new requests; True when something moved.

        lists  whether the inbox is listed on a far store although its bell has not rung
        """
        moved = self.write_answers()
        if self._bell.is_used and not lists and not self._bell.has_rung():
            self.has_requests = False
            return moved
        return self._accept_all(self._store.list(INBOX_PREFIX)) or moved

    def _accept_all(self, found: Sequence[ObjectMeta]) -> bool:
        moved = False
        self.has_requests = not all(meta.path.endswith(ANSWER_SUFFIX) for meta in found)
        if self.frames_listed is not None:
            self.frames_listed([meta for meta in found if meta.path.endswith(FRAMES_SUFFIX)], self.broker_epoch)
        for request_id in filter(None, (request_id_of(m.path) for m in found)):
            if request_id not in self._accepted:
                self._accept(request_id)
                moved = True
        for path in (meta.path for meta in found if meta.path.endswith(DAMAGE_REPORT_SUFFIX)):
            self._accept_report(path)
        self._bell.was_listed()
        return moved

    def _accept_report(self, path: str) -> None:
        data = self._store.get_optional(path)
        self._store.delete(path)
        try:
            if data is not None:
                self._examine(*decode_damage_report(data))
        except CorruptMessageError as reason:
            _LOG.error("%s refused: %s", path, reason)

    def clean(self, wall_ms: int) -> None:
        """Remove answers older than `ANSWER_KEEP_MS`, and accept requests whose sender did not ring."""
        found = self._store.list(INBOX_PREFIX)
        self._accept_all(found)
        for meta in found:
            if request_id_of(meta.path) is None and wall_ms - meta.last_modified_ms > ANSWER_KEEP_MS:
                self._store.delete(meta.path)

    def _accept(self, request_id: str) -> None:
        data = self._store.get_optional(request_path(request_id))
        if data is None:
            return
        self._accepted.add(request_id)
        try:
            broker_epoch, handed = decode_request(data)
        except CorruptMessageError as reason:
            _LOG.error("inbox request %s refused: %s", request_id, reason)
            broker_epoch, handed = self.broker_epoch, []
        responses: list[ProduceResponse] = []
        if not handed:
            self._answers.append((request_id, responses))

        def collect(response: ProduceResponse) -> None:
            responses.append(response)
            if len(responses) == len(handed):
                self._answers.append((request_id, responses))

        for part in handed:
            named = part.partition if part.partition.topic_id else self._identified(part.topic_partition)
            waiting = WaitingAppend(replace(part, partition=named), collect)
            if broker_epoch != self.broker_epoch:
                refusal = f"handed over to broker epoch {broker_epoch}, this is {self.broker_epoch}"
                waiting.answer(NotLeaderOrFollowerError(refusal))
            elif not part.handed.files:
                waiting.answer(InvalidRequestError(f"{part.topic_partition}: a hand-over without files"))
            else:
                self._enqueue(waiting)

    def write_answers(self) -> bool:
        """Write finished answers; True if there were any."""
        moved = bool(self._answers)
        while self._answers:
            request_id, responses = self._answers[0]
            self._put_answer(answer_path(request_id), encode_answer(responses))
            self._store.delete(request_path(request_id))
            self._answers.popleft()
            self._accepted.discard(request_id)
        return moved
