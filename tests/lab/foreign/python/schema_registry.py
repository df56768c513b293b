"""The part of a schema registry: two instances elect a master in a group of protocol type `sr`, which is the one that
writes to the compacted topic `_schemas`; both read it from its beginning to its end.

Requests as those of Karapace (`master_coordinator`) and of Confluent's registry (`KafkaGroupLeaderElector`).
"""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from struct import pack
from typing import Any, Self

import kafka
from kafka.admin import KafkaAdminClient

from stratalog.wire.api_keys import ApiKey
from stratalog.wire.messages.frames import decode_response, encode_request
from stratalog.wire.messages.schema import request_type
from tests.lab.foreign.checks import fresh
from tests.waiting import wait_until

FIND_COORDINATOR, JOIN, HEARTBEAT = (ApiKey.FIND_COORDINATOR, 3), (ApiKey.JOIN_GROUP, 5), (ApiKey.HEARTBEAT, 3)
LEAVE, SYNC = (ApiKey.LEAVE_GROUP, 3), (ApiKey.SYNC_GROUP, 3)
MEMBER_ID_REQUIRED, REBALANCE_IN_PROGRESS, NONE = 79, 27, 0
TYPE, PROTOCOL = "sr", "v0"
WAIT_S = 30
NOOP = {"keytype": "NOOP", "magic": 0}


class FrameClient:
    """One connection to a broker: requests in, answers out, in order."""

    def __init__(self, address: str) -> None:
        host, port = address.rsplit(":", 1)
        self._socket = socket.create_connection((host, int(port)), WAIT_S)
        self._answers = self._socket.makefile("rb")

    def send(self, api: tuple[int, int], **values: Any) -> None:
        frame = encode_request(1, "sr", values, request_type(*api))
        self._socket.sendall(pack(">i", len(frame)) + frame)

    def answer(self, api: tuple[int, int]) -> Any:
        size = int.from_bytes(self._answers.read(4), "big")
        return decode_response(self._answers.read(size), *api)[1]

    def ask(self, api: tuple[int, int], **values: Any) -> Any:
        self.send(api, **values)
        return self.answer(api)

    def close(self) -> None:
        self._answers.close()
        self._socket.close()


def coordinator(bootstrap: str, group: str) -> str:
    """The address of the group's coordinator, once there is one."""
    client = FrameClient(bootstrap.split(",", maxsplit=1)[0])
    found: list[Any] = []

    def is_found() -> bool:
        found[:] = [client.ask(FIND_COORDINATOR, key=group, key_type=0)]
        return bool(int(found[0].error_code) == NONE)

    wait_until(is_found, "the coordinator", WAIT_S)
    client.close()
    return f"{found[0].host}:{found[0].port}"


class Registry:
    """One instance: a member of the group. `master` is what the leader elected. In a `with` block."""

    def __init__(self, bootstrap: str, group: str, host: str) -> None:
        self.identity = {"version": 1, "host": host, "port": 8081, "scheme": "http", "master_eligibility": True}
        self.master: Mapping[str, Any] = {}
        self._group = group
        self._client = FrameClient(coordinator(bootstrap, group))
        self._member_id, self._generation = "", -1
        self._joined: Any = None
        wait_until(self._has_member_id, "a member id", WAIT_S)

    def _has_member_id(self) -> bool:
        """A coordinator that is loading its groups refuses at first."""
        self.begin_to_join()
        answer = self._client.answer(JOIN)
        self._member_id = answer.member_id
        return bool(int(answer.error_code) == MEMBER_ID_REQUIRED)

    def begin_to_join(self) -> None:
        """Send JoinGroup; `joined` waits for the answer, which comes when all members have joined."""
        self._client.send(
            JOIN,
            group_id=self._group,
            session_timeout=10_000,
            rebalance_timeout=10_000,
            member_id=self._member_id,
            group_instance_id=None,
            protocol_type=TYPE,
            protocols=({"name": PROTOCOL, "metadata": json.dumps(self.identity).encode()},),
        )

    def joined(self) -> int:
        """How many members the leader sees; 0 for another member."""
        self._joined = answer = self._client.answer(JOIN)
        assert int(answer.error_code) == NONE, answer
        self._generation = answer.generation_id
        assert answer.protocol_name == PROTOCOL
        return len(answer.members)

    def begin_to_sync(self) -> None:
        """The leader elects the least host for its master, and sends that to every member."""
        members = {each.member_id: json.loads(each.metadata) for each in self._joined.members}
        elected = min(members, key=lambda member_id: members[member_id]["host"], default="")
        assignment = {"error": 0, "master": elected, "master_identity": members.get(elected)}
        self._client.send(
            SYNC,
            group_id=self._group,
            generation_id=self._generation,
            member_id=self._member_id,
            group_instance_id=None,
            assignments=tuple({"member_id": each, "assignment": json.dumps(assignment).encode()} for each in members),
        )

    def synced(self) -> None:
        answer = self._client.answer(SYNC)
        assert int(answer.error_code) == NONE, answer
        self.master = json.loads(answer.assignment)["master_identity"]

    def heartbeat(self) -> int:
        """The error code."""
        answer = self._client.ask(
            HEARTBEAT,
            group_id=self._group,
            generation_id=self._generation,
            member_id=self._member_id,
            group_instance_id=None,
        )
        return int(answer.error_code)

    def leave(self) -> None:
        left = self._client.ask(
            LEAVE, group_id=self._group, members=({"member_id": self._member_id, "group_instance_id": None},)
        )
        assert int(left.error_code) == NONE, left

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self._client.close()


