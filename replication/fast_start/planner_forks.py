"""The process whose forks are planners of streaming queries: it has loaded what they need, and waits for launchers.

I/O: forks, one Unix socket. `python -m stratalog.replication.fast_start.planner_forks <socket's number> <planner's
module> <modules…>` loads and serves until standard input ends. A launcher (`planners`) sends its streams, folder and
environment, and the fork goes on as the process that the launcher was started to be. It ends with its launcher, and the
other way round.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import os
import runpy
import select
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress

from stratalog.replication import cadence

STARTED = b"+"
"""What a launcher is answered by its planner."""
LENGTH_BYTES, STREAMS = 8, 3


def main(arguments: Sequence[str]) -> None:
    """Load, then fork for each launcher, until standard input ends."""
    number, planner, *modules = arguments
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group: Spark ends its planners itself
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    base_path = _without_own_path(sys.path, os.environ)
    _load((planner, *modules))
    sys.modules.pop(planner, None)  # a planner runs it as its main program
    gc.collect()
    gc.freeze()
    with socket.socket(fileno=int(number)) as listener:
        while True:
            ready, _, _ = select.select([listener.fileno(), 0], [], [])
            if 0 in ready:
                return
            launcher, _ = listener.accept()
            with launcher:
                if os.fork() == 0:
                    listener.close()
                    _run(launcher, planner, base_path)


def _load(modules: Sequence[str]) -> None:
    """Import what there is of these modules, and of those that each names as `PLANNERS_LOAD`."""
    for module in modules:
        with suppress(ImportError):
            _load(getattr(importlib.import_module(module), "PLANNERS_LOAD", ()))


def _run(launcher: socket.socket, planner: str, base_path: Sequence[str]) -> None:
    """The fork's whole life."""
    code = 1
    try:
        atexit._clear()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        folder, environment, streams = _received(launcher)
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(environment)
        sys.path[:] = [folder, *_python_path(environment), *base_path]
        launcher.sendall(STARTED)
        threading.Thread(target=_end_with, args=(launcher,), daemon=True).start()
        runpy.run_module(planner, run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001 - as the interpreter does at the end of a program
        traceback.print_exc()
    finally:
        atexit._run_exitfuncs()
        with suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code & 0xFF)


def _received(launcher: socket.socket) -> tuple[str, dict[str, str], list[int]]:
    """A launcher's folder, environment and streams."""
    launcher.settimeout(cadence.PLANNER_REQUEST.s)
    head, streams, _, _ = socket.recv_fds(launcher, LENGTH_BYTES, STREAMS)
    length = int.from_bytes(head, "big")
    with launcher.makefile("rb") as request:
        folder, *entries = request.read(length).split(b"\0")
    launcher.settimeout(None)
    pairs = (entry.partition(b"=") for entry in entries)
    return os.fsdecode(folder), {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs}, streams


def _end_with(launcher: socket.socket) -> None:
    with suppress(OSError):
        launcher.recv(1)
    os.kill(os.getpid(), signal.SIGTERM)  # a planner that is in a group leaves it
    threading.Event().wait(cadence.PLANNER_END.s)
    os._exit(1)


def _python_path(environment: Mapping[str, str]) -> list[str]:
    return [entry for entry in environment.get("PYTHONPATH", "").split(os.pathsep) if entry]


def _without_own_path(path: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    """Where Python itself and what is installed lie: `sys.path` without its first entry and PYTHONPATH."""
    own = {os.path.abspath(entry) for entry in _python_path(environment)}
    return [entry for entry in path[1:] if os.path.abspath(entry) not in own]


if __name__ == "__main__":
    main(sys.argv[1:])
