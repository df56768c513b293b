"""Kafka's requests in a broker's inbox, answered beside it. I/O: objects of the broker's root, by threads of a pool.

The broker's loop lists its inbox and passes the names of frames to `listed`; everything else happens here. A channel is
worked on by one thread at a time, so that its requests begin in order.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from stratalog.replication.broker.inbox import ANSWER_KEEP_MS
from stratalog.replication.metadata.acls import Principal
from stratalog.replication.requests.inbox_frames import (
    ANSWERS_PREFIX,
    Frames,
    answers_path,
    channel_and_number,
    decode_frames,
    encode_frames,
    frames_path,
)
from stratalog.server.audit.events import AuditEvent
from stratalog.server.endpoint.frames import FrameHandler
from stratalog.server.endpoint.inbox_channel import ServedChannel
from stratalog.server.endpoint.order import Flight
from stratalog.server.request.api import Connection
from stratalog.server.request.endpoint import INBOX
from stratalog.storage.clock import SystemClock
from stratalog.storage.errors import CorruptMessageError, StoreError
from stratalog.storage.log_lines import line_logger
from stratalog.storage.objects.port import ObjectMeta, ObjectStore
from stratalog.wire.messages.frames import Answer

_LOG = line_logger("stratalog.network")

CLEAN_INTERVAL_MS = 60_000
THREADS = 4
"""The number of channels that are read or written at a time."""


@dataclass(frozen=True, slots=True)
class InboxLimits:
    """object_bytes_max  a larger object is refused unread
    idle_ms           a channel without a request for so long is forgotten; its client begins a new one before
    """

    object_bytes_max: int
    idle_ms: int


class InboxListener:
    """Answers what is in one broker's inbox. `listed` again and again, from one thread; `close` at the end."""

    def __init__(
        self,
        objects: ObjectStore,
        handler: FrameHandler,
        user: str,
        limits: InboxLimits,
        audit: Callable[[AuditEvent], None] | None = None,
    ) -> None:
        """`user`: who all requests are from, as a principal of ACLs; `audit` keeps events."""
        self.audit = audit
        self.objects = objects
        self.handler = handler
        self.principal = Principal(user, INBOX)
        self.limits = limits
        self.is_closed = False
        self._channels: dict[str, _Channel] = {}
        self._clean_ms = 0
        self._has_answers = True
        self._clock = SystemClock()
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="kafka-inbox")

    def listed(self, found: Sequence[ObjectMeta], broker_epoch: int) -> None:
        """What the inbox has now; does not block. `broker_epoch`: the broker's registration."""
        if self.is_closed:
            return
        now_ms = self._clock.monotonic_ms()
        if now_ms >= self._clean_ms and (self._channels or self._has_answers):
            self._clean_ms = now_ms + CLEAN_INTERVAL_MS
            self.submit(self._clean)
        by_channel: dict[str, dict[int, int]] = {}
        for meta in found:
            named = channel_and_number(meta.path)
            if named is not None:
                by_channel.setdefault(named[0], {})[named[1]] = meta.size_bytes
        for name in by_channel.keys() - self._channels.keys():
            self._channels[name] = _Channel(name, self, broker_epoch)
        for name, channel in list(self._channels.items()):
            sizes = by_channel.get(name, {})
            if sizes or channel.has_work:
                channel.active_ms = now_ms
                channel.listed(sizes)
            elif channel.may_be_forgotten(now_ms - self.limits.idle_ms):
                del self._channels[name]

    def _clean(self) -> None:
        """Delete answers that nobody fetched."""
        with suppress(StoreError):
            found, now_ms = self.objects.list(ANSWERS_PREFIX), self._clock.wall_ms()
            late = [meta.path for meta in found if now_ms - meta.last_modified_ms > ANSWER_KEEP_MS]
            self.objects.delete_all(late)
            self._has_answers = len(found) > len(late)

    def submit(self, work: Callable[[], None]) -> None:
        """Do it in a thread of the pool, unless this is closed."""
        try:
            self._pool.submit(work)
        except RuntimeError:  # closed meanwhile
            return

    def close(self) -> None:
        """Read and write nothing more, as when the broker's process ended."""
        self.is_closed = True
        self._pool.shutdown(wait=True, cancel_futures=True)