def elect(*members: Registry) -> None:
    """All join, the leader assigns, all learn the master."""
    for each in members:
        each.begin_to_join()
    assert sorted(each.joined() for each in members) == [*[0] * (len(members) - 1), len(members)]
    for each in members:
        each.begin_to_sync()
    for each in members:
        each.synced()


def elect_masters(bootstrap: str) -> None:
    """One instance, then two, then the one whose master has left."""
    group = fresh("schema-registry")
    with Registry(bootstrap, group, "b.example") as second:
        elect(second)
        assert second.master == second.identity
        assert second.heartbeat() == NONE
        with Registry(bootstrap, group, "a.example") as first:
            first.begin_to_join()
            wait_until(lambda: second.heartbeat() == REBALANCE_IN_PROGRESS, "a rebalance", WAIT_S)
            second.begin_to_join()
            assert sorted([first.joined(), second.joined()]) == [0, 2]
            for each in (first, second):
                each.begin_to_sync()
            for each in (first, second):
                each.synced()
            assert (first.master, second.master) == (first.identity, first.identity)
            first.leave()
        wait_until(lambda: second.heartbeat() == REBALANCE_IN_PROGRESS, "a rebalance", WAIT_S)
        elect(second)
        assert second.master == second.identity
        second.leave()


def keep_schemas(bootstrap: str, replicas: int) -> None:
    """Register two versions, delete one, and read all from the beginning until the own NOOP, as at a start."""
    topic = fresh("_schemas")
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    admin.create_topics(
        {topic: {"num_partitions": 1, "replication_factor": replicas, "configs": {"cleanup.policy": "compact"}}},
        wait_for_metadata=True,
    )
    admin.close()
    records = [(NOOP, None), *[(key(version), schema(version)) for version in (1, 2)], (key(1), None), (NOOP, None)]
    producer = kafka.KafkaProducer(bootstrap_servers=bootstrap, acks="all", enable_idempotence=False)
    for offset, (name, value) in enumerate(records):
        written = producer.send(topic, key=encoded(name), value=value and encoded(value), partition=0).get(WAIT_S)
        assert written.offset == offset
    producer.close()
    consumer = kafka.KafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest", enable_auto_commit=False)
    partition = kafka.TopicPartition(topic, 0)
    consumer.assign([partition])
    seen: list[tuple[Any, Any]] = []

    def has_all() -> bool:
        found = consumer.poll(100).get(partition, [])
        seen.extend((json.loads(each.key), json.loads(each.value) if each.value else None) for each in found)
        return len(seen) == len(records)

    wait_until(has_all, "all schemas", WAIT_S)
    assert seen == records
    assert consumer.end_offsets([partition])[partition] == len(records)
    consumer.close()


def key(version: int) -> dict[str, Any]:
    return {"keytype": "SCHEMA", "subject": "events-value", "version": version, "magic": 1}


def schema(version: int) -> dict[str, Any]:
    return {"subject": "events-value", "version": version, "id": version, "schema": '"string"', "deleted": False}


def encoded(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


CHECKS = {
    "two instances elect a master by a group of protocol type `sr`; the master leaves": lambda served: elect_masters(
        served.bootstrap
    ),
    "`_schemas`, a compacted topic: written by the master, read from its beginning": lambda served: keep_schemas(
        served.bootstrap, 3
    ),
}
