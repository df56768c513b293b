"""A client's end of a channel through a broker's inbox. I/O: objects of the broker's root, by a thread of its own.

Frames that wait go together in one object; answers are read in the order of their numbers. While none is awaited the
store is not asked for anything. Where storage is watched an answer ends the thread's sleep, else it is polled for, at
intervals that grow. Objects whose write had no certain outcome are written again, under the same number.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Protocol

from stratalog.replication import cadence
from stratalog.replication.requests.inbox_bell import ring
from stratalog.replication.requests.inbox_frames import (
    ANSWERS_PREFIX,
    WHOLE_CHANNEL,
    FrameEntry,
    Frames,
    answers_path,
    decode_frames,
    encode_frames,
    frames_path,
)
from stratalog.server.remote.places import InboxPlace
from stratalog.storage.clock import Ids, SystemClock
from stratalog.storage.errors import BrokerNotAvailableError, StoreError, StratalogError
from stratalog.storage.log_lines import line_logger
from stratalog.storage.objects.port import ObjectStore
from stratalog.storage.objects.wakeup import Wakeup

_LOG = line_logger("stratalog.network")

POLL_MS_MIN, POLL_MS_MAX = 4, 250
"""The pauses between two looks for an answer where storage cannot be watched; each is half as long again."""
WATCHED_POLL_MS = 1_000
IDLE_MS = 60_000
RINGS_AGAIN_MS = cadence.INBOX_LISTED.ms // 2
"""The age of the last request from which the next one rings the broker's bell."""
RETRY_MS = 100
"""The pause after a failure of the store."""
CLOSE_S = 2.0


class Receiver(Protocol):
    """The owner of a channel; called in the channel's thread."""

    def received(self, conversation: int, frame: bytes | None) -> None:
        """An answer of the broker; None: it has ended the conversation."""

    def channel_over(self, reason: str) -> None:
        """Nothing more comes. Called once, unless `close` was."""


