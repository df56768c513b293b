"""What a broker shows over HTTP, and who may read it."""

from __future__ import annotations

import socket
import urllib.request
from base64 import b64encode
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from urllib.error import HTTPError

import pytest

from stratalog.clients.admin.admin import Admin
from stratalog.clients.producer.producer import Producer
from stratalog.replication.config import BrokerConfig
from stratalog.replication.metadata.image import ClusterImage
from stratalog.replication.metadata.scram import ScramMechanism, ScramUpsertion, alter_credentials
from stratalog.replication.metrics import RunState
from stratalog.server.cluster import Cluster
from stratalog.server.metrics.health import Health
from stratalog.server.metrics.http_server import Page, ServedPath, StatusServer
from stratalog.server.metrics.login import MetricsLogin, metrics_login
from stratalog.storage.errors import InvalidConfigError, KafkaStorageError
from tests import domains
from tests.server.metrics.test_of_broker import values_in
from tests.waiting import wait_until

HEALTH = ("/livez", "/readyz", "/safe-to-restart")


@pytest.mark.slow
def test_brokers_that_run_are_told_over_http(tmp_path_factory: pytest.TempPathFactory) -> None:
    port, folder = three_free_ports(), tmp_path_factory.mktemp("m")
    settings = {"stratalog.metrics.port": port, "broker.session.timeout.ms": 1_000, "broker.heartbeat.interval.ms": 200}
    own = folder / "own.toml"
    own.write_text('[nas]\nschemes = ["file"]\nread_on = 2026-11-01\nwrite = 1\nread = 0\nlist = 0\ndelete = 0\n'
                   'upload = 0\ndownload = 0\nstorage = 0.01\n', encoding="utf-8")  # fmt: skip
    settings |= {"stratalog.prices": str(own)}
    with Cluster.start(folder / "cluster", fetcher="thread", config=settings) as cluster:
        ports = [port, port + 1, port + 2]
        Admin(cluster).create_topic("t", 2, 3)
        with Producer(cluster, acks="all") as producer:
            for number in range(50):
                producer.send("t", b"x" * 100, partition=number % 2).result(10)
        found = all_of(ports)
        assert total(found, 'brokertopicmetrics_messagesin_total{topic="t"}') == 50
        assert total(found, "brokertopicmetrics_messagesin_total") == 50
        assert total(found, 'brokertopicmetrics_bytesin_total{topic="t"}') >= 5_000
        assert total(found, 'brokertopicmetrics_fifteenminuterate{name="MessagesInPerSec",topic="t"}') > 0
        assert total(found, "append_totaltimems_count") == 50
        assert total(found, "kafkacontroller_activecontrollercount") == 1
        assert total(found, "replicamanager_leadercount") == 2
        assert total(found, "replicamanager_underreplicatedpartitions") == 0
        assert total(found, "kafkacontroller_globalpartitioncount") == 2
        assert total(found, "kafkaserver_brokerstate") == 3 * RunState.RUNNING
        of = '{{partition="{}",topic="t"}}'
        assert [total(found, "log_log_logendoffset" + of.format(each)) for each in "01"] == [25, 25]
        assert total(found, "log_log_size" + of.format(0)) > 0
        place = f"domain:{domains.NAME}" if domains.IS_ON else "own"
        writes = total(found, f'store_requests_total{{kind="write",purpose="data",root="{place}"}}')
        assert writes > 0
        dollars = total(found, f'store_cost_dollars_total{{purpose="data",root="{place}"}}')
        assert dollars == pytest.approx(writes / 1_000_000)
        assert total(found, f'store_storage_dollars_per_month{{root="{place}"}}') > 0
        assert total(found, f'store_prices{{prices="nas",read_on="2026-11-01",root="{place}"}}') == 3
        copies = 'fetchsession_copytimemsmax{share="0"}'
        if not domains.IS_ON:
            wait_until(lambda: 0 < total(all_of(ports), copies) < 60_000, "the fetch sessions' times")
        assert {path: asked(port, path)[0] for path in HEALTH} == dict.fromkeys(HEALTH, 200)
        follower = next(b for b in map(cluster.broker, cluster.brokers()) if not b.leaders)
        left = [each for each in ports if each != port + follower.broker_id - 1]
        cluster.kill(follower.broker_id)
        wait_until(lambda: total(all_of(left), "replicamanager_underreplicatedpartitions") == 2, "smaller ISRs")
        wait_until(lambda: total(all_of(left), "kafkacontroller_fencedbrokercount") == 1, "a broker that is down")
        cluster.restart(follower.broker_id)
        wait_until(lambda: total(all_of(ports), "replicamanager_underreplicatedpartitions") == 0, "whole ISRs")
        wait_until(lambda: all(asked(each, "/readyz")[0] == 200 for each in ports), "three ready brokers")
        assert total(all_of(ports), "replicamanager_isrexpands_total") >= 2
        described = Admin(cluster.root).describe_metrics()
        assert sum(told["kafka_server_replicamanager_leadercount"] for told in described.values()) == 2
        assert f"http://localhost:{port}/metrics" in cluster.describe()
        known = {metric.name for told in cluster.metrics().values() for metric in told}
        assert "kafka_server_replicamanager_leadercount" in known


