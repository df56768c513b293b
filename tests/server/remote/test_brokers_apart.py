"""Three brokers that know nothing of each other but the metadata, and clients that know the metadata root alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from stratalog.clients.admin.admin import Admin
from stratalog.clients.consumer.consumer import Consumer
from stratalog.clients.producer.producer import Producer
from stratalog.clients.records import ConsumerRecord, OffsetAndMetadata
from stratalog.jobs.command.properties import read_properties
from stratalog.jobs.records import consume, groups
from stratalog.jobs.topics import configs
from stratalog.replication.metadata.acls import (
    CLUSTER_NAME,
    AclBinding,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from stratalog.server.endpoint.kafka_endpoint import KafkaEndpoint
from stratalog.server.process.broker_properties import BrokerProperties
from stratalog.server.process.broker_server import BrokerServer
from stratalog.server.remote.remote_cluster import RemoteCluster, RemotePeers
from stratalog.server.view.cluster_view import ClusterView
from stratalog.storage.errors import ProducerFencedError, SaslAuthenticationFailedError, StratalogError
from stratalog.storage.records import TopicPartition
from tests.server.endpoint.security.certificate_authority import CertificateAuthority

SETTINGS = {
    "listeners": "PLAINTEXT://127.0.0.1:0",
    "broker.session.timeout.ms": 3_000,
    "broker.heartbeat.interval.ms": 300,
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": 3,
    "transaction.state.log.num.partitions": 3,
    "stratalog.fetch.sessions": 1,
}
T = [TopicPartition("t", number) for number in range(3)]


@dataclass(frozen=True, slots=True)
class Apart:
    """The metadata root, and a property file with the login of its clients."""

    root: str
    client_file: Path


@pytest.fixture(scope="module", params=["plaintext", "SASL_SSL", "inbox"])
def apart(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Apart]:
    """Three brokers, each the only one of its `BrokerServer`; topics `t` and `out`.

    With security there are no super users: the brokers' user has ClusterAction alone, clients have one of their own.
    Without a listener brokers and clients call each other through inboxes alone.
    """
    folder = tmp_path_factory.mktemp("apart")
    metadata_root, client_file = str(folder / "metadata"), folder / "client.properties"
    is_secured = request.param == "SASL_SSL"
    settings, client = secured(folder) if is_secured else ({}, {})
    if request.param == "inbox":
        settings = {"listeners": ""}
    client_file.write_text("".join(f"{name}={value}\n" for name, value in client.items()))
    with ExitStack() as stack:
        for broker_id in (1, 2, 3):
            start(folder, broker_id, settings, stack)
        admin = Admin(metadata_root)
        if is_secured:
            for name in ("broker", "alice"):
                login = f"SCRAM-SHA-512=[iterations=4096,password={name}s secret]"
                flags = ["--root", metadata_root, "--alter", "--entity-type", "users", "--entity-name", name]
                assert configs.main.call([*flags, "--add-config", login]) == 0
            admin.create_acls([CALLS_OF_BROKERS, *(AclBinding(each, "*", *EVERYTHING_OF_ALICE) for each in RESOURCES)])
        for topic in ("t", "out"):
            admin.create_topic(topic, 3, 3)
        yield Apart(metadata_root, client_file)


RESOURCES = (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID)
CALLS_OF_BROKERS = AclBinding(
    ResourceType.CLUSTER,
    CLUSTER_NAME,
    PatternType.LITERAL,
    "User:broker",
    "*",
    Operation.CLUSTER_ACTION,
    Permission.ALLOW,
)
EVERYTHING_OF_ALICE = (PatternType.LITERAL, "User:alice", "*", Operation.ALL, Permission.ALLOW)


def secured(folder: Path) -> tuple[dict[str, str], dict[str, str]]:
    """The settings of brokers that are called by TLS and SCRAM alone, and of clients."""
    authority = CertificateAuthority(folder / "keys")
    trust = {"ssl.truststore.location": str(authority.authority)}
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    brokers = {
        "listeners": "SASL_SSL://127.0.0.1:0",
        "security.inter.broker.protocol": "SASL_SSL",
        "sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
        "sasl.jaas.config": f'{module} required username="broker" password="brokers secret";',
        "ssl.keystore.location": str(authority.issue("broker")),
        "authorizer.class.name": "StandardAuthorizer",
    }
    client = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": f'{module} required username="alice" password="alices secret";',
    }
    return brokers | trust, client | trust


def start(folder: Path, broker_id: int, settings: Mapping[str, str], stack: ExitStack) -> None:
    own = {
        "broker.id": broker_id,
        "log.dirs": str(folder / f"broker-{broker_id}"),
        "stratalog.metadata.root": str(folder / "metadata"),
    }
    properties = BrokerProperties.from_properties({**own, **SETTINGS, **settings})
    peers = stack.enter_context(RemotePeers.of_broker(properties.config))
    server = BrokerServer.start(properties, fetcher="thread", peers=peers, endpoint=KafkaEndpoint)
    peers.follow(lambda: server.broker.metadata.image)
    stack.callback(server.stop)


@pytest.fixture
def root(apart: Apart) -> str:
    return apart.root


@pytest.fixture
def cluster(apart: Apart) -> Iterator[RemoteCluster]:
    with RemoteCluster(apart.root, read_properties(str(apart.client_file))) as made:
        yield made


def poll_until(is_done: Callable[[], bool], consumer: Consumer) -> list[ConsumerRecord]:
    records: list[ConsumerRecord] = []
    for _ in range(3_000):
        if is_done():
            return records
        records += consumer.poll(10)
    raise AssertionError(f"not so after 3,000 polls: {sorted(consumer.assignment())}")


def read(root: str, topic: str, isolation_level: str) -> list[bytes | None]:
    """All records of a topic that a reader of this level sees."""
    with Consumer(root, auto_offset_reset="earliest", isolation_level=isolation_level) as reader:
        reader.assign_all(topic)
        ends = reader.end_offsets(sorted(reader.assignment()))
        records = poll_until(lambda: all(reader.position(tp) >= end for tp, end in ends.items()), reader)
    return [record.value for record in records]


def test_records_are_read_processed_and_written_exactly_once(
    apart: Apart, root: str, cluster: RemoteCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    """Markers and the verification of transactions go from broker to broker: each partition may have another leader."""
    with Producer(cluster) as producer:
        for number in range(60):
            producer.send("t", b"%d" % number, key=b"%d" % (number % 10))
        producer.flush(60)
    settings: dict[str, object] = {"group.id": "mover", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer(cluster, settings)
    producer = Producer(cluster, {"transactional.id": "mover-1"})
    producer.init_transactions(60)
    for is_commit in (False, True):
        consumer.unsubscribe()
        consumer.subscribe(["t"])
        records = poll_until(lambda: len(consumer.assignment()) == 3, consumer)
        records += poll_until(lambda: sum(consumer.position(tp) for tp in T) == 60, consumer)
        assert len(records) == 60
        producer.begin_transaction()
        sent = [producer.send("out", record.value, key=record.key) for record in records]
        offsets = {tp: OffsetAndMetadata(consumer.position(tp)) for tp in T}
        producer.send_offsets_to_transaction(offsets, consumer.group_metadata())
        assert [each.result(60).topic for each in sent] == ["out"] * 60
        if is_commit:
            producer.commit_transaction(60)
        else:
            producer.abort_transaction(60)
    with Producer(cluster, {"transactional.id": "mover-1"}) as newer:
        newer.init_transactions(60)
        producer.begin_transaction()
        producer.send("out", b"late")
        with pytest.raises(StratalogError) as fenced:
            producer.commit_transaction(60)
        assert isinstance(fenced.value, ProducerFencedError) or fenced.value.name in (
            "INVALID_PRODUCER_EPOCH", "TRANSACTION_ABORTABLE",
        )  # fmt: skip
    assert sum(at.offset for at in consumer.committed(T).values() if at is not None) == 60
    consumer.close()
    producer.close(1)
    leaders = {ClusterView(root).leader(tp) for tp in (*T, *(TopicPartition("out", n) for n in range(3)))}
    assert len(leaders) > 1
    committed = read(root, "out", "read_committed")
    assert sorted(committed) == sorted(b"%d" % number for number in range(60))
    assert len(read(root, "out", "read_uncommitted")) == 120
    capsys.readouterr()
    login = ["--root", root, "--command-config", str(apart.client_file)]
    reset = "--reset-offsets --group mover --topic t --to-earliest --execute"
    assert groups.main.call([*login, *reset.split()]) == 0
    assert [line.split()[3] for line in capsys.readouterr().out.splitlines() if line.startswith("mover")] == ["0"] * 3
    flags = ["--topic", "t", "--group", "mover", "--from-beginning", "--max-messages", "60"]
    assert consume.main.call([*login, *flags]) == 0
    assert sorted(map(int, capsys.readouterr().out.split())) == list(range(60))
    assert groups.main.call([*login, "--delete", "--group", "mover"]) == 0


def test_a_client_with_a_wrong_password_is_told(apart: Apart) -> None:
    properties = read_properties(str(apart.client_file))
    if not properties:
        return
    login: dict[str, object] = {**properties, "sasl.password": "wr0ng", "sasl.username": "alice"}
    with RemoteCluster(apart.root, login) as refused:
        producer = Producer(refused, {"transactional.id": "refused"})
        with pytest.raises(SaslAuthenticationFailedError):
            producer.init_transactions(30)
        with Consumer(refused, {"group.id": "refused"}) as consumer:
            consumer.subscribe(["t"])
            with pytest.raises(SaslAuthenticationFailedError):
                poll_until(lambda: False, consumer)
        with Producer(refused) as plain, pytest.raises(SaslAuthenticationFailedError):
            plain.send("t", b"refused").result(30)
