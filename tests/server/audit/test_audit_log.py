"""The queue of audit events: nothing is lost silently, nobody waits for it; a storm of real clients."""

from __future__ import annotations

import json
import socket
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import kafka
import pytest
from kafka.admin import NewTopic
from kafka.errors import KafkaError

from stratalog.clients.consumer.consumer import Consumer
from stratalog.replication.coordinator.runtime.remote_appends import Appends
from stratalog.replication.requests.produce import ProduceRequest, ProduceResponse
from stratalog.server.admin.admin import MetadataAdmin
from stratalog.server.audit.audit_log import AuditLog, AuditTopic
from stratalog.server.audit.events import ADMIN, DENIAL, FAILED_LOGIN, LOGIN, LOST, REFUSED_FRAME, AuditEvent
from stratalog.server.cluster import Cluster
from stratalog.server.view.cluster_view import ClusterView
from stratalog.storage.errors import NotEnoughReplicasError
from stratalog.storage.records import TopicPartition
from tests.clients.memory_cluster import MemoryCluster
from tests.waiting import wait_until

TOPIC = "audited"


class Peer:
    """A leader that may refuse batches, or keep them waiting."""

    def __init__(self, cluster: MemoryCluster) -> None:
        self._cluster = cluster
        self.refusals = 0
        self.gate = threading.Event()
        self.gate.set()

    def produce_then(self, request: ProduceRequest, complete: Any) -> None:
        self.gate.wait(30)
        if self.refusals:
            self.refusals -= 1
            complete(ProduceResponse(request.partition, error=NotEnoughReplicasError("one replica")))
            return
        named = request.partition.topic_partition
        complete(self._cluster.append_batch(named, request.batch))
        self._cluster.publish(named)


class Audited:
    """An audit log over a cluster in memory."""

    def __init__(self, events_max: int = 1_000) -> None:
        self.cluster = MemoryCluster()
        self.cluster.create_topic(TOPIC)
        self.peer = Peer(self.cluster)
        peers: Mapping[int, Appends] = {1: self.peer}
        view = ClusterView(self.cluster, stores=self.cluster.stores)
        admin = MetadataAdmin(self.cluster, view=view)
        topic = AuditTopic(TOPIC, 3, events_max, broker_id=1, run="run")
        self.log = AuditLog(topic, admin, view, lambda: peers, self.cluster.clock)

    def stored(self) -> list[dict[str, Any]]:
        view = ClusterView(self.cluster, stores=self.cluster.stores)
        rows = view.records.read(TopicPartition(TOPIC, 0), 0, 1 << 30)
        return [json.loads(value) for value in rows["value"].to_pylist()]


@pytest.fixture
def audited() -> Iterator[Audited]:
    made = Audited()
    yield made
    made.log.close()


def test_events_are_stored_in_order_and_again_after_a_refusal(audited: Audited) -> None:
    audited.peer.refusals = 1
    for number in range(50):
        audited.log.put(AuditEvent(LOGIN, f"User:{number}"))
    assert audited.log.drain()
    found = audited.stored()
    assert [(each["number"], each["principal"]) for each in found] == [(n, f"User:{n}") for n in range(50)]
    assert {each["run"] for each in found} == {"run"}
    values = {metric.name: dict(metric.values) for metric in audited.log.metrics()}
    assert values["stratalog_audit_events_total"][("kind", LOGIN),] == 50
    assert values["stratalog_audit_written_total"] == {(): 50}
    assert values["stratalog_audit_lost_total"] == {(): 0}


def test_what_is_beyond_the_bound_is_counted_and_reported_and_nobody_waits() -> None:
    audited = Audited(events_max=10)
    try:
        audited.peer.gate.clear()
        for _ in range(35):
            audited.log.put(AuditEvent(FAILED_LOGIN))
        assert audited.log.lost == 25
        audited.peer.gate.set()
        assert audited.log.drain()
        *events, report = audited.stored()
        assert [each["number"] for each in events] == list(range(10))
        assert (report["kind"], report["detail"]) == (LOST, "25 events were dropped: the queue was full")
    finally:
        audited.log.close()


