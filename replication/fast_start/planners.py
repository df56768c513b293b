"""A Python for Spark's processes that starts fast: planners of streaming queries are forked from a process that has
loaded everything, other processes import pyspark as it was installed.

I/O: a process, a script and a Unix socket in one folder. Every streaming query with a Python source starts a Python
process for its planner, and nothing is planned before it has loaded pyspark, pyarrow and the source. Spark starts
`<python> -m <PLANNER>`; given the launcher as its `<python>`, it gets a fork of `planner_forks`. For anything else, or
without an answer, the launcher becomes Python itself, and leaves out the archives in which Spark brings pyspark along:
Python keeps nothing of what it compiles from an archive.
"""

from __future__ import annotations

import atexit
import os
import shutil
import site
import socket
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pyspark

from stratalog.replication.fast_start import planner_forks

PLANNER = "pyspark.sql.streaming.python_streaming_source_runner"
"""The program of the process in which one streaming query's source plans."""
LOADED = ("pyspark_stratalog",)
"""The module of the format `stratalog`, whose `PLANNERS_LOAD` names more."""

SHEBANG_BYTES_MAX = 127
"""What every Linux takes of a script's first line."""
ADDRESS_BYTES_MAX = 107

LAUNCHER = """#!{python} -IS
import _socket, os, sys
def planner():
    server = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    server.connect({address!r})
    entries = [name + b"=" + value for name, value in os.environb.items()]
    request = b"\\0".join([os.getcwdb(), *entries])
    streams = b"".join(number.to_bytes(4, sys.byteorder) for number in (0, 1, 2))
    server.sendmsg([len(request).to_bytes(8, "big")], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, streams)])
    server.sendall(request)
    return server if server.recv(1) == {started!r} else None
if sys.argv[1:] == ["-m", {planner!r}]:
    try:
        server = planner()
    except OSError:
        server = None
    if server is not None:
        server.recv(1)  # comes when the planner has ended; Spark ends the planner by killing this process
        os._exit(0)
if {archives!r}:
    path = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    os.environ["PYTHONPATH"] = os.pathsep.join(each for each in path if not each.startswith({archives!r}))
os.execv({python!r}, [{python!r}, *sys.argv[1:]])
"""


@dataclass(frozen=True, slots=True)
class ForkedPlanners:
    """A running `planner_forks`, and the launcher that asks it."""

    launcher: Path
    process: subprocess.Popen[bytes]

    @classmethod
    def start(cls, folder: Path, environment: Mapping[str, str]) -> ForkedPlanners | None:
        """Start it; it loads in the background and ends with the calling process.

        folder       made, for this process alone
        environment  what planners' environments have beyond this process's
        returns      None where the system has no such sockets or scripts, or the folder's name is too long for them
        """
        address, launcher = folder / "socket", folder / "python"
        text = LAUNCHER.format(
            python=sys.executable,
            address=str(address),
            started=planner_forks.STARTED,
            planner=PLANNER,
            archives=_archives(),
        )
        first_line = text.partition("\n")[0]
        fits = len(os.fsencode(first_line)) <= SHEBANG_BYTES_MAX and len(os.fsencode(address)) <= ADDRESS_BYTES_MAX
        if not sys.platform.startswith("linux") or not fits or " " in sys.executable:
            return None
        shutil.rmtree(folder, ignore_errors=True)  # of a process that was killed and had the same id
        folder.mkdir(mode=0o700, parents=True)
        launcher.write_text(text, encoding="utf-8")
        launcher.chmod(0o700)
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(address))
            listener.listen()
            process = subprocess.Popen(
                [sys.executable, "-m", planner_forks.__name__, str(listener.fileno()), PLANNER, *LOADED],
                stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                pass_fds=[listener.fileno()], env={**os.environ, **environment},
            )  # fmt: skip
        return cls(launcher, process)

    def stop(self) -> None:
        """No more planners; those that run go on."""
        self.process.terminate()
        self.process.communicate()
        shutil.rmtree(self.launcher.parent, ignore_errors=True)


def _archives() -> str:
    """The beginning of the paths of Spark's archives of pyspark; empty where Python would not find it without them."""
    installed = Path(pyspark.__file__).parent
    is_found = str(installed.parent) in (*site.getsitepackages(), site.getusersitepackages())
    return f"{installed}/python/lib/" if is_found else ""


_OF_THIS_PROCESS: list[ForkedPlanners | None] = []


def planner_launcher(folder: Path, environment: Mapping[str, str]) -> str | None:
    """The launcher of this process's planners, started at the first call: its sessions share one JVM."""
    if not _OF_THIS_PROCESS:
        _OF_THIS_PROCESS.append(started := ForkedPlanners.start(folder, environment))
        if started is not None:
            atexit.register(started.stop)
    found = _OF_THIS_PROCESS[0]
    return str(found.launcher) if found is not None else None
