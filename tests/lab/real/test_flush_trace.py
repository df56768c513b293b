"""The system calls between a record's sending and its acknowledgement, as strace shows them."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from stratalog.storage.topic_config import LONG_MAX
from tests.lab.real.processes.flushed_appends import APPENDS

PROJECT = Path(__file__).parents[3]
CALLS = "fsync,fdatasync,syncfs,linkat,write"


@pytest.fixture(scope="module", autouse=True)
def strace() -> str:
    found = shutil.which("strace")
    if found is None:
        pytest.skip("strace is not installed")
    if subprocess.run([found, "-o", "/dev/null", "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("strace may not trace here")
    return found


def traced(strace: str, folder: Path, flush_messages: int) -> list[str]:
    """The calls in the order in which they ended: `sync <path>`, `create <path>`, `sent 0`, `acknowledged 0`.

    Paths are below the replica's directory; calls for other tables are left out.
    """
    trace, said = folder / "trace", folder / "said"
    command = [strace, "-f", "-y", "-qq", "--seccomp-bpf", "-s", "300", "-e", f"trace={CALLS}", "-o", str(trace)]
    command += [sys.executable, "-m", "tests.lab.real.processes.flushed_appends", str(folder / "cluster"), str(said)]
    subprocess.run([*command, str(flush_messages)], cwd=PROJECT, check=True, timeout=120)
    replica = f"{folder}/cluster/broker-1/orders-0"
    return [event for line in whole_calls(trace) if (event := event_of(line, replica, str(said)))]


def whole_calls(trace: Path) -> Iterator[str]:
    """The lines of a trace; a call that another thread interrupted is placed where it ended."""
    begun: dict[str, str] = {}
    for line in trace.read_text().splitlines():
        pid, _, call = line.partition(" ")
        if call.endswith("<unfinished ...>"):
            begun[pid] = call.removesuffix("<unfinished ...>")
        elif resumed := re.search(r"<\.\.\. \w+ resumed>(.*)", call):
            yield begun.pop(pid, "") + resumed[1]
        else:
            yield call


def event_of(call: str, replica: str, record: str) -> str | None:
    call = call.strip()
    if call.startswith("write("):
        found = re.search(rf'write\(\d+<{re.escape(record)}>, "(.*?)\\n"', call)
        return found[1] if found else None
    paths = re.findall(rf"{re.escape(replica)}/?([^\">]*)", call)
    if not paths or not call.endswith("= 0"):
        return None
    path = paths[-1]  # the second one of a link is the new name
    kind = "data file" if path.endswith(".parquet") else "commit" if path.endswith(".json") else path
    if path.startswith("segment="):
        kind = {2: "epoch", 3: "file"}.get(len(path.split("/")), "segment") + "'s directory" if kind == path else kind
    return f"{'create' if call.startswith('linkat') else 'sync'} {kind}".strip()


def between(events: list[str], i: int) -> list[str]:
    return events[events.index(f"sent {i}") + 1 : events.index(f"acknowledged {i}")]


def test_a_flushed_record_is_on_disk_with_its_commit_and_directories_before_its_acknowledgement(
    strace: str, tmp_path: Path
) -> None:
    events = traced(strace, tmp_path, 1)
    for i in range(APPENDS):
        assert between(events, i) == [
            "sync data file",
            "sync file's directory",
            "sync epoch's directory",
            "create commit",
            "sync commit",
            "sync _delta_log",
        ]


def test_a_record_that_is_not_flushed_is_only_written(strace: str, tmp_path: Path) -> None:
    events = traced(strace, tmp_path, LONG_MAX)
    assert [between(events, i) for i in range(APPENDS)] == [["create commit"]] * APPENDS