@pytest.mark.slow
def test_a_storm_of_clients_is_stored_without_a_gap(tmp_path: Path) -> None:
    """Logins, wrong passwords, denials, administrators' requests and broken frames by Kafka's Python client and bare
    sockets, from four threads; each is counted by whoever caused it."""
    login = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="admin" password="a" '
    config = {
        "listeners": "SASL_PLAINTEXT://localhost:0",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.jaas.config": f'{login}user_admin="a" user_bob="b";',
        "authorizer.class.name": "StandardAuthorizer",
        "super.users": "User:admin",
        "stratalog.audit.topic": TOPIC,
        "stratalog.audit.topic.replication.factor": 1,
        "connection.failed.authentication.delay.ms": 0,
    }
    caused, lock = Counter[str](), threading.Lock()
    with Cluster.start(tmp_path / "cluster", brokers=1, fetcher="thread", config=config) as cluster:
        host, port = cluster.bootstrap_servers.split(":")

        def count(kind: str, more: int = 1) -> None:
            with lock:
                caused[kind] += more

        def work(number: int) -> None:
            for turn in range(10):
                admin = client(cluster, "admin", "a")
                admin.create_topics([NewTopic(f"t-{number}-{turn}", 1, 1)])
                count(ADMIN)
                admin.close()
                bob = client(cluster, "bob", "b")
                with suppress(KafkaError):
                    bob.create_topics([NewTopic("denied", 1, 1)])
                count(DENIAL)
                bob.close()
                for _ in range(5):
                    count(FAILED_LOGIN, wrong_password(host, int(port)))
                    count(REFUSED_FRAME, broken_frame(host, int(port)))

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        metrics = {m.name: dict(m.values) for m in cluster.metrics()[1]}
        wait_until(lambda: counted(cluster, "stratalog_audit_queue_size") == 0, "an empty queue")
        stored = [json.loads(each.value or b"") for each in records(cluster)]
    assert metrics["stratalog_audit_lost_total"] == {(): 0}
    assert sorted(each["number"] for each in stored) == list(range(len(stored)))
    found = Counter(each["kind"] for each in stored)
    assert {kind: found[kind] for kind in caused} == dict(caused)
    assert found[LOGIN] >= 80
    assert {each["outcome"] for each in stored if each["kind"] == DENIAL} == {"TOPIC_AUTHORIZATION_FAILED"}
    assert {each["principal"] for each in stored if each["kind"] == FAILED_LOGIN} == {"User:bob"}


def client(cluster: Cluster, user: str, password: str) -> Any:
    return kafka.KafkaAdminClient(
        bootstrap_servers=cluster.bootstrap_servers,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="PLAIN",
        sasl_plain_username=user,
        sasl_plain_password=password,
    )


def wrong_password(host: str, port: int) -> int:
    """SaslHandshake 1, then SaslAuthenticate 0 with a wrong password, by a bare socket; 1 once it is refused."""
    with socket.create_connection((host, port), 10) as connection:
        handshake = b"\0\x11\0\x01\0\0\0\x01\xff\xff\0\x05PLAIN"
        token = b"\0bob\0wrong"
        authenticate = b"\0\x24\0\0\0\0\0\x02\xff\xff" + len(token).to_bytes(4, "big") + token
        for frame in (handshake, authenticate):
            connection.sendall(len(frame).to_bytes(4, "big") + frame)
            size = int.from_bytes(connection.recv(4), "big")
            while size > 0:
                size -= len(connection.recv(size))
        assert connection.recv(1) == b"", "the broker closes it"
    return 1


def broken_frame(host: str, port: int) -> int:
    """A frame of two gigabytes, by its length; 1 once the broker has closed the connection."""
    with socket.create_connection((host, port), 10) as connection:
        connection.sendall(b"\x7f\xff\xff\xff")
        with suppress(ConnectionResetError):
            assert connection.recv(1) == b""
    return 1


def records(cluster: Cluster) -> list[Any]:
    with Consumer(cluster.root, auto_offset_reset="earliest") as consumer:
        consumer.assign([(TOPIC, 0)])
        found: list[Any] = []
        while polled := consumer.poll(500):
            found += polled
        return found


def counted(cluster: Cluster, name: str) -> float:
    values = [dict(metric.values)[()] for metric in cluster.metrics()[1] if metric.name == name]
    assert isinstance(values[0], int | float)
    return values[0]
