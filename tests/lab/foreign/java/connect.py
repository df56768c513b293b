"""Kafka Connect, distributed: two workers, a file as source and one as sink; the source's worker is killed at work."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import confluent_kafka

from tests.lab.foreign.checks import fresh
from tests.lab.foreign.java.programs import SIGTERM_CODE, Programs
from tests.lab.foreign.python.records import topic_of
from tests.lab.foreign.served import HOST, Served, free_ports
from tests.lab.real.harness.broker_processes import ServerProcess
from tests.waiting import wait_until

MAIN = "org.apache.kafka.connect.cli.ConnectDistributed"
WORKERS = ("first", "second")
SOURCE, SINK = "source", "sink"
PORTION, LINES_PER_TRANSACTION = 1_000, 20
LINE = 1_023
"""Bytes of a line: with its end it fills the buffer of FileStreamSource, which else may keep lines for itself.

It reads into what is free of the buffer, returns when it has `batch.size` lines, and looks at lines that are left in
the buffer only after it read more from the file.
"""
WAIT_S, ANSWER_S, PAUSE_S = 120, 30, 0.3
STRINGS = "org.apache.kafka.connect.storage.StringConverter"
WORKER = {
    "exactly.once.source.support": "enabled",
    "consumer.isolation.level": "read_committed",
    "key.converter": STRINGS,
    "value.converter": STRINGS,
    "offset.storage.replication.factor": 3,
    "config.storage.replication.factor": 3,
    "status.storage.replication.factor": 3,
    "offset.storage.partitions": 3,
    "status.storage.partitions": 3,
    "offset.flush.interval.ms": 500,
    "session.timeout.ms": 6_000,
    "heartbeat.interval.ms": 500,
    "scheduled.rebalance.max.delay.ms": 1_000,
    "plugin.discovery": "service_load",
}
"""A killed worker is missed early, and its tasks are given to the other one after a second."""


class Workers:
    """The two workers of a Connect cluster, by name."""

    def __init__(self, served: Served, programs: Programs) -> None:
        group = fresh("connect")
        ports = free_ports(len(WORKERS))
        self._address = {name: f"{HOST}:{port}" for name, port in zip(WORKERS, ports, strict=True)}
        self.process: dict[str, ServerProcess] = {}
        for name, address in self._address.items():
            settings = {
                **WORKER,
                "bootstrap.servers": served.bootstrap,
                "group.id": group,
                "listeners": f"http://{address}",
                **{f"{what}.storage.topic": f"{group}-{what}" for what in ("offset", "config", "status")},
            }
            file = programs.folder / f"{name}.properties"
            file.write_text("".join(f"{key}={setting}\n" for key, setting in settings.items()))
            self.process[name] = programs.start(name, MAIN, str(file))

    def ask(self, worker: str, method: str, path: str, body: object = None) -> Any:
        """The answer of a worker's REST interface; None while it refuses or does not listen."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://{self._address[worker]}{path}", data, method=method)
        request.add_header("Content-Type", "application/json")
        try:
            with urllib.request.urlopen(request, timeout=ANSWER_S) as answer:
                return json.load(answer)
        except (OSError, urllib.error.HTTPError):
            return None

    def make(self, name: str, configs: dict[str, object]) -> None:
        """A connector with one task."""
        path, body = f"/connectors/{name}/config", {"tasks.max": 1, **configs}
        wait_until(lambda: self.ask(WORKERS[0], "PUT", path, body), f"connector {name}", WAIT_S, PAUSE_S)

    def of_task(self, connector: str, asked: str = WORKERS[0]) -> str | None:
        """The worker where the connector's task runs; None while it does not run."""
        status = self.ask(asked, "GET", f"/connectors/{connector}/status")
        for task in (status or {}).get("tasks", ()):
            if task["state"] == "RUNNING":
                return next(name for name, address in self._address.items() if address == task["worker_id"])
        return None


