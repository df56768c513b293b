"""Beats between brokers of different processes, at their listeners."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from stratalog.clients.admin.admin import Admin
from stratalog.jobs.topics import configs
from stratalog.replication.config import BrokerConfig
from stratalog.replication.controller.sessions import Beat, PeerBeats
from stratalog.server.endpoint.kafka_endpoint import KafkaEndpoint
from stratalog.server.process.broker_properties import BrokerProperties
from stratalog.server.process.broker_server import BrokerServer
from stratalog.server.remote.heartbeats import RemoteBeats
from stratalog.server.view.cluster_view import ClusterView
from stratalog.storage.clock import SystemClock
from tests.server.remote.test_brokers_apart import CALLS_OF_BROKERS, SETTINGS, secured
from tests.waiting import wait_until


@dataclass(frozen=True, slots=True)
class Called:
    """A broker that is called, and the settings with which others call it."""

    server: BrokerServer
    config: BrokerConfig

    @property
    def registered(self) -> tuple[int, int]:
        return self.server.broker.broker_id, self.server.broker.broker_epoch


@contextmanager
def called(folder: Path, settings: Mapping[str, str]) -> Iterator[Called]:
    own = {"broker.id": 1, "log.dirs": str(folder / "broker-1"), "stratalog.metadata.root": str(folder / "metadata")}
    properties = BrokerProperties.from_properties({**own, **SETTINGS, **settings})
    server = BrokerServer.start(properties, fetcher="thread", endpoint=KafkaEndpoint)
    with ExitStack() as stack:
        stack.callback(server.stop)
        yield Called(server, properties.config)


def is_taken(called: Called, config: BrokerConfig, beat: Beat, timeout_s: float = 30) -> bool:
    """Whether the broker takes this beat of a caller with these settings, or refuses it."""
    own, sent_ms, newer = PeerBeats(), SystemClock().monotonic_ms(), list[str]()
    own.on_newer = lambda: newer.append("fenced")
    with RemoteBeats(config) as beats:
        beats.follow(lambda: called.server.broker.metadata.image)

        def is_answered() -> bool:
            beats.send(own, beat, called.registered, sent_ms)
            return own.is_taken(dict([called.registered]), sent_ms)

        try:
            wait_until(is_answered, "a beat is taken", timeout_s, pause_s=0.2)
        except AssertionError:
            return False
    assert newer, "the receiver knows no such registration, and says so"
    return True


def test_a_beat_is_heard_at_the_listener_for_brokers(tmp_path: Path) -> None:
    with called(tmp_path, {}) as broker:
        assert is_taken(broker, broker.config, Beat(2, 77, metadata_offset=10_000))
        heard = broker.server.beats
        assert heard.heard_ms(2, 77) is not None
        assert heard.newest_offset == 10_000


def test_a_view_reports_what_it_folds_and_what_it_commits(tmp_path: Path) -> None:
    """The broker's loop then reads it, and announces it to the others."""
    with called(tmp_path, {}) as broker:
        view, offsets = ClusterView(broker.server.properties.metadata_root), list[int]()
        view.on_folded = offsets.append
        Admin(view.root).create_topic("t", 1, 1)
        view.refresh()
        assert offsets == [view.metadata.next_offset]
        next(view.producer_ids())
        assert offsets[1:] == [view.metadata.next_offset]


@pytest.mark.slow
def test_a_beat_takes_the_login_and_the_right_of_a_broker(tmp_path: Path) -> None:
    settings, client = secured(tmp_path)
    root = str(tmp_path / "metadata")
    with called(tmp_path, settings) as broker:
        for name in ("broker", "alice"):
            login = f"SCRAM-SHA-512=[iterations=4096,password={name}s secret]"
            flags = ["--root", root, "--alter", "--entity-type", "users", "--entity-name", name]
            assert configs.main.call([*flags, "--add-config", login]) == 0
        Admin(root).create_acls([CALLS_OF_BROKERS])
        alice = BrokerConfig.from_properties({**SETTINGS, **settings, "sasl.jaas.config": client["sasl.jaas.config"]})
        assert is_taken(broker, broker.config, Beat(2, 77, 0))
        assert not is_taken(broker, alice, Beat(3, 78, 0), timeout_s=5)
        assert broker.server.beats.heard_ms(3, 78) is None
