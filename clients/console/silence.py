"""Whether brokers still give signs of life, of a cluster that is read from storage. I/O: reads brokers' sessions.

Storage answers when no broker runs any more, and nobody is left who would record that they are down. So the console
watches their session objects, which change at every heartbeat, as a controller does.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field

from stratalog.clients.console.asker import Asker
from stratalog.replication import cadence
from stratalog.replication.controller.sessions import session_path
from stratalog.server.view.cluster_view import ClusterView
from stratalog.storage.errors import StratalogError

SILENT_MS_MIN = cadence.SESSION_WRITTEN.ms * 3 // 2
"""The least time without a change that counts as silence: longer than the default `broker.session.timeout.ms`, and than
the interval in which brokers on an object store write that they live."""
READ_AGAIN_MS = 2_000
KEPT_MAX = 4


@dataclass(slots=True)
class HeartbeatWatch:
    """The session objects as they were last read, and since when each is unchanged. Thread-safe."""

    _seen: dict[int, tuple[bytes | None, int]] = field(default_factory=dict)
    _read_ms: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def is_due(self, now_ms: int) -> bool:
        """Whether the objects are to be read again."""
        return now_ms - self._read_ms >= READ_AGAIN_MS

    def observe(self, contents: Mapping[int, bytes | None], now_ms: int) -> None:
        """The objects by broker id as they are now."""
        with self._lock:
            self._read_ms = now_ms
            before = self._seen
            self._seen = {
                broker_id: before[broker_id]
                if broker_id in before and before[broker_id][0] == content
                else (content, now_ms)
                for broker_id, content in contents.items()
            }

    def silent_since_ms(self, now_ms: int) -> int:
        """Since when no broker has given a sign of life; 0: one has, or it is not known yet."""
        with self._lock:
            newest = max((since_ms for _, since_ms in self._seen.values()), default=now_ms)
        return newest if now_ms - newest >= SILENT_MS_MIN else 0


_WATCHES: dict[ClusterView, HeartbeatWatch] = {}
_LOCK = threading.Lock()


def silent_since_ms(asker: Asker) -> int:
    """Since when no broker of the cluster has given a sign of life, as far as this process has watched; else 0.

    Always 0 of a cluster that is known by its brokers' addresses: there they answer, or do not.
    """
    view = asker.cluster.view
    if not isinstance(view, ClusterView):
        return 0
    with _LOCK:
        watch = _WATCHES.setdefault(view, HeartbeatWatch())
        while len(_WATCHES) > KEPT_MAX:
            del _WATCHES[next(iter(_WATCHES))]
    if watch.is_due(asker.now_ms):
        objects = view.stores.objects(view.root)
        try:
            running = sorted(view.image.live_brokers())
            watch.observe({each: objects.get_register(session_path(each)) for each in running}, asker.now_ms)
        except StratalogError:
            return 0  # what the page asks for says it
    return watch.silent_since_ms(asker.now_ms)
