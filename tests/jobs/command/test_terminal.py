"""What a command does when its terminal is gone, or a signal comes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from stratalog.jobs.command.terminal import Terminated, stop_signals
from tests.jobs.test_commands import ENVIRONMENT, WAIT_S

PROGRAM = """
import sys
from stratalog.jobs.command.terminal import complain, run
def job():
    complain("a closed terminal")
    complain("nor this")
    open(sys.argv[1], "w").write("done")
    return 0
sys.exit(run(job))
"""


def test_a_command_with_closed_output_does_its_work_to_the_end(tmp_path):
    """As a broker whose spark-submit was killed: it hands over what it leads all the same."""
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "mark")]
    ended = subprocess.run(command, stdout=writer, stderr=writer, timeout=WAIT_S, env=ENVIRONMENT, check=False)
    os.close(writer)
    assert (ended.returncode, (tmp_path / "mark").read_text()) == (0, "done")


def send_myself(number: signal.Signals) -> None:
    os.kill(os.getpid(), number)


@pytest.mark.parametrize(
    ("number", "ending"),
    [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, Terminated), (signal.SIGHUP, Terminated)],
)
def test_the_first_signal_is_noted_and_the_second_ends_what_is_under_way(number, ending):
    before = signal.getsignal(number)
    with stop_signals() as stop:
        send_myself(number)
        assert stop.is_asked
        with pytest.raises(ending):
            send_myself(number)
    assert signal.getsignal(number) == before


def test_a_signal_that_spark_took_for_itself_is_taken_back():
    with stop_signals() as stop:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        stop.listen()
        send_myself(signal.SIGINT)
        assert stop.is_asked
