"""A group of 100 members over 1,000 partitions, through real consumers of one process, in all protocols."""

from __future__ import annotations

from pathlib import Path

import pytest

from stratalog.clients.admin.admin import Admin
from stratalog.server.cluster import Cluster
from tests.lab.bench.benches.group import CLUSTER_CONFIG, PARTITIONS, PROTOCOLS, TOPICS, BusyGroup, rebalances_ms

LIMIT_MS = 10_000
"""The limit of a rebalance: that of the bench is 2,000 ms on a quiet machine, and other tests run beside this one."""


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_hundred_members_rebalance_in_seconds(tmp_path: Path, protocol: str) -> None:
    with Cluster.start(tmp_path, fetcher="thread", config=CLUSTER_CONFIG) as cluster:
        topics = [f"topic-{number}" for number in range(TOPICS)]
        for topic in topics:
            Admin(cluster).create_topic(topic, PARTITIONS, 1)
        group = BusyGroup(cluster, topics, "g", protocol)
        took = rebalances_ms(group, rounds=1)
        group.close()
    assert max(each for times in took.values() for each in times) < LIMIT_MS, took
