"""Broken frames over real sockets: each is answered or closes its own connection with one line, and nobody else's."""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

from stratalog.clients.admin.admin import Admin
from stratalog.server.admin.admin import NewTopic
from stratalog.server.cluster import Cluster
from stratalog.server.request.endpoint import Endpoint
from stratalog.server.view.cluster_view import ClusterView
from tests.lab.real.fuzz.bad_frames import SETTINGS, TOPICS, BadFrames
from tests.lab.real.fuzz.clients import NEIGHBOUR, BadClient, served_by
from tests.lab.real.fuzz.lines import CLOSED
from tests.lab.real.fuzz.steady_neighbour import SteadyNeighbour

FRAMES = 600
SEED = 30
WAIT_S = 0.1
ONE_BROKER = {
    "listeners": "PLAINTEXT://127.0.0.1:0",
    "offsets.topic.replication.factor": 1,
    "transaction.state.log.replication.factor": 1,
}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster.start(tmp_path, 1, fetcher="thread", config={**SETTINGS, **ONE_BROKER}) as made:
        Admin(made).create_topics([NewTopic(topic, 2, 1) for topic in (*TOPICS, NEIGHBOUR)])
        yield made


def test_bad_frames_close_their_own_connections_with_one_line_each(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    view = ClusterView(cluster)
    view.refresh()
    registration = view.image.brokers[1].registration
    endpoint = Endpoint.by_listener(registration.endpoint or "")[""]
    address = endpoint.host, endpoint.port
    frames = BadFrames(SEED, served_by(address))
    with caplog.at_level(logging.INFO, "stratalog"):
        neighbour = SteadyNeighbour(address, NEIGHBOUR)
        clients = [BadClient(address, islice(frames, FRAMES), WAIT_S)]
        clients[0].run()
        seen = neighbour.finish()
    for client in clients:
        if client.failure is not None:
            raise client.failure
    assert seen.errors == []
    assert all(seen.times_ms[kind] for kind in ("produce", "api_versions"))
    defects = [record for record in caplog.records if record.exc_info]
    assert not defects, caplog.handler.format(defects[0])
    named = Counter(int(found[1]) for record in caplog.records if (found := re.fullmatch(CLOSED, record.message)))
    for client in clients:
        assert client.closed <= named
        assert named <= client.opened
