"""What a Python process of Spark's loads: every streaming query starts one and waits for it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from clients.spark_worker import PLANNER


def printed(code: str) -> list[str]:
    """What a new Python process prints, as words."""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()


def test_a_planner_loads_no_sink_and_no_broker() -> None:
    loaded = printed("import sys, clients.spark_source, clients.spark_stream_reader; print(*sys.modules)")
    assert "clients.cluster_view" in loaded
    assert not {"clients.spark_sink", "replication.broker", "replication.coordinator_shard"} & set(loaded)


@pytest.mark.parametrize(("program", "imports_pandas"), [(PLANNER, "False"), ("pyspark.daemon", "True")])
def test_only_a_planner_is_spared_pandas_and_may_still_import_it(program: str, imports_pandas: str) -> None:
    code = f"""
import sys
from importlib.machinery import ModuleSpec
sys.modules["__main__"].__spec__ = ModuleSpec({program!r}, None)
from clients.spark_worker import spare_pandas
spare_pandas()
import pyarrow
print(pyarrow.array([1, 2]).to_pylist() == [1, 2], "pandas" in sys.modules)
import pandas
print(pandas.Series([3]).sum())
"""
    assert printed(code) == ["True", imports_pandas, "3"]
