"""The tools in processes of their own. The first call starts one as a user does; later calls are forks of one process.

Loading a tool costs many times as much CPU as its work, and the tests call tools often.
"""

from __future__ import annotations

import functools
import gc
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from stratalog.jobs.strata import main, modules

PROJECT = Path(__file__).resolve().parents[2]
WAIT_S = 60
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(PROJECT), "PYTHONUNBUFFERED": "1"}
OFTEN_CALLED = ("topics", "produce", "consume", "configs")
REQUEST_BYTES_MAX = 1 << 16


@dataclass(frozen=True)
class Ended:
    code: int
    out: str
    err: str


def call(tool: str, *arguments: str, lines: str = "") -> Ended:
    """Run a tool to its end, with these lines on its standard input."""
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        given.write(lines.encode())
        given.seek(0)
        code = _run(tool, arguments, (given.fileno(), out.fileno(), err.fileno()))
        out.seek(0)
        err.seek(0)
        ended = Ended(code, out.read().decode(), err.read().decode())
    assert "Traceback" not in ended.out + ended.err
    return ended


_HAS_RUN: set[str] = set()


def _run(tool: str, arguments: tuple[str, ...], streams: tuple[int, int, int]) -> int:
    if tool in _HAS_RUN:
        return _forks().run(tool, arguments, streams)
    _HAS_RUN.add(tool)
    stdin, stdout, stderr = streams
    command = [sys.executable, "-m", "stratalog", tool, *arguments]
    return subprocess.run(
        command, stdin=stdin, stdout=stdout, stderr=stderr, timeout=WAIT_S, env=ENVIRONMENT, check=False
    ).returncode


class Forks:
    """A process whose forks are tools, loaded already. It ends with this one."""

    def __init__(self) -> None:
        self._calls, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._calls.settimeout(WAIT_S)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(theirs.fileno())],
                pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, env=ENVIRONMENT, start_new_session=True,
            )  # fmt: skip

    def run(self, tool: str, arguments: tuple[str, ...], streams: tuple[int, int, int]) -> int:
        """Run a tool; its exit code. A tool that does not end in time is killed."""
        socket.send_fds(self._calls, [json.dumps([tool, *arguments]).encode()], streams)
        try:
            return int(self._calls.recv(REQUEST_BYTES_MAX))
        except TimeoutError:
            _forks.cache_clear()
            os.killpg(self._process.pid, signal.SIGKILL)
            raise


@functools.cache
def _forks() -> Forks:
    return Forks()


def serve(calls: socket.socket) -> None:
    """Load the tools, then fork for each call until the caller ends. In a fork it returns, to run the tool."""
    for tool in OFTEN_CALLED:
        importlib.import_module(modules()[tool])
    gc.freeze()
    while True:
        request, streams, _, _ = socket.recv_fds(calls, REQUEST_BYTES_MAX, 3)
        if not request:
            sys.exit()
        child = os.fork()
        if child == 0:
            calls.close()
            for number, stream in enumerate(streams):
                os.dup2(stream, number)
            sys.argv[1:] = json.loads(request)
            return
        for stream in streams:
            os.close(stream)
        calls.send(str(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])).encode())


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
    sys.exit(main())
