"""One topic is created with its configs by Kafka's names, as a mapping, as keywords, or both."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

from stratalog.clients.admin.admin import Admin
from stratalog.server.view.cluster_view import ClusterView
from stratalog.storage.errors import InvalidConfigError, LeaderNotAvailableError
from tests.clients.memory_cluster import ROOT, MemoryCluster


@pytest.fixture
def admin() -> Admin:
    return Admin(ROOT, view=ClusterView(ROOT, stores=MemoryCluster().stores, timeout_ms=20))


def test_configs_are_a_mapping_or_keywords(admin: Admin) -> None:
    with suppress(LeaderNotAvailableError):  # no broker runs
        admin.create_topic("orders", 1, 1, config={"retention.ms": 1000, "cleanup.policy": "compact"}, segment_ms=5)
    found = {entry.name: entry.value for entry in admin.describe_configs("orders") if not entry.is_default}
    assert found == {"retention.ms": "1000", "cleanup.policy": "compact", "segment.ms": "5"}


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"config": {"retention.ms": 1}, "retention_ms": 2}, "retention.ms is given twice: 1 and 2"),
        ({"config": {"retention.msec": 1}}, "retention.msec"),
        ({"config": "retention.ms=1"}, "config is a mapping"),
    ],
)
def test_a_config_that_is_unknown_or_given_twice_is_refused(admin: Admin, given: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidConfigError, match=reason):
        admin.create_topic("orders", 1, 1, **given)
    assert admin.list_topics() == []
