"""Runs a script against a cluster and records its answers. I/O: sockets.

An answer is a table by Kafka's names, `{"closed": true}` when the broker closed the connection, `{"silent": true}`
when it sent nothing.
"""

from __future__ import annotations

import re
import select
import socket
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from stratalog.storage.clock import RandomIds, SystemClock
from stratalog.wire.api_keys import ApiKey
from stratalog.wire.messages.frames import decode_response, encode_request
from stratalog.wire.messages.schema import known_versions
from tests.lab.differential import normal
from tests.lab.differential.messages import api_key, request_of, values_of
from tests.lab.differential.scripts import Run, Step, steps_of

ANSWER_S = 40
TRIES = 150
PAUSE_MS = 50
FLEXIBLE_HEAD = 23
"""The length of a flexible request's header with this client id."""
CLOSED = {"closed": True}
COME_AGAIN = {14, 15, 51}
"""Loading, not available, CONCURRENT_TRANSACTIONS: what a client tries again after."""
CHANGE_TOPICS = {"CreateTopics": "topics", "DeleteTopics": "responses", "CreatePartitions": "results"}
SILENT = {"silent": True}
_VARIABLE = re.compile(r"\$(\w+)")
KINDS = {"group": 0, "transaction": 1}


class Peer:
    """The brokers of a cluster behind sockets. In a `with` block."""

    def __init__(self, addresses: Mapping[int, tuple[str, int]]) -> None:
        self.addresses = addresses
        self._open: dict[tuple[int, str], socket.socket] = {}
        self.versions = self._versions()
        self._take_producer_ids()

    def _versions(self) -> dict[int, tuple[int, int]]:
        """The lowest and highest version by API, of those that kio knows."""
        found = {}
        for told in self.ask("ApiVersions", 0, {})["apiKeys"]:
            known = [v for v in known_versions(told["apiKey"]) if told["minVersion"] <= v <= told["maxVersion"]]
            if known:
                found[told["apiKey"]] = (min(known), max(known))
        return found

    def _take_producer_ids(self) -> None:
        """One of each broker: that of one is 0, as in an answer that says nothing of a producer."""
        version = self.versions[ApiKey.INIT_PRODUCER_ID][0]
        nobody = {"transactionalId": None, "transactionTimeoutMs": 60_000, "producerId": -1, "producerEpoch": -1}
        for broker in self.addresses:
            for _ in range(TRIES):
                if self.ask("InitProducerId", version, nobody, broker)["errorCode"] == 0:
                    break
                SystemClock().sleep_ms(PAUSE_MS)

    def ask(self, api: str, version: int, fields: Mapping[str, Any], broker: int = 1, on: str = "") -> Any:
        return self.send(api, version, fields, broker, on)()

    def send(
        self, api: str, version: int, fields: Mapping[str, Any], broker: int = 1, on: str = ""
    ) -> Callable[[], Any]:
        """Send a request; the call of the result returns the answer."""
        key = api_key(api)
        frame = encode_request(3, "differential", request_of(api, version, fields))
        return self.send_frame(frame, key, version, broker, on, is_silent=key == 0 and fields.get("acks") == 0)

    def send_frame(
        self, frame: bytes, key: int, version: int, broker: int = 1, on: str = "", *, is_silent: bool = False
    ) -> Callable[[], Any]:
        place = (broker, on)
        if place not in self._open:
            self._open[place] = socket.create_connection(self.addresses[broker], ANSWER_S)
        connection = self._open[place]
        connection.sendall(len(frame).to_bytes(4, "big") + frame)
        if is_silent:
            return lambda: SILENT

        def receive() -> Any:
            try:
                answer = _read(connection)
            except TimeoutError:
                self._open.pop(place).close()
                return SILENT
            if answer is None:
                self._open.pop(place).close()
                return CLOSED
            return values_of(decode_response(answer, key, version)[1])

        return receive

    def is_answered(self, on: str, wait_ms: int) -> bool:
        """Whether there is something to read on one of the connections of that name, within a while."""
        found = [each for (_, name), each in self._open.items() if name == on]
        return bool(select.select(found, [], [], wait_ms / 1_000)[0])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        for connection in self._open.values():
            connection.close()


def _read(connection: socket.socket) -> bytes | None:
    """The next frame; None when the connection was closed."""
    with suppress(ConnectionError):
        length = _read_bytes(connection, 4)
        if length is not None:
            return _read_bytes(connection, int.from_bytes(length, "big"))
    return None


def _read_bytes(connection: socket.socket, count: int) -> bytes | None:
    parts = b""
    while len(parts) < count:
        part = connection.recv(count - len(parts))
        if not part:
            return None
        parts += part
    return parts


