"""What a Python process of Spark's keeps from call to call: views of clusters, frozen modules. I/O: folds metadata.

Spark plans, reads, writes and commits in Python processes that it reuses.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from pyspark import TaskContext

if TYPE_CHECKING:
    from stratalog.clients.view.cluster_view import ClusterView
    from stratalog.storage.objects.store_settings import StoreSettings

PUSHES_FILTERS = "pyspark.sql.worker.data_source_pushdown_filters"
"""The module in which Spark plans a batch read with `spark.sql.python.filterPushdown.enabled`."""
QUERY_ID_PROPERTY = "sql.streaming.queryId"
BATCH_ID_PROPERTY = "streaming.sql.batchId"
RUN_ID_PROPERTY = "spark.jobGroup.id"
"""Properties that Spark gives the tasks of a micro-batch; a run of a query is a job group."""
PLANS_WRITES = "pyspark.sql.worker.write_into_data_source"
"""The module in which Spark plans a write: each batch of a stream once, before its tasks."""

_frozen_modules = 0


def freeze_modules() -> None:
    """Take loaded modules out of garbage collections. To be called first in whatever Spark calls, but never in the
    user's own process.

    `pyspark.daemon` collects all garbage after every task and every call, which for the modules alone takes longer than
    a small task. They are frozen again when more were loaded since, as pandas is by pyarrow's first array.
    """
    global _frozen_modules  # noqa: PLW0603 - the process's garbage collector has one such state, too
    if len(sys.modules) > _frozen_modules:
        _frozen_modules = len(sys.modules)
        gc.freeze()


class StreamingBatch(NamedTuple):
    """The micro-batch of a task: its query (the same after a restart), the run of the query, and its number."""

    query_id: str
    run_id: str
    batch_id: int


def streaming_batch() -> StreamingBatch | None:
    """That of the task in this process; None in one that is not of a streaming query."""
    context = TaskContext.get()
    query_id = context.getLocalProperty(QUERY_ID_PROPERTY) if context else None
    if context is None or not query_id:
        return None
    batch_id = int(context.getLocalProperty(BATCH_ID_PROPERTY) or 0)
    return StreamingBatch(query_id, context.getLocalProperty(RUN_ID_PROPERTY) or "", batch_id)


@contextmanager
def loading() -> Iterator[None]:
    """Around the imports of a new process: garbage collections would take much of their time."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        freeze_modules()


def pushes_filters() -> bool:
    """True in a process in which Spark passes filters to readers.

    Each of Spark's worker modules has Python processes of its own: forked from a daemon that imported the module, or
    started by it (`python -m`).
    """
    return PUSHES_FILTERS in sys.modules or program() == PUSHES_FILTERS


def program() -> str | None:
    """The module that this process was started with (`python -m`)."""
    started_as = getattr(sys.modules["__main__"], "__spec__", None)
    return None if started_as is None else started_as.name


def plans_writes() -> bool:
    """True in a process in which Spark plans a write: not in its tasks, nor where it is committed."""
    return PLANS_WRITES in sys.modules or program() == PLANS_WRITES


@lru_cache(maxsize=8)
def view_of(root: str, storage: StoreSettings, isolation_level: str = "read_uncommitted") -> ClusterView:
    """A view of the cluster, cached in this process: a fold of the metadata is not free. Its user refreshes it."""
    from stratalog.clients.view import read_committed
    from stratalog.replication.stores import client_stores
    from stratalog.storage.clock import RandomIds

    return read_committed.view_of(isolation_level)(root, stores=client_stores(RandomIds(), storage))
