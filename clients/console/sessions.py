"""Sessions of browsers, their tokens, and how logins are slowed: time and secrets are arguments.

I/O: none of its own; an ended session closes what belongs to its user.

A session ends when it was not used for `IDLE_MS`, and `ABSOLUTE_MS` after its login at the latest. A token against
forged requests (CSRF) belongs to one browser's cookie.
"""

from __future__ import annotations

import hashlib
import hmac
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from stratalog.clients.console.doors import EnteredUser

IDLE_MS, ABSOLUTE_MS = 30 * 60_000, 12 * 3_600_000
SESSIONS_MAX = 1_000
FREE_ATTEMPTS = 3
"""Number of failed logins that are not slowed."""
NAME_WAIT_MS_MAX, HOST_WAIT_MS_MAX = 30_000, 15 * 60_000
"""The longest waits. Of a name it is short, since others can cause it."""
FORGET_MS = 3_600_000
ATTEMPTS_KEPT_MAX = 10_000


@dataclass(slots=True)
class Session:
    """A login of a browser."""

    entry: EnteredUser
    begun_ms: int
    used_ms: int


class Sessions:
    """All sessions of a console by the secret in the browser's cookie, of which only a digest is kept. Thread-safe."""

    def __init__(self, idle_ms: int = IDLE_MS, absolute_ms: int = ABSOLUTE_MS) -> None:
        self._idle_ms = idle_ms
        self._absolute_ms = absolute_ms
        self._sessions: dict[bytes, Session] = {}
        self._lock = threading.Lock()

    def begin(self, secret: str, entry: EnteredUser, now_ms: int) -> None:
        """A login. With too many sessions the one that was not used for the longest time ends."""
        ended = self._expire(now_ms)
        with self._lock:
            if len(self._sessions) >= SESSIONS_MAX:
                oldest = min(self._sessions, key=lambda each: self._sessions[each].used_ms)
                ended.append(self._sessions.pop(oldest))
            self._sessions[_digest(secret)] = Session(entry, now_ms, now_ms)
        for each in ended:
            each.entry.close()

    def find(self, secret: str, now_ms: int) -> EnteredUser | None:
        """The login of a browser, which is used by that; None when it has ended, or never began."""
        for each in self._expire(now_ms):
            each.entry.close()
        with self._lock:
            found = self._sessions.get(_digest(secret))
            if found is None:
                return None
            found.used_ms = now_ms
            return found.entry

    def end(self, secret: str) -> None:
        """Log out."""
        with self._lock:
            found = self._sessions.pop(_digest(secret), None)
        if found is not None:
            found.entry.close()

    def close(self) -> None:
        """End all."""
        with self._lock:
            ended, self._sessions = list(self._sessions.values()), {}
        for each in ended:
            each.entry.close()

    def _expire(self, now_ms: int) -> list[Session]:
        with self._lock:
            over = [
                key
                for key, each in self._sessions.items()
                if now_ms - each.used_ms >= self._idle_ms or now_ms - each.begun_ms >= self._absolute_ms
            ]
            return [self._sessions.pop(key) for key in over]


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()


@dataclass(slots=True)
class _Failures:
    count: int = 0
    last_ms: int = 0


@dataclass(slots=True)
class LoginAttempts:
    """Failed logins by name and by address. After `FREE_ATTEMPTS` each failure doubles the wait. Thread-safe."""

    _of_name: dict[str, _Failures] = field(default_factory=dict)
    _of_host: dict[str, _Failures] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def wait_ms(self, name: str, host: str, now_ms: int) -> int:
        """How long the next attempt has to wait; 0: it may be made."""
        with self._lock:
            return max(
                _left_ms(self._of_name.get(name), NAME_WAIT_MS_MAX, now_ms),
                _left_ms(self._of_host.get(host), HOST_WAIT_MS_MAX, now_ms),
            )

    def failed(self, name: str, host: str, now_ms: int) -> None:
        """An attempt failed."""
        with self._lock:
            for kept, key in ((self._of_name, name), (self._of_host, host)):
                found = kept.pop(key, None) or _Failures()
                if now_ms - found.last_ms > FORGET_MS:
                    found.count = 0
                found.count, found.last_ms = found.count + 1, now_ms
                kept[key] = found
                while len(kept) > ATTEMPTS_KEPT_MAX:
                    del kept[next(iter(kept))]

    def succeeded(self, name: str, host: str) -> None:
        """An attempt succeeded: its failures are forgotten."""
        with self._lock:
            self._of_name.pop(name, None)
            self._of_host.pop(host, None)


def _left_ms(failures: _Failures | None, wait_ms_max: int, now_ms: int) -> int:
    if failures is None or failures.count < FREE_ATTEMPTS:
        return 0
    wait_ms: int = min(wait_ms_max, 1_000 * 2 ** min(20, failures.count - FREE_ATTEMPTS))
    return max(0, failures.last_ms + wait_ms - now_ms)


@dataclass(frozen=True, slots=True)
class FormTokens:
    """Tokens against forged requests: each belongs to one browser's cookie."""

    key: bytes

    def of(self, cookie: str) -> str:
        """The token of a browser."""
        return hmac.digest(self.key, cookie.encode(), "sha256").hex()

    def is_right(self, cookie: str, token: str) -> bool:
        """Whether a form was made for this browser."""
        return bool(cookie) and hmac.compare_digest(self.of(cookie).encode(), token.encode())


Secrets = Callable[[], str]
"""Makes a secret that nobody can guess."""
