"""The worker's error inside the texts of Spark's exceptions, which are shortened copies of real ones."""

from __future__ import annotations

import pytest

from stratalog.replication.spark.worker_error import CHARS_MAX, advice, worker_error

PLAN = """=== Streaming Query ===
Identifier: q [id = d0860d20, runId = 47397355]
Current State: ACTIVE

Logical Plan:
WriteToMicroBatchDataSource noop-table"""
IN_A_TASK = f"""[PYTHON_EXCEPTION] An exception was thrown from the Python worker: Traceback (most recent call last):
  File "fetch.py", line 15, in read
    import stratalog.replication
ModuleNotFoundError: No module named 'stratalog'
 SQLSTATE: 38000
{PLAN}"""
AT_CREATION = """[PYTHON_DATA_SOURCE_ERROR] Failed to create data source instance: Traceback (most recent call last):
  File "/spark/serializers.py", line 562, in loads
    return cloudpickle.loads(obj, encoding=encoding)
ModuleNotFoundError: No module named 'stratalog'
 SQLSTATE: 38000"""
CRASHED = f"""Job aborted due to stage failure: Task 0 in stage 1.0 failed 1 times, most recent failure: Lost task \
0.0 in stage 1.0 (TID 1) (192.0.2.2 executor driver): org.apache.spark.SparkException: Python worker exited (crashed).
\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator$$anonfun$1.applyOrElse(PythonRunner.scala:704)
Caused by: java.io.EOFException
\tat java.base/java.io.DataInputStream.readInt(DataInputStream.java:386)
\t... 33 more

Driver stacktrace:
{PLAN}"""
CHAINED = f"""Traceback (most recent call last):
  File "a.py", line 1, in a
KeyError: 'root'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "b.py", line 1, in b
stratalog.storage.errors.StoreUnavailableError: get of /data/metadata:
no such folder
\tat org.apache.spark.api.python.BasePythonRunner
{PLAN}"""


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (IN_A_TASK, "ModuleNotFoundError: No module named 'stratalog'"),
        (AT_CREATION, "ModuleNotFoundError: No module named 'stratalog'"),
        (CRASHED, "org.apache.spark.SparkException: Python worker exited (crashed)."),
        (CHAINED, "stratalog.storage.errors.StoreUnavailableError: get of /data/metadata: no such folder"),
        ("Connection refused\n\tat java.base", "Connection refused"),
        ("", ""),
    ],
)
def test_the_error_of_the_worker_is_found(text: str, error: str) -> None:
    assert worker_error(text) == error


def test_a_long_error_is_cut() -> None:
    assert len(worker_error("x" * 10_000)) == CHARS_MAX


def test_the_advice_names_what_is_lacking() -> None:
    assert "spark.executorEnv.PYTHONPATH" in advice(worker_error(IN_A_TASK), "/m", "/b")
    assert "reach /m, /b" in advice(worker_error(CHAINED), "/m", "/b")
