"""What a leader on a far store asks for between an append and its acknowledgement, and which of it waits."""

from __future__ import annotations

import re
from concurrent.futures import Executor

import pytest

from stratalog.replication.broker.broker import Broker
from stratalog.replication.broker.hosted_replicas import BrokerIdentity, BrokerSetup
from stratalog.replication.config import BrokerConfig
from stratalog.replication.metadata.log import open_metadata
from stratalog.replication.requests.produce import ACKS_ALL, ProduceRequest, ProduceResponse
from stratalog.replication.stores import FarAppends, Ports
from stratalog.storage.cadence import COMMITS_KEPT
from stratalog.storage.records import TopicPartition
from tests.replication.broker.far_requests import AtOnce, RequestedStores
from tests.replication.memory_stores import METADATA_ROOT, create, led_by
from tests.storage.logs import CountingIds, FakeClock, batch

T0 = TopicPartition("t", 0)
ROOT = "broker-1"
CONFIG = BrokerConfig.from_properties({"stratalog.upkeep.interval.ms": 100_000_000})


class Alone:
    """Broker 1 leads partition 0 of `t`, of which it is the only replica, on far stores. `appends`: its threads."""

    def __init__(self, appends: Executor | None = None, config: BrokerConfig = CONFIG) -> None:
        self.clock, ids = FakeClock(), CountingIds()
        self.stores = RequestedStores(ids, self.clock.wall_ms)
        ports = Ports(
            self.stores, self.clock, ids, together=self.stores.requests, appends=FarAppends(appends or AtOnce())
        )
        self.broker = Broker(BrokerSetup(BrokerIdentity(1, ROOT), config, METADATA_ROOT), ports)
        self.metadata = open_metadata(self.stores, METADATA_ROOT, self.clock, ids)
        self.metadata.create()
        self.broker.start()
        create(self.metadata, "t", led_by(1, replicas=(1,)))
        self.answers: list[ProduceResponse] = []
        self.rest(200)

    def settle(self) -> None:
        while self.broker.step() or self.broker.wakeup.wait_ms(0):
            pass

    def rest(self, duration_ms: int) -> None:
        """Time passes, and with it every poll."""
        self.clock.now_ms += duration_ms
        self.settle()

    def produce(self, value: str) -> None:
        """Send it, and wait for nothing."""
        request = ProduceRequest(self.metadata.image.identified(T0), batch([value]), ACKS_ALL, timeout_ms=10_000)
        self.broker.calls.produce_then(request, self.answers.append)

    def append(self, value: str) -> list[str]:
        """The requests between an append and its acknowledgement that wait for each other."""
        self.stores.requests.waited.clear()
        count = len(self.answers)
        self.produce(value)
        while len(self.answers) == count:
            self.broker.step()
        assert self.answers[-1].error is None
        return [_named(each) for each in self.stores.requests.waited]


def _named(request: str) -> str:
    """
    >>> _named("create broker-1/t-0/_delta_log/00000000000000000003.json")
    'create broker-1/t-0/_delta_log/3.json'
    """
    return re.sub(r"(=|/)0*(\d+)(?=[/.])", r"\1\2", re.sub(r"[0-9a-f]{32}\.[0-9a-f]{8}", "FILE", request))


FILE = "put broker-1/t-0/segment=0/leader_epoch=0/base_offset={}/FILE.parquet"
COMMIT = "create broker-1/t-0/_delta_log/{}.json"
STANDS = "get broker-1/t-0/_delta_log/{}.json"
PUBLISHED = "put broker-1/progress/1/leader | put broker-1/progress/1/leader-ends"
"""For those that read the high watermark there, before the producer may tell them of its record."""


@pytest.fixture
def alone() -> Alone:
    return Alone()


def test_an_append_waits_for_its_file_and_its_commit(alone: Alone) -> None:
    """Two requests in sequence, and one more where readers learn the high watermark from the leader's root."""
    for number in range(3):
        assert alone.append("a") == [FILE.format(number), COMMIT.format(number + 2), PUBLISHED]


def test_an_append_after_a_rest_asks_whether_the_last_commit_stands(alone: Alone) -> None:
    """Clean-up may have passed a commit that is older than half of `COMMITS_KEPT`."""
    alone.append("a")
    alone.rest(COMMITS_KEPT.ms // 2 - 1)
    assert alone.append("b") == [FILE.format(1), COMMIT.format(3), PUBLISHED]
    alone.rest(COMMITS_KEPT.ms // 2)
    assert alone.append("c") == [FILE.format(2), COMMIT.format(4), STANDS.format(3), PUBLISHED]
    assert alone.append("d") == [FILE.format(3), COMMIT.format(5), PUBLISHED]
