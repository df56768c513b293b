"""What a Python process of Spark's keeps from call to call: views of clusters, frozen modules. I/O: folds metadata.

Spark plans, reads, writes and commits in Python processes that it reuses.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from pyspark import TaskContext

from stratalog.storage.errors import StratalogError
from stratalog.storage.log_lines import line_logger

if TYPE_CHECKING:
    from stratalog.server.view.cluster_view import ClusterView
    from stratalog.storage.objects.store_settings import StoreSettings

PUSHES_FILTERS = "pyspark.sql.worker.data_source_pushdown_filters"
"""The module in which Spark plans a batch read with `spark.sql.python.filterPushdown.enabled`."""
QUERY_ID_PROPERTY = "sql.streaming.queryId"
BATCH_ID_PROPERTY = "streaming.sql.batchId"
RUN_ID_PROPERTY = "spark.jobGroup.id"
"""Properties that Spark gives the tasks of a micro-batch; a run of a query is a job group."""
_HIDE_TRACEBACK = "SPARK_HIDE_TRACEBACK"
"""The variable of Spark's Python processes under `spark.sql.execution.pyspark.udf.hideTraceback.enabled`."""
PLANS_WRITES = "pyspark.sql.worker.write_into_data_source"
"""The module in which Spark plans a write: each batch of a stream once, before its tasks."""

_LOG = line_logger("stratalog.source")

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


@contextmanager
def sentence_first() -> Iterator[None]:
    """A block, or a function, whose own errors reach the user as their sentence, without this process's traceback.

    Spark shows what the process writes of an error, and ends it. So the variable is of this error only. An error that
    is none of ours keeps its traceback.
    """
    try:
        yield
    except StratalogError as refusal:
        _LOG.debug("%s", refusal, exc_info=True)
        os.environ[_HIDE_TRACEBACK] = "1"
        raise


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


def task_property(name: str) -> str | None:
    """A property that Spark gave the task in this process, a setting of its query among them; None without a task."""
    context = TaskContext.get()
    return context.getLocalProperty(name) if context else None


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
    from stratalog.replication.stores import client_stores
    from stratalog.server.view import read_committed
    from stratalog.storage.clock import RandomIds

    return read_committed.view_of(isolation_level)(root, stores=client_stores(RandomIds(), storage))
