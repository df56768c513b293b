"""From an empty cluster to a login: the tool makes the first user, and a broker's endpoint knows it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from scramp import ScramClient

from stratalog.jobs.topics.configs import main as configs
from stratalog.replication.config import BrokerConfig
from stratalog.replication.metrics import BrokerMetrics
from stratalog.server.bootstrap import BrokerFace
from stratalog.server.endpoint.kafka_endpoint import KafkaEndpoint
from stratalog.wire.api_keys import ApiKey
from tests.clients.still_cluster import StillCluster
from tests.server.endpoint.security.secured_broker import FrameClient
from tests.waiting import wait_until

SETTINGS: dict[str, object] = {
    "listeners": "CLIENTS://localhost:0",
    "listener.security.protocol.map": "CLIENTS:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "SCRAM-SHA-512",
    "authorizer.class.name": "StandardAuthorizer",
    "super.users": "User:alice",
    "connection.failed.authentication.delay.ms": 1,
    "stratalog.inbox.principal": "",
}


class NoBrokers:
    """A process without running brokers, which has metadata."""

    def __init__(self, root: str) -> None:
        self.root = root

    def brokers(self) -> Mapping[int, BrokerFace]:
        return {}

    def hosts(self, _broker_id: int) -> bool:
        return False

    def beats(self, _broker_id: int) -> None:
        """Nobody beats."""

    def counters(self, _broker_id: int) -> BrokerMetrics:
        return BrokerMetrics()

    def when_published(self, _broker_id: int, _call: Callable[[], None]) -> None:
        """Nothing is."""


def login(client: FrameClient, password: str) -> int:
    """The error code of the last answer."""
    scram = ScramClient(["SCRAM-SHA-512"], "alice", password)
    client.ask(ApiKey.SASL_HANDSHAKE, 1, {"mechanism": "SCRAM-SHA-512"})
    first = client.ask(ApiKey.SASL_AUTHENTICATE, 2, {"auth_bytes": scram.get_client_first().encode()})
    if int(first.error_code):
        return int(first.error_code)
    scram.set_server_first(first.auth_bytes.decode())
    last = client.ask(ApiKey.SASL_AUTHENTICATE, 2, {"auth_bytes": scram.get_client_final().encode()})
    return int(last.error_code)


def test_the_first_user_is_made_by_the_tool(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cluster = StillCluster(tmp_path)
    endpoint = KafkaEndpoint(BrokerConfig.from_properties(SETTINGS))
    registered = endpoint.bind(1)
    assert registered is not None
    port = int(registered.rpartition(":")[2])
    endpoint.serve(NoBrokers(cluster.root), 1)
    try:
        assert login(FrameClient(port), "secret") == 58
        added = ("--add-config", "SCRAM-SHA-512=[password=secret]")
        assert configs(["--root", cluster.root, "--alter", "--user", "alice", *added]) == 0
        wait_until(lambda: login(FrameClient(port), "secret") == 0, "the credential")
        alice = FrameClient(port)
        assert login(alice, "secret") == 0
        (described,) = alice.ask(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, {"users": None}).results
        assert described.user == "alice"
        assert login(FrameClient(port), "guess") == 58
        removed = ("--delete-config", "SCRAM-SHA-512")
        assert configs(["--root", cluster.root, "--alter", "--user", "alice", *removed]) == 0
        wait_until(lambda: login(FrameClient(port), "secret") == 58, "the credential's end")
    finally:
        begin_s = time.monotonic()
        endpoint.stop()
        assert time.monotonic() - begin_s < 5, "nothing was under way"
