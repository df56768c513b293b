"""What a fetch session tells of its own life: when it took over, when it ends. I/O: one object in the broker's root.

The session that stands by waits for it, so that it takes over at once: a progress object is written with every copy
and would wake it all the time. Whoever measures hand-overs reads it, too. Sessions leave it for an hour.
"""

from __future__ import annotations

import json

from stratalog.storage.clock import Clock
from stratalog.storage.objects.remote import ObjectStore

KEPT_MS = 3_600_000
_AT_WORK = ("active", "ending")


def notices_prefix(broker_epoch: int) -> str:
    """The directory of all notices of a registration, with the slash."""
    return f"fetch/{broker_epoch}/"


class SessionNotice:
    """The only writer of one session's notice: a JSON object of `state` and wall clock times in ms."""

    def __init__(self, store: ObjectStore, broker_epoch: int, name: str, clock: Clock) -> None:
        self._store = store
        self._prefix = notices_prefix(broker_epoch)
        self._path = self._prefix + name
        self._clock = clock
        self._told: dict[str, int | str] = {}
        self._heard: set[tuple[str, int]] = set()
        self._ended: set[str] = set()

    def tell(self, state: str, **times_ms: int) -> None:
        """Write the new state; `<state>_ms` is now, `times_ms` are further times."""
        self._told |= {"state": state, f"{state}_ms": self._clock.wall_ms(), **times_ms}
        self._store.put_register(self._path, json.dumps(self._told).encode())

    def is_relieved(self) -> bool:
        """True, once for each, when another session of the same share took over after this one did: it thought that
        this one was dead. Both order themselves by what they wrote, so that one of them stays."""
        own = (self._taken_over_ms(self._told), self._path)
        share = self._path[: self._path.index("-", len(self._prefix)) + 1]
        relieved = False
        for meta in self._store.list(share):
            if meta.path == self._path or meta.path in self._ended:
                continue
            told = json.loads(self._store.get_register(meta.path) or b"{}")
            other = (meta.path, self._taken_over_ms(told))
            if other not in self._heard and told.get("state") in _AT_WORK and other[::-1] > own:
                relieved = True
            self._heard.add(other)
            if told.get("state") == "ended":  # that is its last word, and an hour's sessions are not to be read again
                self._ended.add(meta.path)
        return relieved

    @staticmethod
    def _taken_over_ms(told: dict[str, int | str]) -> int:
        return int(told.get("active_ms", -1))

    def delete_old(self) -> None:
        """Remove the notices of sessions that ended long ago."""
        for meta in self._store.list(self._prefix):
            if self._clock.wall_ms() - meta.last_modified_ms > KEPT_MS:
                self._store.delete(meta.path)
