"""Three broker processes, each root and the metadata root on a disk of its own whose power can be cut.

I/O: processes, FUSE mounts, files for the brokers' output.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.lab.real.harness.broker_processes import BROKERS, STARTED
from tests.lab.real.power.disks import PROJECT, Disks
from tests.lab.real.power.volatile_disk import CutResult, Rules
from tests.waiting import wait_until

METADATA = "metadata"
START_WAIT_S = 90


class BrokerEndedError(Exception):
    """A broker's process ended by itself: the message is what it printed last."""


class PoweredCluster:
    """A new cluster below `folder`. `forgets`: what its brokers never sync, as `zygote` says."""

    def __init__(self, folder: Path, rules: Rules, settings: Mapping[str, object], forgets: str = "") -> None:
        self.folder = folder
        self.metadata_root = str(folder / METADATA)
        self.disks = Disks(rules)
        self._settings = settings
        self._pids: dict[int, int] = {}
        self._output_begin: dict[int, int] = {}
        self._zygote = subprocess.Popen(
            [sys.executable, "-m", "tests.lab.real.power.zygote", *([forgets] if forgets else [])],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=PROJECT, start_new_session=True,
            env={**os.environ, "PYTHONPATH": str(PROJECT), "PYTHONUNBUFFERED": "1"},
        )  # fmt: skip

    @property
    def running(self) -> list[int]:
        return sorted(self._pids)

    def root(self, broker_id: int) -> Path:
        return self.folder / f"broker-{broker_id}"

    def __enter__(self) -> Self:
        try:
            for name in (METADATA, *(f"broker-{i}" for i in BROKERS)):
                self.disks.mount(name, self.folder / name)
            for broker_id in BROKERS:
                self.start([broker_id])
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._zygote.stdin is not None
        self._zygote.stdin.close()
        self._zygote.wait(60)
        self.disks.__exit__(kind, error, traceback)

    def start(self, broker_ids: Iterable[int], *, is_awaited: bool = True) -> None:
        """Start processes; by default until all are part of the cluster. BrokerEndedError."""
        ids = list(broker_ids)
        for broker_id in ids:
            output = self._output(broker_id)
            output.touch()
            self._output_begin[broker_id] = output.stat().st_size
            own = {
                "broker.id": broker_id, "log.dirs": self.root(broker_id), "stratalog.metadata.root": self.metadata_root,
                "log.dir": self.folder / "logs" / str(broker_id),
            }  # fmt: skip
            overrides = [f"--override={name}={value}" for name, value in {**own, **self._settings}.items()]
            pid = self._tell(do="start", arguments=["--fetcher", "thread", *overrides], output=str(output))
            self._pids[broker_id] = int(str(pid))
        if is_awaited:
            for broker_id in ids:
                wait_until(lambda i=broker_id: self._has_started(i), f"broker {broker_id} starts", START_WAIT_S)

    def kill(self, broker_ids: Iterable[int]) -> None:
        """SIGKILL to all of them at once; returns when they are gone."""
        self._tell(do="kill", pids=[self._pids.pop(i) for i in broker_ids if i in self._pids])

    def cut(self, names: Iterable[str], seed: int) -> dict[str, CutResult]:
        """Cut the power of disks, whose brokers were killed."""
        return {name: self.disks.cut(name, seed) for name in names}

    def check_alive(self) -> None:
        """BrokerEndedError when a broker ended by itself."""
        ended = self._tell(do="poll")
        assert isinstance(ended, list)
        for broker_id in [i for i, pid in self._pids.items() if pid in ended]:
            del self._pids[broker_id]
            raise BrokerEndedError(f"broker {broker_id} ended:\n{self.output(broker_id)[-3_000:]}")

    def output(self, broker_id: int) -> str:
        """The text that the newest process of the broker printed."""
        with self._output(broker_id).open("rb") as file:
            file.seek(self._output_begin[broker_id])
            return file.read().decode(errors="replace")

    def keep(self, folder: Path) -> None:
        """Copy the disks' present content and the logs, for a look afterwards."""
        for name in (METADATA, *(f"broker-{i}" for i in BROKERS)):
            self.disks.dump(name, folder / name)
        shutil.copytree(self.folder / "logs", folder / "logs", dirs_exist_ok=True)
        for broker_id in BROKERS:
            shutil.copy(self._output(broker_id), folder)

    def _output(self, broker_id: int) -> Path:
        return self.folder / f"broker-{broker_id}.out"

    def _has_started(self, broker_id: int) -> bool:
        if STARTED in self.output(broker_id):
            return True
        self.check_alive()
        return False

    def _tell(self, **command: object) -> object:
        assert self._zygote.stdin is not None
        assert self._zygote.stdout is not None
        self._zygote.stdin.write(json.dumps(command).encode() + b"\n")
        self._zygote.stdin.flush()
        line = self._zygote.stdout.readline()
        if not line:
            raise OSError("the process that brokers are forked from ended")
        return json.loads(line)
