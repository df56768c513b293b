"""The broker's end of one client's channel through the inbox: what to read, begin, and answer next. Pure.

Objects are read once and in the order of their numbers, so that one which a client had to write again, because it did
not learn whether it was written, is not performed twice. A number that stays missing was read by an earlier process of
the broker: such a channel is over, and so is one of another broker epoch. The client opens a new one.
"""

from __future__ import annotations

from collections.abc import Iterable

from stratalog.replication.requests.inbox_frames import WHOLE_CHANNEL, FrameEntry, Frames
from stratalog.server.endpoint.order import Flight, RequestOrder
from stratalog.wire.messages.frames import Answer, whole

GAPS_MAX = 3
"""The number of listings without the next object after which it will not come: one may miss a new object."""


class ServedChannel:
    """Not thread-safe.

    is_over   nothing more is read; `to_write` may still have the last answer
    """

    def __init__(self, broker_epoch: int) -> None:
        self.is_over = False
        self._broker_epoch = broker_epoch
        self._found: set[int] = set()
        self._gaps = 0
        self._next = 0
        self._next_answer = 0
        self._orders: dict[int, RequestOrder] = {}
        self._begun: list[tuple[int, Flight]] = []
        self._unwritten: list[FrameEntry] = []

    @property
    def is_idle(self) -> bool:
        """Whether no request is under way, and no answer has to be written."""
        return not self._orders and not self._unwritten

    # -- objects of the client -----------------------------------------------------------------------------

    def listed(self, numbers: Iterable[int]) -> None:
        """The inbox has these objects of the channel."""
        self._found = set(numbers)
        is_gap = bool(self._found) and min(self._found) > self._next
        self._gaps = self._gaps + 1 if is_gap else 0

    def to_read(self) -> int | None:
        """The number of the object to read now."""
        if self.is_over or not self._found:
            return None
        first = min(self._found)
        return first if first == self._next or self._gaps >= GAPS_MAX else None

    def to_delete(self) -> list[int]:
        """The numbers of objects that have been read; each once."""
        done = sorted(number for number in self._found if self.is_over or number < self._next)
        self._found.difference_update(done)
        return done

    def received(self, number: int, frames: Frames | None) -> None:
        """The content of an object; None for one that cannot be read, or that is gone."""
        if frames is None or number != self._next or frames.broker_epoch != self._broker_epoch:
            self._refuse(None if frames is None else frames.next_answer)
            return
        self._next += 1
        for each in frames.entries:
            if each.conversation == WHOLE_CHANNEL:  # the client has closed it
                self.is_over = True
                self._orders.clear()
                self._unwritten.clear()
                return
            if each.frame is not None:
                self._orders.setdefault(each.conversation, RequestOrder()).received([each.frame])
        for conversation in {each.conversation for each in frames.entries} & self._orders.keys():
            self._begin(conversation)

    def _refuse(self, next_answer: int | None) -> None:
        self.is_over = True
        if next_answer is not None:
            self._next_answer = next_answer
        self._orders.clear()
        self._unwritten = [FrameEntry(WHOLE_CHANNEL)]

    # -- requests and answers ------------------------------------------------------------------------------

    def _begin(self, conversation: int) -> None:
        order = self._orders[conversation]
        while (flight := order.next()) is not None:
            self._begun.append((conversation, flight))
        if not len(order):
            del self._orders[conversation]

    def to_begin(self) -> list[tuple[int, Flight]]:
        """The requests that begin now, each with its conversation; each once."""
        begun, self._begun = self._begun, []
        return begun

    def answered(self, conversation: int, flight: Flight, answer: Answer | None) -> None:
        """A request is answered; None: it has no answer (acks=0)."""
        order = self._orders.get(conversation)
        if order is None or self.is_over:
            return
        for done in order.answered(flight, answer):
            if done.answer is not None:
                self._unwritten.append(FrameEntry(conversation, whole(done.answer)))
        self._begin(conversation)

    def ended(self, conversation: int) -> None:
        """The conversation cannot go on, as a connection that a broker closes."""
        if self._orders.pop(conversation, None) is not None:
            self._unwritten.append(FrameEntry(conversation))

    def to_write(self) -> tuple[int, Frames] | None:
        """The next object of answers and its number, the same until `wrote`."""
        if not self._unwritten:
            return None
        return self._next_answer, Frames(self._broker_epoch, self._next_answer, tuple(self._unwritten))

    def wrote(self, answers: Frames) -> None:
        """These were written."""
        del self._unwritten[: len(answers.entries)]
        self._next_answer += 1
