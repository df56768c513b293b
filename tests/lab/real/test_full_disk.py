"""Real disks that take no writes: one that is full under one broker, one of all that is read-only for a while."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[3]
NAMESPACE = ("unshare", "--user", "--map-root-user", "--mount")


def may_mount() -> bool:
    """True when this machine allows a user to mount in a namespace of their own."""
    if shutil.which("unshare") is None:
        return False
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", "/mnt"]
    return subprocess.run([*NAMESPACE, *mount], capture_output=True, check=False).returncode == 0


@pytest.mark.slow
def test_a_full_disk_costs_its_broker_the_leaderships_and_no_record(tmp_path: Path) -> None:
    if not may_mount():
        pytest.skip("no small disk can be mounted here")
    command = [*NAMESPACE, sys.executable, "-m", "tests.lab.real.processes.full_disk", str(tmp_path / "cluster")]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, timeout=150, check=False)
    assert done.returncode == 0, done.stderr[-4_000:]
    seen = json.loads(done.stdout.splitlines()[-1])
    assert seen.pop("others") == [0, 0], "the other partitions take records, too"
    assert 2 not in seen.pop("leaders")
    assert not seen.pop("in_isr")[0]
    assert seen == {"is_alive": True, "all_read": True, "verified": 0}


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_storage_domain_that_is_read_only_for_a_while_loses_and_doubles_nothing(tmp_path: Path) -> None:
    """Its leaders give way in turn, and serve when it can be written."""
    if not may_mount():
        pytest.skip("nothing can be mounted here")
    command = [*NAMESPACE, sys.executable, "-m", "tests.lab.real.processes.read_only_domain", str(tmp_path)]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, timeout=290, check=False)
    assert done.returncode == 0, done.stderr[-4_000:]
    seen = json.loads(done.stdout.splitlines()[-1])
    assert seen == {"answered_meanwhile": 0, "offsets": True, "all_read": True, "lost": []}
