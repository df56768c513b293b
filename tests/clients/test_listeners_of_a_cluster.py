"""The front door's cluster with `listeners`: Kafka's clients connect to it, and what it says of its addresses."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import kafka
import pytest

from stratalog import Admin, Cluster, Consumer, StratalogError
from stratalog.storage.errors import BrokerNotAvailableError, InvalidConfigError

LISTENERS = {
    "listeners": "INSIDE://localhost:0,OUTSIDE://127.0.0.1:0",
    "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster.start(tmp_path_factory.mktemp("front"), brokers=2, fetcher="thread", config=LISTENERS) as made:
        Admin(made).create_topic("events", 2, 2)
        yield made


def test_kafkas_clients_connect_to_the_addresses_that_it_names(cluster: Cluster) -> None:
    assert list(cluster.listeners) == ["INSIDE", "OUTSIDE"]
    assert cluster.bootstrap_servers == cluster.listeners["INSIDE"]
    for addresses in cluster.listeners.values():
        with kafka.KafkaProducer(bootstrap_servers=addresses.split(",")) as producer:
            assert producer.send("events", b"signed up", key=b"alice").get(30).topic == "events"
    with Consumer(cluster, auto_offset_reset="earliest") as consumer:
        consumer.assign_all("events")
        assert [record.value for record in consumer.poll(10_000)][:1] == [b"signed up"]


def test_what_kafkas_clients_read_is_counted_by_topic(cluster: Cluster) -> None:
    servers = cluster.bootstrap_servers.split(",")
    Admin(cluster).create_topic("read", 1, 2)
    with kafka.KafkaProducer(bootstrap_servers=servers) as producer:
        producer.send("read", b"x" * 1_000).get(30)
    settings = {"auto_offset_reset": "earliest", "consumer_timeout_ms": 10_000}
    with kafka.KafkaConsumer("read", bootstrap_servers=servers, **settings) as consumer:
        assert next(consumer).value == b"x" * 1_000
    counted = [metric for metrics in cluster.metrics().values() for metric in metrics if "bytesout" in metric.name]
    assert sum(metric.values.get((("topic", "read"),), 0) for metric in counted) >= 1_000


def test_requests_and_connections_are_counted_by_listener(cluster: Cluster) -> None:
    with kafka.KafkaProducer(bootstrap_servers=cluster.listeners["OUTSIDE"].split(",")) as producer:
        producer.send("events", b"x").get(30)
        found = [metric for metrics in cluster.metrics().values() for metric in metrics]
        requests = [m for m in found if m.name == "kafka_network_requestmetrics_requests_total"]
        assert {"ApiVersions", "Metadata", "Produce"} <= {
            dict(key)["request"] for each in requests for key in each.values
        }
        open_now = [m for m in found if m.name == "kafka_server_socket_server_metrics_connection_count"]
        assert sum(m.values[("listener", "OUTSIDE"), ("networkProcessor", "0")] for m in open_now) >= 1


def test_addresses_are_of_two_brokers_and_stay_when_one_is_started_again(cluster: Cluster) -> None:
    before = cluster.listeners
    assert [len(set(addresses.split(","))) for addresses in before.values()] == [2, 2]
    assert f"INSIDE://{before['INSIDE'].split(',')[0]}" in cluster.describe()
    cluster.kill(2)
    cluster.restart(2)
    assert cluster.listeners == before


def test_without_listeners_there_is_no_address(tmp_path: Path) -> None:
    with Cluster.start(tmp_path, brokers=1, fetcher="thread") as closed:
        assert closed.listeners == {}
        with pytest.raises(BrokerNotAvailableError, match="listeners"):
            closed.bootstrap_servers  # noqa: B018


def test_a_port_above_the_first_for_each_broker(tmp_path: Path) -> None:
    with Cluster.start(tmp_path, brokers=1, fetcher="thread", config={"listeners": "PLAINTEXT://localhost:0"}) as free:
        port = int(free.bootstrap_servers.rpartition(":")[2])
    config = {"listeners": f"PLAINTEXT://localhost:{port}"}
    with Cluster.start(tmp_path, brokers=2, fetcher="thread", config=config) as fixed:
        assert fixed.bootstrap_servers == f"localhost:{port},localhost:{port + 1}"


@pytest.mark.parametrize("host", ["0.0.0.0", "", "10.1.2.3"])
def test_plaintext_for_other_machines_is_refused_unless_it_is_allowed(tmp_path: Path, host: str) -> None:
    config: dict[str, object] = {"listeners": f"PLAINTEXT://{host}:0"}
    with pytest.raises(InvalidConfigError, match=r"stratalog\.allow\.plaintext=true"):
        Cluster.start(tmp_path, brokers=1, fetcher="thread", config=config)
    assert not (tmp_path / "metadata").exists()
    if host == "10.1.2.3":
        return  # an address that this machine does not have
    with Cluster.start(tmp_path, 1, fetcher="thread", config={**config, "stratalog.allow.plaintext": True}) as allowed:
        assert allowed.bootstrap_servers


def test_a_port_that_is_taken_is_refused(tmp_path: Path, cluster: Cluster) -> None:
    taken = cluster.bootstrap_servers.split(",")[0]
    with pytest.raises(StratalogError, match=taken.rpartition(":")[2]):
        Cluster.start(tmp_path, brokers=1, fetcher="thread", config={"listeners": f"PLAINTEXT://{taken}"})


def test_users_log_in_where_brokers_have_no_login_of_their_own(tmp_path: Path) -> None:
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    config: dict[str, object] = {
        "listeners": "SASL_PLAINTEXT://localhost:0",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.jaas.config": f'{module} required user_alice="secret";',
    }
    login = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN", "sasl_plain_username": "alice"}
    with Cluster.start(tmp_path, brokers=1, fetcher="thread", config=config) as secured:
        Admin(secured).create_topic("t", 1, 1)
        bootstrap = secured.bootstrap_servers
        with kafka.KafkaProducer(bootstrap_servers=bootstrap, **login, sasl_plain_password="secret") as producer:
            assert producer.send("t", b"1").get(30).offset == 0
