"""Threads for requests that take long to compute, and the line in which a connection's work keeps its order.

I/O: threads, of which one of a process computes at a time. Users take turns, and so do the connections of a user, so
that what one sends delays its own requests most. What a connection has waiting is forgotten with the connection.

A request that is large is held from its decoding to its answer. While a user has `HELD_MAX` of these, no other one of
that user begins: each takes some hundred bytes for each of its elements, and what waits takes only its own bytes.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from stratalog.replication.threads.computing_turn import TURN, ComputingTurn
from stratalog.replication.threads.dropped import DROPPED
from stratalog.server.request.api import Connection, ConnectionMemory
from stratalog.storage.log_lines import line_logger

_LOG = line_logger("stratalog.kafka")

Work = Callable[[], object]
Step = Callable[[Callable[[], None]], None]
"""Begins a piece of work; calls what it was given once it is done, at once or later, from any thread."""


HELD_MAX = 2
"""How many large requests of a user are under way at a time."""


class Held:
    """A large request of a user, under way as long as this lives."""

    __slots__ = ("_end",)

    def __init__(self, end: Callable[[], None]) -> None:
        self._end = end

    def __del__(self) -> None:
        DROPPED.now(self._end)


class FairThreads:
    """`submit` from any thread; `close` at the end."""

    def __init__(self, count: int, name: str, turn: ComputingTurn = TURN) -> None:
        self._name, self._begun = name, f"{name}, begun"
        self._lines = self._begun, name
        self._turn = turn
        self._changed = threading.Condition()
        self._users: dict[str, deque[ConnectionMemory]] = {}
        """Connections with work by user: the first user's first connection is next."""
        self._held: Counter[str] = Counter()
        """By user. Invariant: as many as there are `Held`; a user without any is absent."""
        self._of_each: list[deque[Work]] = [deque() for _ in range(count)]
        """What each thread does before anything else."""
        self._is_closed = False
        self._threads = [
            threading.Thread(target=self._run, args=(own,), name=f"{name}-{n}", daemon=True)
            for n, own in enumerate(self._of_each)
        ]
        self._has_begun = False

    def submit(self, connection: Connection, work: Work) -> None:
        """Run it in a thread, behind what the connection has waiting. Nothing is run for one that has ended."""
        self._put(connection, self._name, work)

    def hold(self, connection: Connection) -> Held:
        """A large request of this connection's user has begun: see the module."""
        user = _user(connection)
        DROPPED.begin()
        with self._changed:
            self._held[user] += 1
        return Held(partial(self._ended, user))

    def _ended(self, user: str) -> None:
        with self._changed:
            self._held[user] -= 1
            if not self._held[user]:
                del self._held[user]
            self._changed.notify_all()

    def _put(self, connection: Connection, line: str, work: Work) -> None:
        memory = connection.memory
        with self._changed:
            if self._is_closed:
                connection.close("the broker stops")
                return
            if not self._has_begun:
                self._has_begun = True
                for thread in self._threads:
                    thread.start()
            if not any(memory.work[each] for each in self._lines):
                self._users.setdefault(_user(connection), deque()).append(memory)
            memory.work[line].append(work)
            self._changed.notify()

    def take_over(self, connection: Connection, work: Work) -> None:
        """Go on in a thread with a request that has begun, ahead of what the connection has waiting: in this one at
        once, if it is one of them."""
        if threading.current_thread() in self._threads:
            work()
        else:
            self._put(connection, self._begun, work)

    def run_in_each(self, work: Work) -> None:
        """Have each thread run it once it has nothing under way, if they have begun: what concerns the thread itself,
        as the memory that an allocator keeps for it."""
        with self._changed:
            if self._has_begun and not self._is_closed:
                for own in self._of_each:
                    if not own:  # one that is busy for long does it once
                        own.append(work)
                self._changed.notify_all()

    def _next(self, own: deque[Work]) -> Work | None:
        with self._changed:
            while not self._is_closed:
                if own:
                    return own.popleft()
                for user in list(self._users):
                    work = self._of_user(user)
                    if work is not None:
                        return work
                self._changed.wait()
        return None

    def _of_user(self, user: str) -> Work | None:
        """The next work of a user, who is behind the others then; None: it has none that may begin."""
        connections, lines = self._users.pop(user), self._lines if self._held[user] < HELD_MAX else self._lines[:1]
        work = None
        for _ in range(len(connections)):
            memory = connections.popleft()
            for line in lines:
                if work is None:
                    with suppress(IndexError):  # it is empty, perhaps since the connection has ended
                        work = memory.work[line].popleft()
            if any(memory.work[each] for each in self._lines):
                connections.append(memory)
            if work is not None:
                break
        if connections:
            self._users[user] = connections
        return work

    def _run(self, own: deque[Work]) -> None:
        while (work := self._next(own)) is not None:
            try:
                self._turn.run(work)
            except Exception:  # noqa: BLE001 - one request's defect must not end the thread
                _LOG.exception("a request's work failed")
            del work  # else a thread that waits for the next one keeps a request and its answer

    def close(self) -> None:
        """Let the work under way end, and drop the rest."""
        with self._changed:
            self._is_closed = True
            self._users.clear()
            self._changed.notify_all()
        for thread in self._threads if self._has_begun else ():
            thread.join()


def _user(connection: Connection) -> str:
    return f"{connection.principal.name}@{connection.principal.host}"


class Line:
    """Steps that run one after the other, in the order of `put`: the next one begins when the one before is done.

    A step that is done at once is run in the caller's thread; the others in the thread that ends the one before.
    """

    def __init__(self) -> None:
        self._waiting: deque[Step] = deque()
        self._is_busy = False
        self._lock = threading.Lock()

    def put(self, step: Step) -> None:
        """Run the step when those before it are done."""
        with self._lock:
            self._waiting.append(step)
            if self._is_busy:
                return
            self._is_busy = True
        self._advance()

    def _advance(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._is_busy = False
                    return
                step = self._waiting.popleft()
            turn = _Turn(self._advance)
            step(turn.done)
            if not turn.is_done_on_return():
                return  # `done` goes on


class _Turn:
    """One step: whether it is done before it returns. `list.pop` is atomic, so there is no lock."""

    __slots__ = ("_advance", "_first")

    def __init__(self, advance: Callable[[], None]) -> None:
        self._advance = advance
        self._first = [None]

    def _is_second(self) -> bool:
        try:
            self._first.pop()
        except IndexError:
            return True
        return False

    def done(self) -> None:
        if self._is_second():
            self._advance()

    def is_done_on_return(self) -> bool:
        return self._is_second()
