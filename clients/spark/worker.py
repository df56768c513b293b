"""What a Python process of Spark's keeps from call to call: its views of clusters, and quiet. I/O: folds metadata.

Spark plans, reads, writes and commits in Python processes that it uses again and again.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stratalog.clients.view.cluster_view import ClusterView

_settled_modules = 0


def settle() -> None:
    """Call at the beginning of whatever Spark calls, but never in the user's own process.

    `pyspark.daemon` collects all garbage after every task and every call, which takes 10 to 20 ms for the modules
    alone: more than a small task does itself, and the next step of a micro-batch waits for that CPU. What is loaded now
    stays for good, so it is taken out of that; again only when more was loaded since, as pandas is by pyarrow's first
    array, after a process's first call began.
    """
    global _settled_modules  # noqa: PLW0603 - the process's garbage collector has one such state, too
    if len(sys.modules) > _settled_modules:
        _settled_modules = len(sys.modules)
        gc.freeze()


@contextmanager
def loading() -> Iterator[None]:
    """Around the imports of what a new process does: a third of their time goes into looking for garbage otherwise."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        settle()


@lru_cache(maxsize=8)
def view_of(root: str, isolation_level: str = "read_uncommitted") -> ClusterView:
    """A view of the cluster kept for this process: a fold of the metadata is not free. Refreshed by who uses it."""
    from stratalog.clients.view import read_committed

    return read_committed.view_of(isolation_level)(root)