class _Channel:
    """One channel and its work. `listed` is called by the broker's thread, `_work` by one of the pool at a time."""

    def __init__(self, name: str, listener: InboxListener, broker_epoch: int) -> None:
        self.active_ms = 0
        self._name = name
        self._listener = listener
        self._served = ServedChannel(broker_epoch)
        self._events: deque[Callable[[], None]] = deque()
        self._sizes: Mapping[int, int] = {}
        self._lock = threading.Lock()
        self._is_working = False

    @property
    def has_work(self) -> bool:
        """Whether something waits that a store refused before, or that just came."""
        return self._served.to_write() is not None or bool(self._events)

    def may_be_forgotten(self, active_before_ms: int) -> bool:
        """Whether it has ended, or has been idle since then."""
        return self._served.is_over or (self._served.is_idle and self.active_ms < active_before_ms)

    def listed(self, sizes: Mapping[int, int]) -> None:
        self._put(partial(self._listed, sizes))

    def _listed(self, sizes: Mapping[int, int]) -> None:
        self._sizes = sizes
        self._served.listed(sizes)

    def _put(self, event: Callable[[], None]) -> None:
        self._events.append(event)
        with self._lock:
            if self._is_working:
                return
            self._is_working = True
        self._listener.submit(self._work)

    def _work(self) -> None:
        while self._has_more():
            try:
                while not self._listener.is_closed and self._next_piece():
                    pass
            except StoreError as reason:  # the next listing tries again
                _LOG.warning("inbox channel %s: %s", self._name, reason)
                self._end_work()
                return
            except Exception:  # noqa: BLE001 - a defect stops this channel only
                _LOG.exception("inbox channel %s", self._name)
                self._end_work()
                return

    def _has_more(self) -> bool:
        with self._lock:
            self._is_working = bool(self._events) and not self._listener.is_closed
            return self._is_working

    def _end_work(self) -> None:
        with self._lock:
            self._is_working = False

    def _next_piece(self) -> bool:
        """One step of the work; False when nothing is left. What clients wait for comes first."""
        served, objects = self._served, self._listener.objects
        while self._events:
            self._events.popleft()()
        for conversation, flight in served.to_begin():
            self._begin(conversation, flight)
        if self._events:
            return True
        ready = served.to_write()
        if ready is not None:
            number, answers = ready
            objects.put(answers_path(self._name, number), encode_frames(answers))
            served.wrote(answers)
            return True
        number_to_read = served.to_read()
        if number_to_read is not None:
            served.received(number_to_read, self._read(number_to_read))
            return True
        done = served.to_delete()
        if done:
            objects.delete_all([frames_path(self._name, number) for number in done])
        return bool(done)

    def _read(self, number: int) -> Frames | None:
        path, size_bytes = frames_path(self._name, number), self._sizes.get(number, 0)
        if size_bytes > self._listener.limits.object_bytes_max:
            _LOG.error("%s refused: %d bytes > %d", path, size_bytes, self._listener.limits.object_bytes_max)
            return None
        data = self._listener.objects.get_optional(path)
        try:
            return None if data is None else decode_frames(data)
        except CorruptMessageError as reason:
            _LOG.error("%s refused: %s", path, reason)
            return None

    # -- requests ------------------------------------------------------------------------------------------

    def _begin(self, conversation: int, flight: Flight) -> None:
        frame, flight.frame = flight.frame, b""
        end = partial(self._end, conversation)
        caller = Connection(self._listener.principal, end, INBOX, audit=self._listener.audit)
        try:
            self._listener.handler.handle(frame, caller, partial(self._answer, conversation, flight))
        except Exception as defect:  # noqa: BLE001 - a defect ends this conversation only
            _LOG.exception("API %d", flight.api_key)
            end(f"{type(defect).__name__}: {defect}")

    def _answer(self, conversation: int, flight: Flight, answer: Answer | None) -> None:
        self._put(partial(self._served.answered, conversation, flight, answer))

    def _end(self, conversation: int, reason: str) -> None:
        if reason:
            _LOG.warning("a conversation of inbox channel %s has ended: %s", self._name, reason)
        self._put(partial(self._served.ended, conversation))
