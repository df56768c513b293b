"""A real mount with a storage domain becomes read-only: its leaders give way in turn, and serve when it is writable."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.lab.real.test_full_disk import NAMESPACE, PROJECT, may_mount


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_domain_that_cannot_be_written_for_a_while_loses_and_doubles_nothing(tmp_path: Path) -> None:
    if not may_mount():
        pytest.skip("nothing can be mounted here")
    command = [*NAMESPACE, sys.executable, "-m", "tests.lab.real.processes.read_only_domain", str(tmp_path)]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, timeout=290, check=False)
    assert done.returncode == 0, done.stderr[-4_000:]
    seen = json.loads(done.stdout.splitlines()[-1])
    assert seen == {"answered_meanwhile": 0, "offsets": True, "all_read": True, "lost": []}