def test_a_cluster_with_an_unknown_list_of_prices_does_not_start(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfigError, match="no list of prices 's3-cheap'; known: s3-standard-us-east-1, "):
        Cluster.start(tmp_path / "cluster", brokers=1, config={"stratalog.prices": "s3-cheap"})
    assert not list(tmp_path.rglob("_delta_log"))


def test_a_path_that_is_none_is_not_found_and_a_port_is_taken_once() -> None:
    server = StatusServer(0, {"/livez": ServedPath(lambda _: Page(b"yes"))})
    try:
        assert asked(server.port, "/livez") == (200, b"yes")
        assert asked(server.port, "/other")[0] == 404
        with pytest.raises(KafkaStorageError, match=f"stratalog.metrics.port {server.port} cannot be listened on"):
            StatusServer(server.port, {})
    finally:
        server.close()


def test_other_machines_log_in_for_what_names_topics() -> None:
    login = MetricsLogin("prometheus", "secret", lambda _user, _mechanism: None)
    health = Health("ready", ("orders-0: lags",))
    routes = {
        "/metrics": ServedPath(lambda _: Page(b"all")),
        "/readyz": ServedPath(lambda sees_all: Page(health.to_json(names_reasons=sees_all), is_ok=False), is_open=True),
    }
    server = StatusServer(0, routes, login=login)
    try:
        assert asked(server.port, "/metrics")[0] == 401
        assert asked(server.port, "/metrics", "prometheus:wrong")[0] == 401
        assert asked(server.port, "/metrics", "prometheus:secret") == (200, b"all")
        assert asked(server.port, "/readyz") == (503, b'{"ready": false, "count": 1}\n')
        assert b"orders-0" in asked(server.port, "/readyz", "prometheus:secret")[1]
    finally:
        server.close()


@pytest.mark.parametrize("mechanism", list(ScramMechanism))
def test_a_user_with_scram_may_read(mechanism: ScramMechanism) -> None:
    salt, iterations = b"0123456789ab", 4_096
    salted = mechanism.salted_password("pass", salt, iterations)
    errors = []

    def image() -> ClusterImage:
        upsertion = ScramUpsertion("alice", mechanism.code, iterations, salt, salted)
        result = alter_credentials(ClusterImage(), [], [upsertion])
        errors.extend(each for each in result.response.values() if each is not None)
        return ClusterImage().fold(*result.records)

    credentials = image().scram_credentials
    login = MetricsLogin("metrics", "", lambda user, asked_for: credentials.get((user, asked_for)))
    assert errors == []
    for _ in range(2):  # the second time from memory
        assert login.allows(basic("alice:pass"))
    assert not login.allows(basic("alice:other"))
    assert not login.allows(basic("bob:pass"))
    assert not login.allows("Bearer x")
    assert not login.allows("Basic !")
    assert not login.allows("")


@pytest.mark.parametrize(
    ("settings", "is_loopback", "outcome"),
    [
        ({}, True, "open"),
        ({}, False, "refused"),
        ({"stratalog.metrics.authentication": "none"}, False, "open"),
        ({"stratalog.metrics.password": "secret"}, False, "login"),
        ({"sasl.enabled.mechanisms": "SCRAM-SHA-256"}, False, "login"),
        ({"sasl.enabled.mechanisms": "PLAIN"}, False, "refused"),
    ],
)
def test_a_port_that_others_reach_has_a_login_unless_the_settings_say_so(
    settings: dict[str, str], is_loopback: bool, outcome: str
) -> None:
    config = BrokerConfig.from_properties({"stratalog.metrics.host": "0.0.0.0", **settings})
    make = partial(metrics_login, config, lambda _user, _mechanism: None, is_loopback=is_loopback)
    if outcome == "refused":
        with pytest.raises(InvalidConfigError, match=r"Set stratalog\.metrics\.password"):
            make()
    else:
        assert (make() is None) == (outcome == "open")


def total(found: Iterable[Mapping[str, float]], name: str) -> float:
    """Over all brokers."""
    return sum(value for each in found for labelled, value in each.items() if labelled.endswith(f"_{name}"))


def all_of(ports: Iterable[int]) -> list[dict[str, float]]:
    return [values_in(asked(port, "/metrics")[1]) for port in ports]


def basic(login: str) -> str:
    return f"Basic {b64encode(login.encode()).decode()}"


def asked(port: int, path: str, login: str = "") -> tuple[int, bytes]:
    """Status and content."""
    request = urllib.request.Request(f"http://localhost:{port}{path}")
    if login:
        request.add_header("Authorization", basic(login))
    try:
        with urllib.request.urlopen(request, timeout=5) as answer:
            return int(answer.status), bytes(answer.read())
    except HTTPError as refusal:
        with refusal:
            return refusal.code, refusal.read()


def three_free_ports() -> int:
    """The first of three in a row that are free now."""
    for _ in range(100):
        with ExitStack() as stack:
            try:
                first = stack.enter_context(socket.create_server(("localhost", 0))).getsockname()[1]
                for more in (1, 2):
                    stack.enter_context(socket.create_server(("localhost", first + more)))
            except (OSError, OverflowError):
                continue
            return int(first)
    raise AssertionError("no three ports in a row are free")
