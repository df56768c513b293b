"""Postgres and Kafka Connect with Debezium, in processes of their own on this machine. I/O: processes, HTTP.

Postgres does not run as root: as root it runs as the user `postgres`, which Debian's package makes.
"""

from __future__ import annotations

import json
import os
import pwd
import shutil
import subprocess
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.lab.real.harness.broker_processes import ServerProcess
from tests.waiting import wait_until

HERE = Path(__file__).resolve().parent
LIBS = HERE / "libs"
HOST, USER, DATABASE = "127.0.0.1", "postgres", "postgres"
WORKER = "org.apache.kafka.connect.cli.ConnectDistributed"
START_S = 600


class MissingProgramError(Exception):
    """What this machine lacks for a run."""


def postgres_folder() -> Path:
    """Where Postgres' programs are. MissingProgramError."""
    found = [Path("/usr/lib/postgresql")] if Path("/usr/lib/postgresql").is_dir() else []
    versions = sorted((each for folder in found for each in folder.iterdir()), key=lambda each: int(each.name))
    folders = [each / "bin" for each in reversed(versions)]
    if (there := shutil.which("initdb")) is not None:
        folders.append(Path(there).parent)
    for each in folders:
        if (each / "initdb").exists():
            return each
    raise MissingProgramError("Postgres was not found: on Debian, as root: apt-get install postgresql")


def fetch_jars() -> None:
    """Fill libs/ once. MissingProgramError with what is missing."""
    for program, package in (("java", "a JDK, 17 or newer"), ("mvn", "Apache Maven")):
        if shutil.which(program) is None:
            raise MissingProgramError(f"{program} was not found, which is of {package} (on Debian: default-jdk, maven)")
    if any(LIBS.glob("debezium-connector-postgres-*.jar")) and any(LIBS.glob("connect-runtime-*.jar")):
        return
    command = ["mvn", "-B", "-ntp", "-q", "-f", str(HERE / "pom.xml"), "package"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise MissingProgramError(f"Maven could not fetch Connect and Debezium:\n{done.stdout[-2000:]}")


class Postgres:
    """A server with logical replication, in a folder of its own."""

    def __init__(self, folder: Path, port: int) -> None:
        self._folder, self.port = folder, port
        self._programs = postgres_folder()
        self._as: dict[str, Any] = {}
        if os.geteuid() == 0:
            try:
                user = pwd.getpwnam(USER)
            except KeyError:
                raise MissingProgramError(f"Postgres does not run as root, and there is no user {USER}") from None
            self._as = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}

    def __enter__(self) -> Self:
        self._folder.mkdir()
        if self._as:
            os.chown(self._folder, self._as["user"], self._as["group"])
        data = str(self._folder / "data")
        self._run("initdb", "-D", data, "-U", USER, "-A", "trust", "-E", "UTF8")
        settings = f"-p {self.port} -h {HOST} -k {self._folder} -c wal_level=logical -c fsync=off"
        log = str(self._folder / "log")
        self._run("pg_ctl", "-D", data, "-w", "-t", str(START_S), "-l", log, "-o", settings, "start")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._run("pg_ctl", "-D", str(self._folder / "data"), "-m", "immediate", "stop")

    def _run(self, program: str, *arguments: str) -> None:
        """Without pipes: the server keeps those of the program that starts it."""
        with (self._folder / f"{program}.log").open("ab") as log:
            done = subprocess.run(
                [str(self._programs / program), *arguments], cwd=self._folder, stdin=subprocess.DEVNULL, stdout=log,
                stderr=log, check=False, **self._as,
            )  # fmt: skip
        if done.returncode:
            said = (self._folder / f"{program}.log").read_text(encoding="utf-8", errors="replace")
            raise MissingProgramError(f"{program} failed: {said[-1000:]}")

    def sql(self, text: str) -> list[list[str]]:
        """Run statements; the rows of what they select, as text."""
        command = [str(self._programs / "psql"), "-h", HOST, "-p", str(self.port), "-U", USER, "-d", DATABASE]
        command += ["-q", "-A", "-t", "-F", "\t", "-v", "ON_ERROR_STOP=1"]
        done = subprocess.run(command, input=text, capture_output=True, text=True, check=True)
        return [line.split("\t") for line in done.stdout.splitlines()]


class ConnectWorker:
    """A distributed worker with exactly-once sources; values are JSON without schemas."""

    def __init__(self, folder: Path, port: int, bootstrap: str) -> None:
        self._folder, self._url = folder, f"http://{HOST}:{port}"
        folder.mkdir()
        converters = {f"{part}.converter": "org.apache.kafka.connect.json.JsonConverter" for part in ("key", "value")}
        converters |= {f"{part}.converter.schemas.enable": "false" for part in ("key", "value")}
        topics = {f"{name}.storage.topic": f"connect-{name}" for name in ("config", "offset", "status")}
        topics |= {f"{name}.storage.replication.factor": "1" for name in ("config", "offset", "status")}
        settings = {
            "bootstrap.servers": bootstrap, "group.id": "connect", "listeners": self._url, **converters, **topics,
            "offset.storage.partitions": "1", "status.storage.partitions": "1", "offset.flush.interval.ms": "1000",
            "exactly.once.source.support": "enabled", "plugin.discovery": "only_scan",
        }  # fmt: skip
        self._file = folder / "worker.properties"
        self._file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()), encoding="utf-8")
        command = ["java", "-Xmx512m", "-cp", f"{LIBS}/*", WORKER, str(self._file)]
        self._process = ServerProcess("Connect", command, folder / "log")

    def start(self) -> None:
        """Start the process and wait until it answers."""
        self._process.start()
        wait_until(lambda: self._asked("GET", "/connectors") is not None, "a Connect worker", timeout_s=START_S)

    def kill(self) -> None:
        """kill -9."""
        if self._process.is_running:
            self._process.kill()

    def create(self, name: str, config: Mapping[str, str]) -> None:
        """Create a connector, again while the worker's group forms."""
        body = {"name": name, "config": dict(config)}
        wait_until(lambda: self._asked("POST", "/connectors", body) is not None, f"connector {name}", timeout_s=START_S)

    def states(self) -> Sequence[str]:
        """The state of each connector's task."""
        found = self._asked("GET", "/connectors?expand=status") or {}
        return [task["state"] for each in found.values() for task in each["status"]["tasks"]]

    def _asked(self, method: str, path: str, body: object = None) -> Any:
        """The answer; None for none, and for a refusal while the worker starts."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._url + path, data, {"Content-Type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as refused:
            return {} if refused.code == 409 and b"already exists" in refused.read() else None
        except OSError:
            return None
