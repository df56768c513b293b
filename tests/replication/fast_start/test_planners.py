"""Planners forked from a process that has loaded already: who they are, how they end, and what happens without it."""

from __future__ import annotations

import atexit
import os
import pickle
import select
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pyspark
import pytest

from stratalog.replication.fast_start.planners import PLANNER, ForkedPlanners

WAIT_S = 60


@pytest.fixture(scope="module")
def planners(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkedPlanners]:
    started = started_in(tmp_path_factory.mktemp("planners") / "p")
    yield started
    started.stop()


def started_in(folder: Path) -> ForkedPlanners:
    started = ForkedPlanners.start(folder, {})
    assert started is not None
    return started


class Started:
    """A planner that a launcher was started for, and this side of its socket, as Spark's JVM has it."""

    def __init__(self, launcher: Path, folder: Path) -> None:
        address = str(folder / "spark")
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(address)
            listener.listen()
            listener.settimeout(WAIT_S)
            environment = {
                "PYTHONPATH": os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")]),
                "PYTHON_WORKER_FACTORY_SOCK_PATH": address,
                "PATH": os.environ["PATH"],
            }
            self.launcher = subprocess.Popen(
                [str(launcher), "-m", PLANNER], env=environment, cwd=folder,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            )  # fmt: skip
            self.spark, _ = listener.accept()
        self.spark.settimeout(WAIT_S)
        self.pid = int.from_bytes(self.spark.recv(4), "big")

    def end(self) -> tuple[int, bytes]:
        """Spark hangs up; the launcher's exit code and the planner's errors."""
        self.spark.close()
        _, errors = self.launcher.communicate(timeout=WAIT_S)
        return self.launcher.returncode, errors

    def has_hung_up(self) -> bool:
        """Waits for the end of the planner's side."""
        try:
            return self.spark.recv(1) == b""
        except ConnectionResetError:
            return True


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_a_planner_is_a_fork_with_its_launchers_folder_environment_and_streams(
    planners: ForkedPlanners, tmp_path: Path
) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    started = Started(planners.launcher, folder)
    assert parent_of(started.pid) == planners.process.pid
    assert os.readlink(f"/proc/{started.pid}/cwd") == str(folder)
    for number in range(3):
        assert os.readlink(f"/proc/{started.pid}/fd/{number}") == os.readlink(
            f"/proc/{started.launcher.pid}/fd/{number}"
        )
    code, errors = started.end()
    assert code == 0
    assert b"EOFError" in errors, "the planner's environment led it to the socket, its errors to the launcher's stream"


class ExitHook:
    """Registers a hook where it is unpickled: this folder is made when that process exits."""

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder)

    def __reduce__(self) -> tuple[object, ...]:
        return atexit.register, (os.mkdir, self._folder)


def test_a_planner_runs_the_hooks_of_its_exit(planners: ForkedPlanners, tmp_path: Path) -> None:
    started = Started(planners.launcher, tmp_path)
    source = pickle.dumps(ExitHook(tmp_path / "exited"))
    texts = ["{}.{}".format(*sys.version_info).encode(), str(tmp_path).encode()]
    frames = [*(struct.pack(">i", len(text)) + text for text in texts), struct.pack(">i", 0)]
    started.spark.sendall(b"".join([*frames, struct.pack(">i", len(source)), source]))
    started.end()
    assert (tmp_path / "exited").is_dir()


def test_two_planners_live_side_by_side_and_each_ends_with_its_launcher(
    planners: ForkedPlanners, tmp_path: Path
) -> None:
    folders = [tmp_path / name for name in ("a", "b")]
    for folder in folders:
        folder.mkdir()
    first, second = (Started(planners.launcher, folder) for folder in folders)
    first.launcher.send_signal(signal.SIGKILL)
    assert first.has_hung_up()
    first.launcher.communicate()
    assert parent_of(second.pid) == planners.process.pid
    os.kill(second.pid, signal.SIGKILL)
    assert second.has_hung_up()
    assert second.launcher.wait(WAIT_S) == 0


def test_without_the_process_the_launcher_becomes_the_planner(tmp_path: Path) -> None:
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / "socket").touch()  # what a killed process of the same id left
    planners = started_in(tmp_path / "p")
    planners.process.kill()
    planners.process.wait()
    started = Started(planners.launcher, tmp_path)
    assert started.pid == started.launcher.pid
    started.end()


def test_for_anything_else_the_launcher_is_python(planners: ForkedPlanners) -> None:
    code = "import os, sys; print(os.getpid(), sys.executable, sys.argv[1:])"
    with subprocess.Popen([planners.launcher, "-c", code, "-m", PLANNER], stdout=subprocess.PIPE, text=True) as process:
        printed, _ = process.communicate()
    assert printed.split(maxsplit=2) == [str(process.pid), sys.executable, f"{['-m', PLANNER]}\n"]


def test_other_programs_import_pyspark_as_it_was_installed(planners: ForkedPlanners) -> None:
    """Though Spark puts its archives before all else; what others put there stays."""
    lib = Path(pyspark.__file__).parent / "python" / "lib"
    path = os.pathsep.join([str(lib / "pyspark.zip"), str(lib / "py4j-0.10.9.9-src.zip"), "/of/others"])
    code = "import os, pyspark; print(os.environ['PYTHONPATH'], pyspark.__file__)"
    done = subprocess.run(
        [planners.launcher, "-c", code],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["/of/others", pyspark.__file__]


def test_names_that_are_too_long_leave_planners_to_spark(tmp_path: Path) -> None:
    assert ForkedPlanners.start(tmp_path / ("x" * 120), {}) is None
    assert not list(tmp_path.iterdir())


def test_the_process_ends_with_its_starter(tmp_path: Path) -> None:
    """Its standard input ends then, however the starter dies."""
    code = f"""
from pathlib import Path
from stratalog.replication.fast_start.planners import ForkedPlanners
import os, signal
print(ForkedPlanners.start(Path({str(tmp_path / "p")!r}), {{}}).process.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=False)
    assert done.returncode == -signal.SIGKILL
    with suppress(ProcessLookupError):  # it has ended already
        process = os.pidfd_open(int(done.stdout))
        ended, _, _ = select.select([process], [], [], WAIT_S)
        os.close(process)
        assert ended
