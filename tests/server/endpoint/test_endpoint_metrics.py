"""What listeners count, as Prometheus gets it."""

from __future__ import annotations

from typing import Any

from stratalog.replication.metrics import Histogram
from stratalog.server.endpoint.endpoint_metrics import PARTS, EndpointMetrics
from stratalog.server.metrics.exposition import prometheus_text
from stratalog.server.request.request_log import RequestTimes
from stratalog.wire.api_keys import ApiKey


def by_name(metrics: EndpointMetrics) -> dict[str, dict[Any, Any]]:
    return {metric.name: dict(metric.values) for metric in metrics.metrics()}


def test_requests_are_counted_by_api_and_version() -> None:
    metrics = EndpointMetrics()
    for version in (12, 12, 17):
        metrics.answered(ApiKey.FETCH, version, 500)
    metrics.answered(ApiKey.PRODUCE, 11, 3)
    found = by_name(metrics)
    assert found["kafka_network_requestmetrics_requests_total"] == {
        (("request", "Produce"), ("version", "11")): 1,
        (("request", "Fetch"), ("version", "12")): 2,
        (("request", "Fetch"), ("version", "17")): 1,
    }
    times = found["kafka_network_requestmetrics_totaltimems"]
    assert {labels[0][1] for labels in times} == {"Fetch", "Produce"}
    of_fetch = times[(("request", "Fetch"),)]
    assert isinstance(of_fetch, Histogram)
    assert (of_fetch.sum_ms, of_fetch.percentile_ms(50)) == (1_500, 500)


def test_versions_that_an_api_does_not_have_are_one() -> None:
    """Kafka answers ApiVersions of any version: a client must not make a time series of each number."""
    metrics = EndpointMetrics()
    for version in (4, 5_000, -7, 32_767):
        metrics.answered(ApiKey.API_VERSIONS, version, 0)
    versions = [dict(labels)["version"] for labels in by_name(metrics)["kafka_network_requestmetrics_requests_total"]]
    assert versions == ["unknown", "4"]


def test_tokens_that_look_like_requests_are_one() -> None:
    """Old logins send tokens without a header: each user's name would make a time series."""
    metrics = EndpointMetrics()
    for key in (117, 4_000, -9):
        metrics.answered(key, 12, 1)
    found = by_name(metrics)["kafka_network_requestmetrics_requests_total"]
    assert found == {(("request", "unknown"), ("version", "unknown")): 3}


def test_errors_are_counted_by_api_and_error() -> None:
    metrics = EndpointMetrics()
    metrics.met(ApiKey.PRODUCE, [6, 6, 29])
    metrics.met(ApiKey.FETCH, [6])
    assert by_name(metrics)["kafka_network_requestmetrics_errors_total"] == {
        (("request", "Produce"), ("error", "NOT_LEADER_OR_FOLLOWER")): 2,
        (("request", "Produce"), ("error", "TOPIC_AUTHORIZATION_FAILED")): 1,
        (("request", "Fetch"), ("error", "NOT_LEADER_OR_FOLLOWER")): 1,
    }


def test_the_queue_is_seen_as_it_is_now() -> None:
    sizes = iter((3, 0))
    metrics = EndpointMetrics(lambda: next(sizes))
    seen = [by_name(metrics)["kafka_network_requestchannel_requestqueuesize"][()] for _ in range(2)]
    assert seen == [3, 0]


def test_connections_are_counted_by_listener() -> None:
    metrics = EndpointMetrics()
    inside, outside = metrics.listener("INSIDE"), metrics.listener("OUTSIDE")
    inside.connection_creation, inside.connection_close, outside.failed_authentication = 5, 2, 1
    lines = prometheus_text(metrics.metrics()).decode().splitlines()
    of = 'kafka_server_socket_server_metrics_{}{{listener="{}",networkProcessor="0"}} {}.0'
    for expected in (
        of.format("connection_count", "INSIDE", 3),
        of.format("connection_creation_total", "INSIDE", 5),
        of.format("connection_close_total", "INSIDE", 2),
        of.format("connection_count", "OUTSIDE", 0),
        of.format("failed_authentication_total", "OUTSIDE", 1),
    ):
        assert expected in lines


def test_a_requests_time_is_counted_by_its_parts() -> None:
    metrics = EndpointMetrics()
    metrics.timed(ApiKey.FETCH, RequestTimes(3_000_000, 4_900_000, 500_000_000))
    metrics.answered(ApiKey.FETCH, 12, 510, queued_ms=2, send_ms=1)
    metrics.timed(ApiKey.PRODUCE, RequestTimes(1_000_000, 1_000_000, 7_000_000))
    found = by_name(metrics)
    sums = {
        part: {
            labels[0][1]: histogram.sum_ms
            for labels, histogram in found[f"kafka_network_requestmetrics_{part.lower()}"].items()
        }
        for part in PARTS
    }
    assert sums == {
        "RequestQueueTimeMs": {"Produce": 1, "Fetch": 3},
        "LocalTimeMs": {"Produce": 1, "Fetch": 4},
        "RemoteTimeMs": {"Produce": 7, "Fetch": 500},
        "ResponseQueueTimeMs": {"Fetch": 2},
        "ResponseSendTimeMs": {"Fetch": 1},
    }


def test_idle_shares_are_of_each_kind_of_threads() -> None:
    metrics = EndpointMetrics(network=lambda: (0, 1), io=lambda: (10**15, 8))
    found = by_name(metrics)
    names = ("kafka_network_socketserver_networkprocessoravgidle_percent",
             "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent")  # fmt: skip
    assert [0 <= found[name][()] <= 1 for name in names] == [True, True]
