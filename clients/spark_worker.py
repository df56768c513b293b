"""What a Python process of Spark's keeps from call to call: its views of clusters, and quiet. I/O: folds metadata.

Spark plans, reads, writes and commits in Python processes that it uses again and again.
"""

from __future__ import annotations

import gc
from functools import cache, lru_cache

from clients import read_committed
from clients.cluster_view import ClusterView
from clients.read_committed import READ_UNCOMMITTED


@cache
def settle() -> None:
    """Call at the beginning of whatever Spark calls; works once a process, and never in the user's own.

    `pyspark.daemon` collects all garbage after every task and every call, which takes 10 to 20 ms for the modules
    alone: more than a small task does itself. What is loaded now stays for good, so it is taken out of that.
    """
    gc.freeze()


@lru_cache(maxsize=8)
def view_of(root: str, isolation_level: str = READ_UNCOMMITTED) -> ClusterView:
    """A view of the cluster kept for this process: a fold of the metadata is not free. Refreshed by who uses it."""
    return read_committed.view_of(isolation_level)(root)
