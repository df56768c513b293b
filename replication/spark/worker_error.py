"""The first lines of a Python worker's error, found inside the text of Spark's exception, and what to do. Pure.

Spark's text of a failed streaming query has thousands of characters: the frames of the JVM, the query's plan, and
somewhere the traceback of the worker.
"""

from __future__ import annotations

CHARS_MAX = 400
"""Longest error that is returned."""
TRACEBACK = "Traceback (most recent call last):"
PLAN = "=== Streaming Query ==="
STAGE_FAILURE = "most recent failure: "
EXECUTOR_END = "): "


def worker_error(text: str) -> str:
    """One line: the last error of the worker's last traceback; without one the failure of the task, or the first line.

    >>> worker_error("[X] failed: Traceback (most recent call last):\\n  File 'a'\\nOSError: no disk\\n SQLSTATE: 3")
    'OSError: no disk'
    >>> worker_error("Job aborted: most recent failure: Lost task 0 (TID 1) (host): worker crashed\\n\\tat x")
    'worker crashed'
    """
    own = text.partition(PLAN)[0]
    _, found, after = own.rpartition(TRACEBACK)
    lines = _error_lines(after) if found else []
    if not lines:
        first = own.strip().partition("\n")[0]
        _, found, failure = first.partition(STAGE_FAILURE)
        lines = [(failure.partition(EXECUTOR_END)[2] or failure) if found else first]
    error = " ".join(line.strip() for line in lines)
    return error if len(error) <= CHARS_MAX else f"{error[: CHARS_MAX - 1]}…"


def _error_lines(after: str) -> list[str]:
    """The lines behind a traceback's frames, up to what Spark adds."""
    lines = iter(after.splitlines()[1:])
    found = next((line for line in lines if line and not line[0].isspace()), None)
    if found is None:
        return []
    error = [found]
    for line in lines:
        if not line.strip() or line[0].isspace() or line.startswith(("Caused by:", "Driver stacktrace:")):
            break
        error.append(line)
    return error


def advice(error: str, metadata_root: str, root: str) -> str:
    """What to do about a worker's error."""
    if error.startswith(("ModuleNotFoundError", "ImportError")):
        return (
            "install stratalog where Spark's Python workers run, or set spark.executorEnv.PYTHONPATH to a folder that "
            "has it and is on every executor"
        )
    return (
        f"see that Spark has free slots, that its executors reach {metadata_root}, {root} and the roots of the other "
        "brokers, and what their logs say"
    )
