"""Clients in JavaScript behind the face that those in Python have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from tests.lab.foreign.node.process import NodeObject, NodeProcess, version_of
from tests.lab.foreign.python.clients import HEADERS, PythonClient, Reader, Seen, TopicPartition, Writer

POLL_MS = 100


class NodeClient(PythonClient):
    """One client library.

    program  the one that calls it
    sends    how its producer sends a topic's batches
    """

    program: ClassVar[str]
    sends: ClassVar[str]

    def __init__(self) -> None:
        self._process: NodeProcess | None = None

    def process(self) -> NodeProcess:
        """The one of this client, started again when it ended."""
        if self._process is None or not self._process.is_running:
            self._process = NodeProcess(self.program)
        return self._process

    def close(self) -> None:
        if self._process is not None:
            self._process.close()
            self._process = None

    def writer(self, bootstrap: str, settings: Mapping[str, Any]) -> Writer:
        return NodeWriter(self._open("Writer", bootstrap, settings))

    def reader(self, bootstrap: str, settings: Mapping[str, Any]) -> Reader:
        return NodeReader(self._open("Reader", bootstrap, settings))

    def admin(self, bootstrap: str, settings: Mapping[str, Any] | None = None) -> NodeAdmin:
        return NodeAdmin(self._open("Admin", bootstrap, settings or {}))

    def _open(self, kind: str, bootstrap: str, settings: Mapping[str, Any]) -> NodeObject:
        return self.process().open(kind, {"bootstrap.servers": bootstrap, **settings})


class KafkaJs(NodeClient):
    name, program = "KafkaJS", "kafkajs.mjs"
    sends = "batch after batch"
    fenced = r"old epoch|(?i:fenced)"
    assignors: ClassVar = {"round robin": "RoundRobinAssigner"}

    @property
    def version(self) -> str:
        codecs = (f"{name} {version_of(name)}" for name in ("kafkajs-snappy", "@2l/kafkajs-lz4"))
        return f"{version_of('kafkajs')}, {', '.join(codecs)}, Node.js {version_of('node')}"


class Platformatic(NodeClient):
    name, program = "@platformatic/kafka", "platformatic.mjs"
    sends = "batches side by side"
    fenced = r"INVALID_PRODUCER_EPOCH|(?i:fenced)"
    assignors: ClassVar = {"round robin": "roundrobin", "cooperative-sticky": "cooperative-sticky"}

    @property
    def version(self) -> str:
        return f"{version_of('@platformatic/kafka')}, Node.js {version_of('node')}"


class NodeWriter(Writer):
    """Records are sent at a flush, in batches."""

    def __init__(self, made: NodeObject) -> None:
        self.object = made
        self._records: dict[str, list[dict[str, Any]]] = {}
        made.call("connect")

    def send(self, topic: str, value: bytes, partition: int, key: bytes | None = None, timestamp_ms: int = 0) -> None:
        self.send_record(topic, partition, key, value, timestamp_ms, HEADERS)

    def send_record(
        self, topic: str, partition: int, key: bytes | None, value: bytes | None, timestamp_ms: int = 0,
        headers: Iterable[tuple[str, bytes]] = (),
    ) -> None:  # fmt: skip
        record = {"partition": partition, "key": key, "value": value, "timestamp": timestamp_ms, "headers": [*headers]}
        self._records.setdefault(topic, []).append(record)

    def flush(self) -> None:
        self._send()
        self.object.call("flush")

    def _send(self) -> None:
        records, self._records = self._records, {}
        for topic, found in records.items():
            self.object.call("send", topic, found)

    def init_transactions(self) -> None:
        self.object.call("initTransactions")

    def begin(self) -> None:
        self.object.call("begin")

    def send_offsets(self, offsets: Mapping[TopicPartition, int], reader: Reader, group: str) -> None:
        assert isinstance(reader, NodeReader)
        (topic,) = {topic for topic, _ in offsets}
        found = [[partition, offset] for (_, partition), offset in offsets.items()]
        self.object.call("sendOffsets", topic, found, reader.object, group)

    def commit(self) -> None:
        self._send()
        self.object.call("commit")

    def abort(self) -> None:
        self.object.call("abort")

    def close(self) -> None:
        self.object.call("close")


class NodeReader(Reader):
    def __init__(self, made: NodeObject) -> None:
        self.object = made

    @property
    def revoked(self) -> list[set[TopicPartition]]:  # type: ignore[override]
        return [{tuple(each) for each in found} for found in self.object.call("revoked")]

    def assign(self, partitions: Iterable[TopicPartition], offset: int = 0) -> None:
        found = list(partitions)
        self.object.call("assign", found[0][0], [number for _, number in found], offset)

    def subscribe(self, topic: str) -> None:
        self.object.call("subscribe", topic)

    def poll(self) -> list[Seen]:
        return [
            Seen(
                each["topic"], each["partition"], each["offset"], each["key"], each["value"],
                tuple((name, value) for name, value in each["headers"]), each["timestamp"],
            )
            for each in self.object.call("poll", POLL_MS)
        ]  # fmt: skip

    def assignment(self) -> set[TopicPartition]:
        return {tuple(each) for each in self.object.call("assignment")}

    def commit(self) -> None:
        self.object.call("commit")

    def committed(self, partition: TopicPartition) -> int | None:
        found = self.object.call("committed", *partition)
        return found if found >= 0 else None

    def seek(self, partition: TopicPartition, offset: int) -> None:
        self.object.call("seek", *partition, offset)

    def ends(self, partition: TopicPartition) -> tuple[int, int]:
        return tuple(self.object.call("ends", *partition))

    def offset_at(self, partition: TopicPartition, timestamp_ms: int) -> int:
        return self.object.call("offsetAt", *partition, timestamp_ms)

    def close(self) -> None:
        self.object.call("close")


class NodeAdmin:
    """An admin client, whose methods have the names that they have in JavaScript. In a `with` block."""

    def __init__(self, made: NodeObject) -> None:
        self._object = made
        made.call("connect")

    def call(self, method: str, *args: Any) -> Any:
        return self._object.call("call", method, *args)

    def __enter__(self) -> NodeAdmin:
        return self

    def __exit__(self, *_exception: object) -> None:
        self._object.call("close")
