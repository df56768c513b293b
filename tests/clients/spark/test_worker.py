"""What a Python process of Spark's loads: every streaming query starts one and waits for it."""

from __future__ import annotations

import subprocess
import sys


def printed(code: str) -> list[str]:
    """What a new Python process prints, as words."""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()


def test_a_planner_loads_no_sink_and_no_broker() -> None:
    loaded = printed(
        "import sys, stratalog.clients.spark.source.source, stratalog.clients.spark.source.stream_reader;"
        "print(*sys.modules)"
    )
    assert "stratalog.server.view.cluster_view" in loaded
    assert not {
        "stratalog.clients.spark.sink.sink",
        "stratalog.replication.broker.broker",
        "stratalog.replication.coordinator.shard.shard",
    } & set(loaded)


def test_what_was_loaded_after_a_call_began_is_kept_out_of_collections_from_the_next_call_on() -> None:
    """pyarrow's first array loads pandas: hundreds of modules, which the daemon would collect after every task."""
    code = """
import gc
from stratalog.clients.spark.worker import freeze_modules
def frozen():
    freeze_modules()
    return gc.get_freeze_count()
first, same = frozen(), frozen()
import pyarrow
pyarrow.array([b"x"])
import pandas
second = frozen()
cycle = []
cycle.append(cycle)
print(first > 0, same == first, second > first + 10_000, frozen() == second)
del cycle
print(gc.collect() > 0)
"""
    assert printed(code) == ["True"] * 5
