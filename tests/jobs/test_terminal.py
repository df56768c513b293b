"""What a command does when its terminal is gone."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.jobs.test_commands import ENVIRONMENT, WAIT_S

PROGRAM = """
import sys
from jobs.terminal import complain, run
def job():
    complain("nobody hears this")
    complain("nor this")
    open(sys.argv[1], "w").write("done")
    return 0
sys.exit(run(job))
"""


def test_a_command_whose_output_nobody_reads_does_its_work_to_the_end(tmp_path):
    """As a broker whose spark-submit was killed: it hands over what it leads all the same."""
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "mark")]
    ended = subprocess.run(command, stdout=writer, stderr=writer, timeout=WAIT_S, env=ENVIRONMENT, check=False)
    os.close(writer)
    assert (ended.returncode, (tmp_path / "mark").read_text()) == (0, "done")
