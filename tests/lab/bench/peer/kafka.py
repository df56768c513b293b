"""Three combined KRaft nodes of Apache Kafka on loopback, and Kafka's own tools.

I/O: Maven, Java, free ports, one folder. Signals go only to processes that this object started. Settings are
Kafka's defaults except for the ports, three replicas, `min.insync.replicas=2`, and 1 GiB of heap each.
"""

from __future__ import annotations

import base64
import os
import shutil
import socket
import subprocess
import uuid
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

HERE = Path(__file__).parent
LIBS, SPARK_LIBS = HERE / "libs", HERE / "spark-libs"
LAST_JARS = ("kafka_2.13", "kafka-streams", "connect-file")
LAST_SPARK_JARS = ("spark-sql-kafka", "spark-avro")
NODES = (1, 2, 3)
HEAP = ("-Xms1g", "-Xmx1g")
JAVA_OPTIONS = ("-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35")
READY_TRIES = 40
STOP_WAIT_S = 30
TOOL_WAIT_S = 600


class PeerError(Exception):
    """Maven or Java is missing, or Kafka reported an error."""


def fetch_jars() -> None:
    """Fill libs/ and spark-libs/ once. PeerError with what is missing."""
    for program, package in (("java", "a JDK, 17 or newer"), ("mvn", "Apache Maven")):
        if shutil.which(program) is None:
            raise PeerError(f"the peer needs {package}: `{program}` was not found (on Debian: default-jdk, maven)")
    wanted = [(LIBS, name) for name in LAST_JARS] + [(SPARK_LIBS, name) for name in LAST_SPARK_JARS]
    if all(any(folder.glob(f"{name}[-_]*.jar")) for folder, name in wanted):
        return
    done = subprocess.run(
        ["mvn", "-B", "-ntp", "-q", "-f", str(HERE / "pom.xml"), "package"], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise PeerError(f"Maven could not fetch the peer (pom.xml in {HERE.name}):\n{done.stdout[-2000:]}")


def version() -> str:
    """Kafka's version, from the name of its jar."""
    return next(LIBS.glob("kafka_2.13-*.jar")).stem.removeprefix("kafka_2.13-")


def spark_jars() -> str:
    """The connector's jars as Spark's setting `spark.jars`."""
    return ",".join(sorted(str(jar) for jar in SPARK_LIBS.glob("*.jar")))


def run_tool(main: str, *arguments: object, wait_s: float = TOOL_WAIT_S) -> str:
    """Run a main class of Kafka's, or a single-file Java program; the printed text. PeerError when it failed."""
    process = _spawn_tool(main, *arguments)
    try:
        output, _ = process.communicate(timeout=wait_s)
    finally:
        if process.poll() is None:
            process.kill()
    if process.returncode:
        raise PeerError(f"{main} ended with {process.returncode}:\n{output[-3000:]}")
    return output


def _spawn_tool(main: str, *arguments: object, options: Sequence[str] = ()) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [
            "java", "-Xmx1g", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-Djava.awt.headless=true",
            f"-Dlog4j2.configurationFile={HERE / 'log4j2-tools.xml'}", *options,
            "-cp", f"{LIBS}/*", main, *map(str, arguments),
        ],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


@dataclass(slots=True)
class Kafka:
    """A running peer; use `Kafka.start`, then `stop` (or a `with` block)."""

    folder: Path
    ports: tuple[int, ...]
    heap: Sequence[str] = HEAP
    settings: Mapping[str, object] = field(default_factory=dict)
    nodes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @classmethod
    def start(cls, folder: Path, *, heap: Sequence[str] = HEAP, settings: Mapping[str, object] | None = None) -> Self:
        """Format and start three nodes below `folder`. PeerError when they do not come up.

        settings  over those of `node_settings`
        """
        fetch_jars()
        ports = free_ports(2 * len(NODES))
        peer = cls(folder, ports[: len(NODES)], heap, settings or {})
        try:
            peer._start(ports[len(NODES) :])
        except BaseException:
            peer.stop()
            raise
        return peer

    @property
    def bootstrap(self) -> str:
        """`bootstrap.servers` of its clients."""
        return ",".join(f"127.0.0.1:{port}" for port in self.ports)

    @property
    def pids(self) -> list[int]:
        """Of its brokers."""
        return [node.pid for node in self.nodes]

    def _start(self, controller_ports: Sequence[int]) -> None:
        voters = ",".join(f"{n}@127.0.0.1:{port}" for n, port in zip(NODES, controller_ports, strict=True))
        cluster_id = base64.urlsafe_b64encode(b"\0" + uuid.uuid4().bytes[1:]).decode().rstrip("=")
        for node, port, controller_port in zip(NODES, self.ports, controller_ports, strict=True):
            settings = {**node_settings(node, port, controller_port, voters, self.data(node)), **self.settings}
            file = self.folder / f"node-{node}.properties"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()), encoding="utf-8")
        main = "kafka.tools.StorageTool"
        formats = [_spawn_tool(main, "format", "-t", cluster_id, "-c", self._file(node)) for node in NODES]
        for each in formats:
            output, _ = each.communicate(timeout=TOOL_WAIT_S)
            if each.returncode:
                raise PeerError(f"Kafka could not format its storage:\n{output[-2000:]}")
        self.nodes = [self._spawn_node(node) for node in NODES]
        self._wait_until_up()

    def _file(self, node: int) -> str:
        return str(self.folder / f"node-{node}.properties")

    def data(self, node: int) -> Path:
        """The node's folder of partition folders."""
        return self.folder / f"data-{node}"

    def _spawn_node(self, node: int) -> subprocess.Popen[bytes]:
        logs = self.folder / f"logs-{node}"
        logs.mkdir(parents=True, exist_ok=True)
        with ExitStack() as files:
            output = files.enter_context((logs / "out.log").open("wb"))
            return subprocess.Popen(
                [
                    "java", *self.heap, *JAVA_OPTIONS, f"-Dkafka.logs.dir={logs}",
                    f"-Dlog4j2.configurationFile={HERE / 'log4j2-broker.xml'}", "-Djava.awt.headless=true",
                    "-cp", f"{LIBS}/*", "kafka.Kafka", self._file(node),
                ],
                stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip

    def _wait_until_up(self) -> None:
        """Return when all three brokers are unfenced and have answered."""
        for _ in range(READY_TRIES):
            for node, process in zip(NODES, self.nodes, strict=True):
                if process.poll() is not None:
                    end = (self.folder / f"logs-{node}" / "out.log").read_text(errors="replace")[-2000:]
                    raise PeerError(f"Kafka's node {node} ended with {process.returncode}:\n{end}")
            main = "org.apache.kafka.tools.BrokerApiVersionsCommand"
            answer = _spawn_tool(main, "--bootstrap-server", self.bootstrap)
            text, _ = answer.communicate(timeout=TOOL_WAIT_S)
            if text.count("isFenced: false) -> (") == len(NODES):
                return
        raise PeerError(f"Kafka was not ready after {READY_TRIES} checks")

    def tool(self, main: str, *arguments: object) -> str:
        """As `run_tool`."""
        return run_tool(main, *arguments)

    def program(self, name: str, *arguments: object) -> str:
        """Run one of the Java programs beside this file; the printed text."""
        return self.tool(str(HERE / f"{name}.java"), *arguments)

    def create_topic(self, name: str, partitions: int = 6, configs: Mapping[str, str] | None = None) -> None:
        """Three replicas, `min.insync.replicas=2`."""
        given = [word for pair in (configs or {}).items() for word in ("--config", "=".join(pair))]
        self.tool(
            "org.apache.kafka.tools.TopicCommand", "--bootstrap-server", self.bootstrap, "--create", "--topic", name,
            "--partitions", partitions, "--replication-factor", len(NODES), *given,
        )  # fmt: skip

    def delete_topics(self, pattern: str) -> None:
        """Delete the topics whose names the regular expression matches."""
        main = "org.apache.kafka.tools.TopicCommand"
        self.tool(main, "--bootstrap-server", self.bootstrap, "--delete", "--if-exists", "--topic", pattern)

    def stop(self) -> None:
        """Stop all nodes with SIGTERM; the last one, which has no quorum any more, is killed after a while."""
        for node in self.nodes:
            if node.poll() is None:
                node.terminate()
        for node in self.nodes:
            try:
                node.wait(STOP_WAIT_S)
            except subprocess.TimeoutExpired:
                node.kill()
                node.wait()
        self.nodes = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()


def node_settings(node: int, port: int, controller_port: int, voters: str, data: Path) -> dict[str, object]:
    """The node's server.properties."""
    listener = f"PLAINTEXT://127.0.0.1:{port}"
    internal = {
        f"{topic}.{name}": value
        for topic in ("offsets.topic", "transaction.state.log", "share.coordinator.state.topic")
        for name, value in (("replication.factor", len(NODES)), ("num.partitions", 6))
    }
    return {
        "process.roles": "broker,controller",
        "node.id": node,
        "controller.quorum.voters": voters,
        "listeners": f"{listener},CONTROLLER://127.0.0.1:{controller_port}",
        "advertised.listeners": listener,
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": data,
        "min.insync.replicas": 2,
        "transaction.state.log.min.isr": 2,
        "share.coordinator.state.topic.min.isr": 2,
        "group.initial.rebalance.delay.ms": 0,
        "auto.create.topics.enable": "false",
        **internal,
    }


def free_ports(count: int) -> tuple[int, ...]:
    """Ports of loopback that were free at the time of the call."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return tuple(each.getsockname()[1] for each in sockets)


def java_version() -> str:
    """The first line of `java -version`."""
    done = subprocess.run(["java", "-version"], capture_output=True, text=True, check=True, env=dict(os.environ))
    return done.stderr.splitlines()[0].strip()
