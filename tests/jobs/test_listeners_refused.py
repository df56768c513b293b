"""Listeners that cannot be are refused when a broker's process starts, in Kafka's words; running brokers stay."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from stratalog.server.view.cluster_view import ClusterView
from tests.jobs.tool_processes import Ended, call


@pytest.fixture
def taken_port() -> Iterator[int]:
    """A port of another process, as far as the broker can see."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        yield taken.getsockname()[1]


def started(folder: Path, *overrides: str, tool: str = "broker") -> Ended:
    """A broker, or a cluster, that is refused."""
    if tool == "cluster":
        given = ["--path", str(folder), "--brokers", "2"]
    else:
        own = ["broker.id=1", f"log.dirs={folder / 'broker-1'}", f"stratalog.metadata.root={folder / 'metadata'}"]
        given = [f"--override={each}" for each in own]
    return call(tool, *given, "--fetcher", "thread", *(f"--override={each}" for each in overrides))


PLAIN = [
    "sasl.enabled.mechanisms=PLAIN",
    "sasl.mechanism.inter.broker.protocol=PLAIN",
    'sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required username="b" password="c";',
]
REFUSED = [
    (
        ["listeners=PLAINTEXT://127.0.0.1:0", "advertised.listeners=OUTSIDE://b1.example:9092"],
        "No security protocol defined for listener OUTSIDE",
    ),
    (
        ["listeners=PLAINTEXT://127.0.0.1:0", "advertised.listeners=SSL://b1.example:9092"],
        "advertised.listeners listener names must be equal to or a subset of the ones defined in listeners. Found SSL.",
    ),
    (
        ["listeners=SSL://127.0.0.1:0", "ssl.keystore.location=absent.pem"],
        "Failed to load PEM SSL keystore absent.pem: No such file or directory",
    ),
    (["listeners=SASL_PLAINTEXT://0.0.0.0:0", *PLAIN], "is open to other machines without encryption"),
    (["listeners=SASL_PLAINTEXT://127.0.0.1:0"], "sasl.enabled.mechanisms"),
    (["listeners=PLAINTEXT://0.0.0.0:0"], "is open to other machines without encryption"),
    (
        ["listeners=PLAINTEXT://127.0.0.1:9092,SSL://127.0.0.1:9092"],
        "Each listener must have a different port, listeners: ",
    ),
    (["listeners=PLAINTEXT://127.0.0.1:65536"], "Port 65536 must be between 0 and 65535"),
]


@pytest.mark.parametrize("tool", ["broker", "cluster"])
@pytest.mark.parametrize(("overrides", "message"), REFUSED)
def test_listeners_that_cannot_be_are_refused(tmp_path: Path, tool: str, overrides: list[str], message: str) -> None:
    ended = started(tmp_path / "cluster", *overrides, tool=tool)
    assert (ended.code, "ERROR INVALID_CONFIG: " in ended.err, message in ended.err) == (1, True, True), ended


@pytest.mark.parametrize("tool", ["broker", "cluster"])
def test_a_port_in_use_is_refused_and_nothing_is_registered(tmp_path: Path, taken_port: int, tool: str) -> None:
    ended = started(tmp_path / "cluster", f"listeners=PLAINTEXT://127.0.0.1:{taken_port}", tool=tool)
    message = f"Socket server failed to bind to 127.0.0.1:{taken_port}: Address already in use."
    assert (ended.code, message in ended.err) == (1, True), ended
    metadata = tmp_path / "cluster" / "metadata"
    if metadata.exists():
        view = ClusterView(str(metadata))
        view.refresh()
        assert not view.image.brokers


def test_two_brokers_of_one_process_do_not_share_a_port(tmp_path: Path, taken_port: int) -> None:
    """Broker 2 has the port above that of broker 1."""
    ended = started(tmp_path / "cluster", f"listeners=PLAINTEXT://127.0.0.1:{taken_port - 1}", tool="cluster")
    assert (ended.code, f"failed to bind to 127.0.0.1:{taken_port}" in ended.err) == (1, True), ended
