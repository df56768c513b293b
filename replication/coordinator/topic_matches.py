"""Which topics the regular expressions of members match, found beside the broker's loop where that may take long.

I/O: a thread. RE2 does not backtrack, but an expression of some hundred characters may need a step for each of its
thousands of instructions and each character of a name: seconds for the topics of a cluster. So what may take long is
matched in a thread, in which expressions take turns; until then the answer is not known, and the next heartbeat asks
again. What was matched once is remembered, so that a new topic costs its own name.

Source: KIP-848, where Kafka resolves expressions in an executor.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, Final

from stratalog.replication import cadence
from stratalog.replication.client_pattern import client_pattern
from stratalog.storage.clock import Clock

INLINE_STEPS_MAX: Final = 500_000
"""Instructions of an expression, times characters of the names, up to which they are matched at once."""
NAMES_MAX: Final = 1_000_000
"""Names that are remembered for all expressions together; those of expressions that were used last stay."""
EXPRESSIONS_MAX: Final = 10_000
NAMES_SHARE: Final = 2
"""What is remembered of an expression is forgotten when it has more than so many times the names that are asked for."""


@dataclass(slots=True, eq=False)
class _Known:
    """What is known of an expression. `wanted`: names that the thread has still to match."""

    pattern: Any
    seen: set[str] = field(default_factory=set)
    matched: set[str] = field(default_factory=set)
    wanted: deque[str] = field(default_factory=deque)

    def match(self, names: Collection[str]) -> None:
        self.matched.update(name for name in names if self.pattern.fullmatch(name))
        self.seen.update(names)


class TopicMatches:
    """Any thread may call it; its own begins with the first work."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._known: OrderedDict[str, _Known] = OrderedDict()
        self._line: deque[_Known] = deque()
        self._is_running = False

    def __call__(self, regex: str, names: Collection[str]) -> frozenset[str] | None:
        """Those of the names that the whole expression matches; None when it is not known yet: ask again.

        Raises INVALID_REGULAR_EXPRESSION, as `client_pattern`.
        """
        with self._lock:
            known = self._known_of(regex)
            if len(known.seen) > NAMES_SHARE * len(names) and not known.wanted:
                known.seen, known.matched = set(), set()
            new = [name for name in names if name not in known.seen]
            if not new:
                return frozenset(known.matched.intersection(names))
            if known.wanted:
                return None
            if known.pattern.programsize * sum(map(len, new)) <= INLINE_STEPS_MAX:
                known.match(new)
                return frozenset(known.matched.intersection(names))
            known.wanted.extend(new)
            self._line.append(known)
            if not self._is_running:
                self._is_running = True
                threading.Thread(target=self._run, name="topic-matches", daemon=True).start()
        return None

    def _known_of(self, regex: str) -> _Known:
        known = self._known.get(regex)
        if known is None:
            known = _Known(client_pattern(regex, "SubscribedTopicRegex"))
            self._make_room()
            self._known[regex] = known
        self._known.move_to_end(regex)
        return known

    def _make_room(self) -> None:
        names_count = sum(1 + len(each.seen) for each in self._known.values())
        while names_count > NAMES_MAX or len(self._known) > EXPRESSIONS_MAX:
            names_count -= 1 + len(self._known.popitem(last=False)[1].seen)

    def _run(self) -> None:
        """Expressions in turn; ends when none is left."""
        while True:
            with self._lock:
                if not self._line:
                    self._is_running = False
                    return
                known = self._line.popleft()
            names, matched = [], []
            until_ms = self._clock.monotonic_ms() + cadence.EXPRESSION_TURN.ms
            while known.wanted and self._clock.monotonic_ms() < until_ms:
                names.append(name := known.wanted.popleft())
                if known.pattern.fullmatch(name):  # without the interpreter's lock
                    matched.append(name)
            with self._lock:
                known.seen.update(names)
                known.matched.update(matched)
                if known.wanted:
                    self._line.append(known)