class Dialogue:
    """One run of a script."""

    def __init__(self, peer: Peer, run: Run) -> None:
        self._peer = peer
        self._run = run
        self._clock = SystemClock()
        self._variables: dict[str, Any] = {"run": f"{run}-{RandomIds().new_id()[:8]}", "null": None}
        self._waiting: dict[str, tuple[Callable[[], Any], int]] = {}

    def answers(self, name: str) -> dict[str, Any]:
        """The normalised answers by step."""
        return {title: self.answer(step) for title, step in steps_of(name, self._run)}

    def answer(self, step: Step) -> Any:
        """The normalised answer to one step."""
        version, answer = self.told(step)
        return SILENT if step.send else self._recorded(step, version, answer)

    def told(self, step: Step) -> tuple[int, Any]:
        """The version of a step's request, and the answer as it is."""
        if step.receive:
            receive, version = self._waiting.pop(step.receive)
            return version, receive()
        versions = self._peer.versions[api_key(step.api)]
        version = step.version if step.version is not None else versions[0 if self._run == "low" else 1]
        fields = self.filled(step.fields)
        broker = self._broker(self.filled(step.to))
        if step.send:
            send = self._peer.send(step.api, version, fields, broker, step.send)
            self._waiting[step.send] = (send, version)
            return version, SILENT
        answer = self._ask(step, version, fields, broker)
        if step.api in CHANGE_TOPICS and answer != CLOSED and not fields.get("validateOnly"):
            self._settle(step, fields, answer[CHANGE_TOPICS[step.api]])
        return version, answer

    def is_answered(self, name: str, wait_ms: int) -> bool:
        """Whether the answer to what was sent as `name` has come, within a while."""
        return self._peer.is_answered(name, wait_ms)

    def name(self, variable: str, text: str) -> None:
        """Texts of answers have `$variable` instead of this text from now on."""
        self._variables[variable] = text

    def normal(self, answer: Any) -> Any:
        """The answer with variables instead of what each cluster has for itself."""
        return normal.normal(answer, self._variables)

    def pause(self) -> None:
        """Until the same is asked again."""
        self._clock.sleep_ms(PAUSE_MS)

    def _ask(self, step: Step, version: int, fields: Mapping[str, Any], broker: int) -> Any:
        def ask() -> Any:
            if step.body:
                key = api_key(step.api)
                head = encode_request(3, "differential", request_of(step.api, version, {}))
                frame = head[:FLEXIBLE_HEAD] + bytes.fromhex(step.body)
                return self._peer.send_frame(frame, key, version, broker, step.on)()
            return self._peer.ask(step.api, version, fields, broker, step.on)

        until = self.filled(list(step.until)) if step.until else None

        def is_final(answer: Any) -> bool:
            if answer in (SILENT, CLOSED):
                return True
            if until is not None:
                return any(normal.matches(until[0], p) and v == until[1] for p, v in normal.flat(answer))
            return step.once or not COME_AGAIN.intersection(codes_in(answer))

        return self._again(ask, is_final)

    def _again(self, ask: Callable[[], Any], is_final: Callable[[Any], bool]) -> Any:
        for _ in range(TRIES):
            answer = ask()
            if is_final(answer):
                break
            self.pause()
        return answer

    def _recorded(self, step: Step, version: int, answer: Any) -> Any:
        for name, path in step.save.items():
            self._variables[name] = normal.value_at(answer, self.filled(path))
        told = normal.normal(answer, self._variables, normal.named(self.filled(step.keep), self._variables))
        return {"version": version, **told}

    def filled(self, value: Any) -> Any:
        """The value with what its variables stand for."""
        if isinstance(value, dict):
            return {name: self.filled(each) for name, each in value.items()}
        if isinstance(value, list):
            return [self.filled(each) for each in value]
        if not isinstance(value, str):
            return value
        whole = _VARIABLE.fullmatch(value)
        if whole is not None:
            return self._variables[whole[1]]
        return _VARIABLE.sub(lambda found: str(self._variables[found[1]]), value)

    def _broker(self, to: int | str) -> int:
        if isinstance(to, int):
            return to
        is_other = to.startswith("not ")
        kind, key = to.removeprefix("not ").split(" ", 1)
        fields = {"key": key, "keyType": KINDS[kind]}

        def ask() -> Any:
            return self._peer.ask("FindCoordinator", 2, fields)

        found = self._again(ask, lambda answer: answer["errorCode"] == 0)
        assert found["errorCode"] == 0, f"no coordinator of {to}: {found}"
        coordinator = int(found["nodeId"])
        return coordinator % len(self._peer.addresses) + 1 if is_other else coordinator

    # -- until what was changed is known everywhere ------------------------------------------------------------

    def _settle(self, step: Step, fields: Mapping[str, Any], results: Iterable[Mapping[str, Any]]) -> None:
        names = [each["name"] for each in results if each["errorCode"] == 0 and each["name"]]
        counts = {each["name"]: each.get("count") for each in fields.get("topics", ()) if "name" in each}
        for name in names:
            if step.api == "DeleteTopics":
                self._await(lambda name=name: all(topic["errorCode"] == 3 for topic in self._topic(name)))
            else:
                self._await(lambda name=name: self._has_started(name, counts.get(name)))

    def _await(self, is_so: Callable[[], bool]) -> None:
        assert self._again(is_so, bool), "the cluster does not settle"

    def _topic(self, name: str) -> list[Any]:
        asked = {"topics": [{"name": name}], "allowAutoTopicCreation": False}
        return [self._peer.ask("Metadata", 9, asked, broker)["topics"][0] for broker in self._peer.addresses]

    def _has_started(self, name: str, count: int | None) -> bool:
        told = self._topic(name)
        first = told[0]
        if any(topic["errorCode"] or topic["partitions"] != first["partitions"] for topic in told):
            return False
        if count is not None and len(first["partitions"]) != count:
            return False
        return all(
            partition["errorCode"] == 0 and self._leads(name, partition["partitionIndex"], partition["leaderId"])
            for partition in first["partitions"]
        )

    def _leads(self, name: str, partition: int, leader: int) -> bool:
        partitions = [{"partitionIndex": partition, "timestamp": -1}]
        asked = {"replicaId": -1, "topics": [{"name": name, "partitions": partitions}]}
        answer = self._peer.ask("ListOffsets", 4, asked, leader)
        return not any(codes_in(answer))


def codes_in(answer: Any) -> set[int]:
    """The error codes of an answer other than 0."""
    return {value for path, value in normal.flat(answer) if path.endswith("rrorCode") and value}
