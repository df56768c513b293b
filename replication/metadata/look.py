"""New commits of the metadata log on an object store, looked for beside the loop that folds them.

I/O: a thread asks the store whether the next commit is there.
"""

from __future__ import annotations

from collections.abc import Callable

from stratalog.replication.metadata.log import MetadataLog
from stratalog.replication.stores import Ports
from stratalog.replication.threads.look_thread import LookThread
from stratalog.storage.objects.port import ObjectStore


def look_for_commits(
    metadata: MetadataLog, store: ObjectStore, ports: Ports, pause_ms: Callable[[], int], on_news: Callable[[], None]
) -> LookThread | None:
    """Looks whether the commit after the fold is there, with these pauses; None where a request takes no time, and the
    loop looks itself.

    A fold that clean-up has passed finds no next commit: the loop reads the log itself now and then.
    """
    if ports.threads is None or not (ports.together.distance.is_far and store.distance.is_far):
        return None

    def has_commit() -> bool:
        path = metadata.next_commit()
        return path is not None and store.exists(path)

    return LookThread(ports.threads.start, ports.clock, has_commit, pause_ms, on_news)
