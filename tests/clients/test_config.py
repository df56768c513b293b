"""Client configs: Kafka's names, defaults and refusals."""

from __future__ import annotations

import pytest

from stratalog.clients.config import ConsumerConfig, ProducerConfig
from stratalog.storage.errors import InvalidConfigError

DELIVERY = "delivery.timeout.ms should be equal to or larger than linger.ms + request.timeout.ms"


def test_defaults_are_kafkas() -> None:
    config = ProducerConfig.from_settings(None, {})
    assert (config.acks, config.enable_idempotence, config.batch_size, config.linger_ms) == (-1, True, 16384, 0)
    assert (config.max_in_flight_requests_per_connection, config.buffer_memory) == (5, 33554432)
    assert config.compression_type == "none"
    assert ConsumerConfig.from_settings(None, {}).auto_offset_reset == "latest"


def test_dotted_names_and_keywords_say_the_same() -> None:
    dotted = ProducerConfig.from_settings({"linger.ms": "5", "acks": 1, "max.in.flight.requests.per.connection": 2}, {})
    assert dotted == ProducerConfig.from_settings(None, {"linger_ms": 5, "acks": "1", "max_in_flight": 2})


@pytest.mark.parametrize("given", [{"acks": "1"}, {"acks": 0}, {"retries": 0}, {"max_in_flight": 6}])
def test_idempotence_is_off_where_it_cannot_be(given: dict[str, object]) -> None:
    assert not ProducerConfig.from_settings(None, given).enable_idempotence


def test_a_short_delivery_timeout_shortens_the_request() -> None:
    config = ProducerConfig.from_settings(None, {"delivery_timeout_ms": 1000, "linger_ms": 10})
    assert config.request_timeout_ms == 990


REFUSED: list[tuple[dict[str, object], str]] = [
    ({"lingre.ms": 5}, "Unknown producer config name: lingre.ms (did you mean linger.ms?)"),
    ({"acks": "2"}, "Invalid value 2 for configuration acks: String must be one of: all, -1, 0, 1"),
    ({"linger.ms": "soon"}, "Invalid value soon for configuration linger.ms: Not a number of type INT"),
    ({"linger.ms": -1}, "Invalid value -1 for configuration linger.ms: Value must be at least 0"),
    (
        {"compression.type": "brotli"},
        "Invalid value brotli for configuration compression.type: String must be one of: none, gzip, snappy, lz4, zstd",
    ),
    (
        {"max.in.flight": 0},
        "Invalid value 0 for configuration max.in.flight.requests.per.connection: Value must be at least 1",
    ),
    (
        {"enable.idempotence": "maybe"},
        "Invalid value maybe for configuration enable.idempotence: Expected value to be either true or false",
    ),
    (
        {"enable.idempotence": True, "acks": 1},
        "Must set acks to all in order to use the idempotent producer.",
    ),
    ({"delivery.timeout.ms": 10, "request.timeout.ms": 20}, DELIVERY),
]


@pytest.mark.parametrize(("given", "text"), REFUSED)
def test_a_wrong_producer_config_is_refused_in_kafkas_words(given: dict[str, object], text: str) -> None:
    with pytest.raises(InvalidConfigError) as refusal:
        ProducerConfig.from_settings(given, {})
    assert str(refusal.value) == text


def test_a_wrong_consumer_config_is_refused_in_kafkas_words() -> None:
    with pytest.raises(InvalidConfigError, match="String must be one of: latest, earliest, none"):
        ConsumerConfig.from_settings({"auto.offset.reset": "first"}, {})
    with pytest.raises(InvalidConfigError, match=r"Unknown consumer config name: bootstrap\.servers"):
        ConsumerConfig.from_settings({"bootstrap.servers": "localhost:9092"}, {})
