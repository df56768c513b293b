"""The process that brokers are forked from: their modules are imported once. `python -m tests.lab.real.power.zygote`.

With an argument, `files` or `directories`, the brokers never sync these: a run must then find losses.

I/O: one JSON command a line on standard input, answers on standard output; fork(2), SIGKILL. This process never has a
second thread and never uses the disks.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
import traceback
from pathlib import Path

import pyarrow.parquet  # noqa: F401 - imported for the children

from stratalog.jobs.broker import main as broker_main
from stratalog.storage.objects import sync

FILES, DIRECTORIES = "files", "directories"


def forget_syncs(forgotten: str) -> None:
    """Leave out fsync of files, or of directories."""
    whole = sync.sync_file

    def sync_file(path: str) -> None:
        if os.path.isdir(path) is (forgotten == FILES):
            whole(path)

    sync.sync_file = sync_file
    sync.SYNCFS = None


def start(arguments: list[str], output: str) -> int:
    """A broker's process; its id."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        os.setsid()
        file = os.open(output, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.dup2(file, 1)
        os.dup2(file, 2)
        code = broker_main(arguments)
    except BaseException:  # noqa: BLE001 - the child must not return into the parent's loop
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code or 0)


def kill(pids: list[int]) -> None:
    """All at once; returns when none of their threads is left."""
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    for pid in pids:
        os.waitpid(pid, 0)


def main() -> int:
    if sys.argv[1:]:
        forget_syncs(sys.argv[1])
    gc.freeze()
    alive: set[int] = set()
    for line in sys.stdin:
        command = json.loads(line)
        answer: object = None
        if command["do"] == "start":
            Path(command["output"]).parent.mkdir(parents=True, exist_ok=True)
            answer = start(command["arguments"], command["output"])
            alive.add(int(str(answer)))
        elif command["do"] == "kill":
            kill([pid for pid in command["pids"] if pid in alive])
            alive.difference_update(command["pids"])
        elif command["do"] == "poll":  # those that ended by themselves
            ended = [pid for pid in sorted(alive) if os.waitpid(pid, os.WNOHANG)[0]]
            alive.difference_update(ended)
            answer = ended
        print(json.dumps(answer), flush=True)
    kill(sorted(alive))
    return 0


if __name__ == "__main__":
    sys.exit(main())