class InboxChannel:
    """Any thread may call it; nothing blocks but `join`."""

    def __init__(
        self, place: InboxPlace, open_store: Callable[[str], ObjectStore], ids: Ids, receiver: Receiver, idle_ms: int
    ) -> None:
        """`idle_ms`: after so long without a request the next one begins a new channel, since brokers forget it."""
        self._place = place
        self._open_store = open_store
        self._ids = ids
        self._receiver = receiver
        self._idle_ms = idle_ms
        self._clock = SystemClock()
        self._wakeup = Wakeup(self._clock)
        self._lock = threading.Lock()
        self._waiting: list[FrameEntry] = []
        self._awaited: Counter[int] = Counter()
        self._unsent: bytes | None = None
        self._is_closed = False
        self._name, self._number, self._next_answer, self._active_ms = "", 0, 0, 0
        self._rang_ms: int | None = None
        """When it rang last, or sent again so soon that the broker still lists; None: it has not."""
        self._thread = threading.Thread(target=self._run, name="kafka-inbox-client", daemon=True)
        self._thread.start()

    def send(self, conversation: int, frames: Sequence[bytes], answer_count: int) -> None:
        """Send frames of a conversation, so many of which are answered."""
        with self._lock:
            self._waiting += [FrameEntry(conversation, frame) for frame in frames]
            if answer_count:
                self._awaited[conversation] += answer_count
        self._wakeup.wake()

    def forget(self, conversation: int) -> None:
        """Wait for no more answers of a conversation."""
        with self._lock:
            self._awaited.pop(conversation, None)
            self._waiting = [each for each in self._waiting if each.conversation != conversation]

    def close(self) -> None:
        """End the channel; its thread lets the broker know."""
        self._is_closed = True
        self._wakeup.wake()

    def join(self) -> None:
        """Wait until that is done, for `CLOSE_S` at most."""
        self._thread.join(CLOSE_S)

    # -- its thread ------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            objects = self._open_store(self._place.root)
            self._wakeup.watch(objects, ANSWERS_PREFIX, only_new=True)
            self._exchange(objects)
            self._leave(objects)
        except StratalogError as reason:
            self._receiver.channel_over(f"inbox of {self._place.root}: {reason}")
        except Exception as defect:  # noqa: BLE001 - a thread that ends silently would hide it
            _LOG.exception("inbox of %s", self._place.root)
            self._receiver.channel_over(f"inbox of {self._place.root}: {type(defect).__name__}: {defect}")
        finally:
            self._is_closed = True
            self._wakeup.close()

    def _exchange(self, objects: ObjectStore) -> None:
        pause_ms = POLL_MS_MIN
        while not self._is_closed:
            try:
                has_moved = self._send_waiting(objects)
                has_moved |= bool(self._awaited) and self._receive(objects)
            except StoreError as reason:
                _LOG.info("inbox of %s, trying again: %s", self._place.root, reason)
                self._wakeup.wait_ms(RETRY_MS)
                continue
            if has_moved:
                pause_ms = POLL_MS_MIN
                continue
            if not self._awaited:
                self._wakeup.wait_ms(IDLE_MS)
            elif self._wakeup.is_active:
                self._wakeup.wait_ms(WATCHED_POLL_MS)
            else:
                self._wakeup.wait_ms(pause_ms)
                pause_ms = min(pause_ms * 3 // 2, POLL_MS_MAX)

    def _send_waiting(self, objects: ObjectStore) -> bool:
        if self._unsent is None:
            with self._lock:
                entries, self._waiting = self._waiting, []
                is_alone = sum(self._awaited.values()) <= len(entries)
            if not entries:
                return False
            now_ms = self._clock.monotonic_ms()
            if not self._name or (is_alone and now_ms - self._active_ms > self._idle_ms):
                self._name, self._number, self._next_answer = self._ids.new_id(), 0, 0
            self._active_ms = now_ms
            self._unsent = self._encoded(entries)
        objects.put(frames_path(self._name, self._number), self._unsent)
        self._unsent = None
        self._number += 1
        self._ring(objects)
        return True

    def _ring(self, objects: ObjectStore) -> None:
        """A broker lists its inbox for a while after a request: one that follows soon need not ring."""
        now_ms = self._clock.monotonic_ms()
        if self._rang_ms is None or now_ms - self._rang_ms > RINGS_AGAIN_MS:
            with suppress(StoreError):  # the broker lists its inbox now and then
                ring(objects, self._ids.new_id())
        self._rang_ms = now_ms

    def _encoded(self, entries: Sequence[FrameEntry]) -> bytes:
        return encode_frames(Frames(self._place.broker_epoch, self._next_answer, entries))

    def _receive(self, objects: ObjectStore) -> bool:
        path = answers_path(self._name, self._next_answer)
        data = objects.get_optional(path)
        if data is None:
            return False
        answers = decode_frames(data)
        self._next_answer += 1
        for each in answers.entries:
            self._deliver(each)
        objects.delete(path)
        return True

    def _deliver(self, each: FrameEntry) -> None:
        if each.conversation == WHOLE_CHANNEL:
            raise BrokerNotAvailableError("the broker's process does not know this client any more")
        with self._lock:
            self._awaited[each.conversation] -= 1
            if each.frame is None or self._awaited[each.conversation] <= 0:
                del self._awaited[each.conversation]
        self._receiver.received(each.conversation, each.frame)

    def _leave(self, objects: ObjectStore) -> None:
        """Say so to the broker, and delete answers that came too late."""
        if not self._name or self._unsent is not None:
            return
        with suppress(StoreError):  # the broker forgets it, and deletes them, too
            objects.put(frames_path(self._name, self._number), self._encoded([FrameEntry(WHOLE_CHANNEL)]))
            while objects.get_optional(answers_path(self._name, self._next_answer)) is not None:
                objects.delete(answers_path(self._name, self._next_answer))
                self._next_answer += 1
