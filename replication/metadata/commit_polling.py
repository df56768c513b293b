"""New commits of the metadata log on an object store, polled for beside the loop that folds them.

I/O: a thread asks the store whether the next commit is there.
"""

from __future__ import annotations

from collections.abc import Callable

from stratalog.replication.metadata.log import MetadataLog
from stratalog.replication.stores import Ports
from stratalog.replication.threads.polling_thread import PollingThread
from stratalog.storage.objects.port import ObjectStore


def poll_for_commits(
    metadata: MetadataLog, store: ObjectStore, ports: Ports, pause_ms: Callable[[], int], on_change: Callable[[], None]
) -> PollingThread | None:
    """Polls for the commit after the fold, with these pauses; None where a request takes no time, and the loop polls
    itself.

    A fold that clean-up has passed finds no next commit: the loop reads the log itself now and then.
    """
    if ports.threads is None or not (ports.together.distance.is_far and store.distance.is_far):
        return None

    def has_commit() -> bool:
        path = metadata.next_commit()
        return path is not None and store.exists(path)

    return PollingThread(ports.threads.start, ports.clock, has_commit, pause_ms, on_change)
