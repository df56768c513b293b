"""Calls that never wait, in the thread that reads their connection, with metadata that another thread keeps new.

I/O: one thread that folds the metadata log. A call runs at once, with the metadata at hand, while that is new enough
and has all that the call names; the thread folds meanwhile. Otherwise the call runs in the thread, after a fold, and
calls of its connection that come until then run behind it, so that they keep their order.

A fold that takes long, as of thousands of ACLs that somebody has just made, does not make calls wait that began to come
before it: as in Kafka, metadata follows what was committed.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from stratalog.server.request.api import Connection
from stratalog.server.request.broker import ServedBroker
from stratalog.storage.errors import StratalogError
from stratalog.storage.log_lines import line_logger

_LOG = line_logger("stratalog.kafka")

AHEAD_MS = 10
"""Age of the metadata at hand from which it is folded beside the calls."""
STALE_MS = 100
"""Age of the metadata at hand from which calls wait for a fold, as after a pause without any call."""
FOLDING_MS_MAX = 5_000
"""Age of the metadata at hand from which calls wait for a fold that began while it was new."""


class QuickCalls:
    """The quick calls of all connections to one broker."""

    def __init__(self, broker: ServedBroker) -> None:
        self._broker = broker
        self._lock = threading.Lock()
        self._waiting: deque[tuple[Callable[[], None], int, bool]] = deque()
        self._behind: Counter[int] = Counter()
        """Calls that wait or run in the thread, by the identity of their connection, which lives as long as they do."""
        self._is_folding = False
        self._began_new = False
        """Whether the metadata at hand was new when the fold began: its age counts from there while it goes on."""
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"kafka-{broker.broker_id}-metadata")

    def run(self, call: Callable[[], None], connection: Connection, *, is_known: bool) -> None:
        """Run a connection's call, here or later in the thread; `is_known`: the metadata at hand has all that it names.

        Storage is not read here. RuntimeError when closed.
        """
        view, of = self._broker.view, id(connection)
        with self._lock:
            is_stale = view.is_older_than(FOLDING_MS_MAX if self._is_folding else STALE_MS)
            if not self._is_folding:
                self._began_new = not is_stale
            is_now = is_known and self._began_new and not is_stale and of not in self._behind
            if not is_now:
                self._waiting.append((call, of, is_known))
                self._behind[of] += 1
            begins = not self._is_folding and (not is_now or view.is_older_than(AHEAD_MS))
            if begins:
                self._is_folding = True
                self._thread.submit(self._fold)
        if is_now:
            with self._broker.cached_metadata():
                call()

    def close(self) -> None:
        """Run the calls that wait, and end the thread."""
        self._thread.shutdown(wait=True)

    def _fold(self) -> None:
        while True:
            with self._lock:
                due = list(self._waiting)
                self._waiting.clear()
            is_new = self._has_folded(0 if due else AHEAD_MS)
            for call, of, is_known in due:
                try:
                    if is_new and is_known:
                        with self._broker.cached_metadata():
                            call()
                    else:
                        call()
                except Exception:  # noqa: BLE001 - one call's defect must not end the thread
                    _LOG.exception("broker %d: a call failed", self._broker.broker_id)
                finally:
                    self._ended(of)
            with self._lock:
                if not self._waiting:
                    self._is_folding = False
                    return
                self._began_new = is_new

    def _has_folded(self, max_age_ms: int) -> bool:
        """Fold the metadata; False when that failed: a call meets the error itself then, and answers it."""
        try:
            self._broker.view.refresh(max_age_ms)
        except StratalogError:
            return False
        except Exception:  # noqa: BLE001 - all later calls would wait for ever
            _LOG.exception("broker %d: metadata cannot be folded", self._broker.broker_id)
            return False
        return True

    def _ended(self, of: int) -> None:
        with self._lock:
            self._behind[of] -= 1
            if not self._behind[of]:
                del self._behind[of]
