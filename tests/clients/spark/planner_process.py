"""The process in which Spark plans one streaming query, driven over its socket as Spark's JVM drives it.

I/O: a process and a Unix socket. It costs no JVM, and ends as the test wants: hung up on, terminated, or both.
"""

from __future__ import annotations

import dataclasses
import json
import os
import pickle
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from pyspark.serializers import CPickleSerializer, read_int, write_int, write_with_length
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows
from pyspark.sql.streaming.python_streaming_source_runner import (
    INITIAL_OFFSET_FUNC_ID,
    LATEST_OFFSET_ADMISSION_CONTROL_FUNC_ID,
    PARTITIONS_FUNC_ID,
)

from stratalog.clients.spark.source.source import StratalogDataSource
from stratalog.replication.fast_start.planners import PLANNER

WAIT_S = 60
ROWS_MAX = 1_000
UNLIMITED = ReadMaxRows(2**63 - 1)


class PlannerError(Exception):
    """What the planner answered instead of a value."""


class PlannerProcess:
    """A planner, started by `python`, which may be a launcher of `fast_start.planners`."""

    def __init__(self, folder: Path, options: Mapping[str, object], python: str = sys.executable) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.local = folder / "local"
        self.local.mkdir()
        address = folder / "spark"
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(address))
            listener.listen()
            listener.settimeout(WAIT_S)
            environment = {
                **os.environ,
                "PYTHON_WORKER_FACTORY_SOCK_PATH": str(address),
                "SPARK_LOCAL_DIRS": str(self.local),
            }
            with (folder / "output").open("ab") as output:
                self.process = subprocess.Popen(
                    [python, "-m", PLANNER], env=environment, stdin=subprocess.PIPE, stdout=output, stderr=output
                )
            self._socket, _ = listener.accept()
        self._socket.settimeout(WAIT_S)
        self._stream: IO[bytes] = self._socket.makefile("rwb")
        read_int(self._stream)  # the process's id
        self._introduce(folder, StratalogDataSource(CaseInsensitiveDict({k: str(v) for k, v in options.items()})))

    def _introduce(self, folder: Path, source: StratalogDataSource) -> None:
        for text in ("{}.{}".format(*sys.version_info), str(folder)):
            write_with_length(text.encode(), self._stream)
        write_int(0, self._stream)  # files of --py-files
        CPickleSerializer()._write_with_length(source, self._stream)
        write_with_length(source.schema().json().encode(), self._stream)
        write_int(ROWS_MAX, self._stream)
        self._stream.flush()
        status = read_int(self._stream)
        if status != 0:
            raise PlannerError(self._text(read_int(self._stream)))

    def initial_offset(self) -> dict[str, Any]:
        return self._called(INITIAL_OFFSET_FUNC_ID)

    def latest_offset(self, start: Mapping[str, Any], limit: ReadLimit = UNLIMITED) -> dict[str, Any]:
        return self._called(
            LATEST_OFFSET_ADMISSION_CONTROL_FUNC_ID,
            start,
            {**dataclasses.asdict(limit), "_type": type(limit).__name__},  # type: ignore[call-overload]
        )

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[Any]:
        """What the tasks of a batch receive."""
        count = self._asked(PARTITIONS_FUNC_ID, start, end)
        found = [pickle.loads(self._stream.read(read_int(self._stream))) for _ in range(count)]
        read_int(self._stream)  # no records come with them
        return found

    def _called(self, function: int, *arguments: Mapping[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self._text(self._asked(function, *arguments)))
        return found

    def _asked(self, function: int, *arguments: Mapping[str, Any]) -> int:
        """The number that an answer begins with: a length, or a count."""
        write_int(function, self._stream)
        for each in arguments:
            write_with_length(json.dumps(each).encode(), self._stream)
        self._stream.flush()
        number = read_int(self._stream)
        if number < 0:
            raise PlannerError(self._text(read_int(self._stream)))
        return number

    def _text(self, length: int) -> str:
        return self._stream.read(length).decode()

    def hang_up(self) -> None:
        """As Spark's JVM does where it dies."""
        self._socket.shutdown(socket.SHUT_RDWR)

    def end(self) -> None:
        """As Spark ends a planner: SIGTERM, then it hangs up."""
        self.process.terminate()
        self.hang_up()
        self.process.wait(WAIT_S)

    def close(self) -> None:
        """Whatever the test did before."""
        self.process.kill()
        self.process.wait()
        self._stream.close()
        self._socket.close()
        assert self.process.stdin is not None
        self.process.stdin.close()