class Topic:
    """What read_committed shows of a topic with one partition, in its order."""

    def __init__(self, served: Served, name: str) -> None:
        own = {"group.id": fresh("reader"), "isolation.level": "read_committed", "log_level": 2}
        self._consumer = confluent_kafka.Consumer({"bootstrap.servers": served.bootstrap, **own})
        self._consumer.assign([confluent_kafka.TopicPartition(name, 0, 0)])
        self.lines: list[str] = []

    def poll(self, for_s: float = 0.05) -> int:
        """Read what comes; how many lines came so far."""
        for message in self._consumer.consume(10 * PORTION, for_s):
            assert message.error() is None, message.error()
            self.lines.append(message.value().decode())
        return len(self.lines)

    def await_lines(self, count: int) -> None:
        wait_until(lambda: self.poll() >= count, f"{count} lines in the topic", WAIT_S)

    def close(self) -> None:
        self._consumer.close()


@contextmanager
def opened(served: Served, name: str) -> Iterator[Topic]:
    topic = Topic(served, name)
    try:
        yield topic
    finally:
        topic.close()


def append(file: Path, lines: list[str]) -> None:
    with file.open("a") as opened_file:
        opened_file.writelines(f"{line}\n" for line in lines)


def files(served: Served) -> None:
    """Each line of the source's file is once in the topic and once in the sink's file, in order."""
    name = topic_of(served, 1)
    lines = [f"line {number} ".ljust(LINE, ".") for number in range(3 * PORTION)]
    portions = [lines[begin : begin + PORTION] for begin in range(0, len(lines), PORTION)]
    with Programs() as programs, opened(served, name) as topic:
        source, sink = programs.folder / "source.txt", programs.folder / "sink.txt"
        append(source, portions[0])
        workers = Workers(served, programs)
        wait_until(lambda: workers.ask(WORKERS[1], "GET", "/connectors") is not None, "the workers", WAIT_S, PAUSE_S)
        reading = {"file": source, "topic": name, "batch.size": LINES_PER_TRANSACTION}
        workers.make(SOURCE, {"connector.class": "FileStreamSource", **{key: str(reading[key]) for key in reading}})
        workers.make(SINK, {"connector.class": "FileStreamSink", "file": str(sink), "topics": name})
        wait_until(lambda: apart(workers), "the two tasks at one worker each", WAIT_S, PAUSE_S)
        topic.await_lines(PORTION)
        killed = workers.of_task(SOURCE)
        assert killed is not None
        append(source, portions[1])
        topic.await_lines(PORTION + 1)
        workers.process[killed].kill()
        assert topic.poll(for_s=2) < 2 * PORTION, "nothing was left to do when the worker was killed"
        append(source, portions[2])
        topic.await_lines(len(lines))
        wait_until(lambda: sink.read_text().count("\n") >= len(lines), "all lines in the sink's file", WAIT_S)
        (survivor,) = (name for name in WORKERS if name != killed)
        wait_until(lambda: workers.of_task(SOURCE, survivor) == survivor, "the task's status", WAIT_S, PAUSE_S)
        assert workers.process[survivor].stop() in (0, SIGTERM_CODE)
        topic.poll()
        assert topic.lines == lines, first_difference(topic.lines, lines)
        written = sink.read_text().splitlines()
        assert written == lines, first_difference(written, lines)


def apart(workers: Workers) -> bool:
    """The tasks of source and sink run at different workers."""
    return {workers.of_task(SOURCE), workers.of_task(SINK)} == set(WORKERS)


def first_difference(found: list[str], expected: list[str]) -> str:
    place = next((i for i, pair in enumerate(zip(found, expected, strict=False)) if pair[0] != pair[1]), -1)
    return f"{len(found)} lines, {len(expected)} expected; {len(set(found))} distinct; the first other one at {place}"


CHECKS = {
    "distributed, exactly.once.source.support=enabled: file source and sink, the source's worker of two is killed; "
    "each line is once in the topic and in the sink's file": files,
}
