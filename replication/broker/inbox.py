"""The broker's end of the inbox: takes hand-overs of other processes in, writes the answers.

I/O: objects below `inbox/` of the broker's own root. A request is deleted after its answer stands, so a
broker that dies in between leaves it for its next incarnation, which refuses it by the broker epoch: the
writer asks the new leader, and the sink or producer state tells whether it had been stored.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable

from stratalog.replication.leader.delete_records import RecordDeletions, delete_records_id_of
from stratalog.replication.leader.replica import WaitingAppend
from stratalog.replication.metadata.records import NO_BROKER_EPOCH
from stratalog.replication.requests.hand_over import (
    DAMAGE_REPORT_SUFFIX,
    INBOX_PREFIX,
    answer_path,
    decode_damage_report,
    decode_request,
    encode_answer,
    request_id_of,
    request_path,
)
from stratalog.replication.requests.produce import ProduceResponse
from stratalog.storage.errors import CorruptMessageError, InvalidRequestError, NotLeaderOrFollowerError
from stratalog.storage.objects.port import ObjectStore
from stratalog.storage.records import TopicPartition

_LOG = logging.getLogger("stratalog.broker")

ANSWER_KEEP_MS = 600_000


class BrokerInbox:
    """Polled by the broker's loop. Answers are written by the loop too, when all parts of a request are done."""

    def __init__(
        self,
        store: ObjectStore,
        enqueue: Callable[[WaitingAppend], None],
        examine: Callable[[TopicPartition, str], None] = lambda _topic_partition, _path: None,
        deletions: RecordDeletions | None = None,
    ) -> None:
        """`examine` is told of a replica that a follower suspects, and of the file; `deletions` answers requests to
        delete records."""
        self.broker_epoch = NO_BROKER_EPOCH
        self._store = store
        self._enqueue = enqueue
        self._examine = examine
        self._deletions = deletions
        self._taken: set[str] = set()
        self._answers: deque[tuple[str, list[ProduceResponse]]] = deque()

    def poll(self) -> bool:
        """Write finished answers, take new requests in; True when something moved."""
        moved = self.write_answers()
        found = self._store.list(INBOX_PREFIX)
        for request_id in filter(None, (request_id_of(m.path) for m in found)):
            if request_id not in self._taken:
                self._take(request_id)
                moved = True
        for path in (meta.path for meta in found if meta.path.endswith(DAMAGE_REPORT_SUFFIX)):
            self._take_suspect(path)
        for request_id in filter(None, (delete_records_id_of(meta.path) for meta in found)):
            if self._deletions is not None:
                self._deletions.take(request_id, self.broker_epoch)
        return moved

    def _take_suspect(self, path: str) -> None:
        data = self._store.get_optional(path)
        self._store.delete(path)
        try:
            if data is not None:
                self._examine(*decode_damage_report(data))
        except CorruptMessageError as reason:
            _LOG.error("%s refused: %s", path, reason)

    def clean(self, wall_ms: int) -> None:
        """Remove answers that nobody fetched for ten minutes."""
        for meta in self._store.list(INBOX_PREFIX):
            if request_id_of(meta.path) is None and wall_ms - meta.last_modified_ms > ANSWER_KEEP_MS:
                self._store.delete(meta.path)

    def _take(self, request_id: str) -> None:
        data = self._store.get_optional(request_path(request_id))
        if data is None:
            return
        self._taken.add(request_id)
        try:
            broker_epoch, handed = decode_request(data)
        except CorruptMessageError as reason:
            _LOG.error("inbox request %s refused: %s", request_id, reason)
            self._answers.append((request_id, []))
            return
        if not handed:
            self._answers.append((request_id, []))
            return
        responses: list[ProduceResponse] = []
        for part in handed:
            waiting = WaitingAppend(part, self._collector(request_id, responses, len(handed)))
            if broker_epoch != self.broker_epoch:
                refusal = f"handed over to broker epoch {broker_epoch}, this is {self.broker_epoch}"
                waiting.answer(NotLeaderOrFollowerError(refusal))
            elif not part.files:
                waiting.answer(InvalidRequestError(f"{part.topic_partition}: a hand-over without files"))
            else:
                self._enqueue(waiting)

    def _collector(
        self, request_id: str, responses: list[ProduceResponse], needed: int
    ) -> Callable[[ProduceResponse], None]:
        def collect(response: ProduceResponse) -> None:
            responses.append(response)
            if len(responses) == needed:
                self._answers.append((request_id, responses))

        return collect

    def write_answers(self) -> bool:
        """Write what is finished; True when something was."""
        moved = bool(self._answers)
        if self._deletions is not None:
            moved |= self._deletions.write_answers()
        while self._answers:
            request_id, responses = self._answers[0]
            self._store.put(answer_path(request_id), encode_answer(responses))
            self._store.delete(request_path(request_id))
            self._answers.popleft()
            self._taken.discard(request_id)
        return moved
