"""UpdateFeatures: each feature has one level, and no other."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from stratalog.server.apis.api_versions import FEATURES
from stratalog.wire.api_keys import ApiKey
from tests.clients.kafka_client import KafkaClient, code
from tests.clients.memory_cluster import MemoryCluster

INVALID_UPDATE_VERSION = 95
FAILED = "The update failed for all features since the following feature had an error: Invalid update version "


@pytest.fixture
def client() -> Iterator[KafkaClient]:
    cluster = MemoryCluster()
    with KafkaClient(cluster, stores=cluster.stores) as made:
        yield made


def updates(version: int, *levels: tuple[str, int, int]) -> dict[str, object]:
    """Name, level, and Kafka's number of the way in which it may change."""
    named = []
    for name, level, kind in levels:
        way = {"upgrade_type": kind} if version >= 1 else {"allow_downgrade": kind > 1}
        named.append({"feature": name, "max_version_level": level, **way})
    return {"feature_updates": named}


@pytest.mark.parametrize("version", [0, 1, 2])
def test_the_level_in_force_may_be_asked_for(client: KafkaClient, version: int) -> None:
    answer = client.ask(
        ApiKey.UPDATE_FEATURES, version, updates(version, *((name, at, 1) for name, at in FEATURES.items()))
    )
    assert (code(answer), answer.error_message) == (0, None)
    if version < 2:
        assert [(each.feature, code(each)) for each in answer.results] == [(name, 0) for name in FEATURES]


@pytest.mark.parametrize(
    ("level", "reason"),
    [
        (("no.such.feature", 1, 1), "1 for feature no.such.feature. This cluster does not support this feature."),
        (("group.version", 2, 1), "2 for feature group.version. This cluster only supports versions 1-1"),
        (("group.version", 0, 2), "0 for feature group.version. This cluster only supports versions 1-1"),
        (("group.version", -1, 3), "-1 for feature group.version. A feature version cannot be less than 0."),
        (
            ("group.version", 1, 4),
            "1 for feature group.version. The controller does not support the given upgrade type.",
        ),
    ],
)
def test_another_level_refuses_the_whole_request(client: KafkaClient, level: tuple[str, int, int], reason: str) -> None:
    answer = client.ask(ApiKey.UPDATE_FEATURES, 1, updates(1, ("transaction.version", 2, 1), level))
    assert (code(answer), answer.error_message, answer.results) == (INVALID_UPDATE_VERSION, FAILED + reason, ())
