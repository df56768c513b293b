"""Quotas of clients by Kafka's requests: set, described, and kept by throttling."""

from __future__ import annotations

from typing import Any

import pytest

from stratalog.replication.metadata.acls import Principal
from stratalog.replication.metadata.client_quotas import (
    CLIENT_ID,
    MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    QuotaEntity,
    QuotaInForce,
    alter_client_quota,
    quota_in_force,
)
from stratalog.replication.metadata.image import ClusterImage
from stratalog.server.quotas.client_quotas import INACTIVE_MS, PRUNED_FROM, ClientQuotas
from stratalog.server.quotas.rates import QuotaWindow
from stratalog.server.request.api import Connection
from stratalog.wire.api_keys import ApiKey
from tests.clients.kafka_client import Answer, KafkaClient, batch_of, code, framed
from tests.storage.logs import FakeClock

EXACT, DEFAULT, SPECIFIED = range(3)


def entry(entity: dict[str, str | None], **values: float | None) -> dict[str, Any]:
    ops = [{"key": key, "value": value or 0.0, "remove": value is None} for key, value in values.items()]
    return {"entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity.items()], "ops": ops}


def alter(client: KafkaClient, *entries: dict[str, Any], version: int = 1, **more: Any) -> list[int]:
    answer = client.ask(ApiKey.ALTER_CLIENT_QUOTAS, version, {"entries": entries, "validate_only": False, **more})
    return [code(each) for each in answer.entries]


def described(client: KafkaClient, *parts: tuple[str, int, str | None], strict: bool = False) -> Any:
    components = [{"entity_type": kind, "match_type": how, "match": match} for kind, how, match in parts]
    answer = client.ask(ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, {"components": components, "strict": strict})
    if code(answer):
        return code(answer)
    return [
        ({p.entity_type: p.entity_name for p in each.entity}, {v.key: v.value for v in each.values})
        for each in answer.entries
    ]


# -- AlterClientQuotas, DescribeClientQuotas -----------------------------------------------------------------------


def test_an_entitys_parts_are_named_in_kafkas_order(client: KafkaClient) -> None:
    one = entry({"user": "a", "client-id": None}, producer_byte_rate=1.0)
    answer = client.ask(ApiKey.ALTER_CLIENT_QUOTAS, 1, {"entries": [one], "validate_only": False})
    assert [part.entity_type for part in answer.entries[0].entity] == ["client-id", "user"]


@pytest.mark.parametrize(
    "keys",
    [
        ["consumer_byte_rate", "request_percentage", "producer_byte_rate"],
        ["consumer_byte_rate", "producer_byte_rate"],
        ["producer_byte_rate", "consumer_byte_rate", "controller_mutation_rate", "request_percentage"],
    ],
)
def test_an_entitys_quotas_are_named_in_kafkas_order(client: KafkaClient, keys: list[str]) -> None:
    """Kafka's order as OpenJDK 17's HashMaps have it, for keys that are set at once."""
    alter(client, entry({"user": "a"}, **dict.fromkeys(sorted(keys), 1.0)))
    ((_, values),) = described(client, ("user", EXACT, "a"))
    assert list(values) == keys


def test_entities_are_described_in_kafkas_order(client: KafkaClient) -> None:
    """As a HashMap of OpenJDK 17 has these, which grew from nothing."""
    in_order: list[dict[str, str | None]] = [
        {"client-id": "c", "user": "alice"},
        {"client-id": "c"},
        {"user": "alice"},
        {"client-id": None, "user": None},
    ]
    alter(client, *(entry(each, producer_byte_rate=1.0) for each in reversed(in_order)))
    assert [entity for entity, _ in described(client)] == in_order


def test_of_entities_in_one_bucket_a_user_comes_before_its_clients(client: KafkaClient) -> None:
    """Kafka has the older one first, and most give a user a quota before they give one of its clients another."""
    user: dict[str, str | None] = {"user": "User1"}
    of_client: dict[str, str | None] = {"user": "User1", "client-id": "Client1"}
    alter(client, entry(user, producer_byte_rate=1.0))
    alter(client, entry(of_client, producer_byte_rate=1.0))
    assert [entity for entity, _ in described(client)] == [user, of_client]


@pytest.mark.parametrize("version", [0, 1])
def test_quotas_are_set_described_and_removed(client: KafkaClient, version: int) -> None:
    alice = {"user": "alice"}
    assert alter(client, entry(alice, producer_byte_rate=1_024.0, request_percentage=12.5), version=version) == [0]
    assert described(client) == [(alice, {"producer_byte_rate": 1_024.0, "request_percentage": 12.5})]
    assert alter(client, entry(alice, producer_byte_rate=None), version=version) == [0]
    assert described(client) == [(alice, {"request_percentage": 12.5})]
    assert alter(client, entry(alice, request_percentage=None), version=version) == [0]
    assert described(client) == []


def test_a_quota_that_is_only_validated_is_not_set(client: KafkaClient) -> None:
    assert alter(client, entry({"user": "a"}, producer_byte_rate=1.0), validate_only=True) == [0]
    assert described(client) == []


@pytest.mark.parametrize(
    ("entity", "values"),
    [
        ({}, {"producer_byte_rate": 1.0}),
        ({"user": ""}, {"producer_byte_rate": 1.0}),
        ({"group": "g"}, {"producer_byte_rate": 1.0}),
        ({"ip": "127.0.0.1"}, {"connection_creation_rate": 1.0}),
        ({"user": "a"}, {"producer_byte_rate": 0.5}),
        ({"user": "a"}, {"producer_byte_rate": 0.0}),
        ({"user": "a"}, {"request_percentage": -1.0}),
        ({"user": "a"}, {"no_such_rate": 1.0}),
    ],
)
def test_a_quota_that_cannot_be_is_refused(
    client: KafkaClient, entity: dict[str, str | None], values: dict[str, float]
) -> None:
    assert alter(client, entry(entity, **values)) == [42]


def test_an_entity_or_a_key_that_is_named_twice_is_refused(client: KafkaClient) -> None:
    one = entry({"user": "a"}, producer_byte_rate=1.0)
    twice = entry({"user": "b"}, producer_byte_rate=1.0)
    twice["ops"] *= 2
    assert alter(client, one, one, twice, entry({"user": "c"}, producer_byte_rate=1.0)) == [42, 42, 42, 0]


@pytest.mark.parametrize(
    ("parts", "strict", "found"),
    [
        ([("user", EXACT, "a")], False, {"a", "a/x"}),
        ([("user", EXACT, "a")], True, {"a"}),
        ([("user", DEFAULT, None)], False, {"default"}),
        ([("user", SPECIFIED, None)], True, {"a", "default"}),
        ([("client-id", SPECIFIED, None)], False, {"a/x", "x"}),
        ([("user", SPECIFIED, None), ("client-id", SPECIFIED, None)], True, {"a/x"}),
        ([], False, {"a", "a/x", "default", "x"}),
        ([], True, set()),
        ([("user", EXACT, None)], False, 42),
        ([("user", SPECIFIED, "a")], False, 42),
        ([("user", 3, None)], False, 42),
        ([("", EXACT, "a")], False, 42),
        ([("user", EXACT, "a"), ("user", DEFAULT, None)], False, 42),
        ([("ip", EXACT, "1.2.3.4"), ("user", EXACT, "a")], False, 42),
        ([("group", EXACT, "a")], False, 35),
    ],
)
def test_quotas_are_found_by_their_parts(client: KafkaClient, parts: Any, strict: bool, found: Any) -> None:
    names: dict[str, dict[str, str | None]] = {
        "a": {"user": "a"},
        "a/x": {"user": "a", "client-id": "x"},
        "default": {"user": None},
        "x": {"client-id": "x"},
    }
    assert alter(client, *(entry(entity, producer_byte_rate=1.0) for entity in names.values())) == [0] * 4
    answer = described(client, *parts, strict=strict)
    if isinstance(answer, list):
        assert {name for name, entity in names.items() if any(entity == each for each, _ in answer)} == found
    else:
        assert answer == found


def test_the_most_special_quota_counts() -> None:
    """KIP-55's order; a quota of a user alone is shared by its clients, and the reverse."""
    order: list[tuple[QuotaEntity, tuple[str, str]]] = [
        ((("client-id", "x"), ("user", "a")), ("a", "x")),
        ((("client-id", None), ("user", "a")), ("a", "x")),
        ((("user", "a"),), ("a", "")),
        ((("client-id", "x"), ("user", None)), ("a", "x")),
        ((("client-id", None), ("user", None)), ("a", "x")),
        ((("user", None),), ("a", "")),
        ((("client-id", "x"),), ("", "x")),
        ((("client-id", None),), ("", "x")),
    ]
    quotas = {entity: {PRODUCER_BYTE_RATE: float(place)} for place, (entity, _) in enumerate(order)}
    for place, (entity, shared) in enumerate(order):
        assert quota_in_force(quotas, PRODUCER_BYTE_RATE, "a", "x") == QuotaInForce(place, *shared)
        del quotas[entity]
    assert quota_in_force(quotas, PRODUCER_BYTE_RATE, "a", "x") is None


# -- throttling --------------------------------------------------------------------------------------------------


class Throttled:
    """A connection of one client, and how long it was throttled for each request."""

    def __init__(self, client: KafkaClient, user: str = "alice", client_id: str = "c") -> None:
        self.client, self.client_id = client, client_id
        self.durations_ms: list[int] = []
        self.user = user

    def ask(self, key: int, version: int, values: dict[str, Any]) -> Any:
        answer = Answer(key, version)
        connection = Connection(Principal(f"User:{self.user}"), answer.close, throttle=self.durations_ms.append)
        handler = self.client.handlers[1]
        handler.broker.view.refresh()
        handler.handle(framed(key, version, values, self.client_id), connection, answer.receive)
        return answer()

    def produce(self, size_bytes: int, acks: int = -1) -> Any:
        data = {"name": "t", "partition_data": [{"index": 0, "records": batch_of(b"x" * size_bytes)}]}
        return self.ask(ApiKey.PRODUCE, 9, {"acks": acks, "timeout": 1_000, "topic_data": [data]})

    def fetch(self) -> Any:
        partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
        topics = [{"topic": "t", "partitions": [partition]}]
        return self.ask(ApiKey.FETCH, 12, {"max_wait": 0, "min_bytes": 1, "topics": topics})


def told_ms(response: Any) -> float:
    return float(response.throttle_time)


def test_a_producer_that_is_too_fast_is_told_and_its_connection_waits(client: KafkaClient) -> None:
    producer, other = Throttled(client), Throttled(client, "bob")
    assert told_ms(producer.produce(20_000)) == 0
    alter(client, entry({"user": "alice"}, producer_byte_rate=1_000.0))
    assert told_ms(producer.produce(5_000)) == 0
    response = producer.produce(15_000)
    assert code(response.responses[0].partition_responses[0]) == 0, "its records are stored"
    assert producer.durations_ms == [told_ms(response)]
    assert 9_000 < producer.durations_ms[0] < 12_000, "20,000 bytes where 10,000 are allowed in 10 s"
    assert producer.produce(10, acks=0) is None
    assert len(producer.durations_ms) == 2, "without an answer the connection waits all the same"
    assert told_ms(other.produce(50_000)) == 0
    alter(client, entry({"user": "alice"}, producer_byte_rate=None))
    assert told_ms(producer.produce(50_000)) == 0


def test_a_consumer_that_is_too_fast_is_told_with_its_records(client: KafkaClient) -> None:
    Throttled(client).produce(30_000)
    alter(client, entry({"client-id": "c"}, consumer_byte_rate=1_000.0))
    consumer = Throttled(client)
    response = consumer.fetch()
    assert 15_000 < told_ms(response) == consumer.durations_ms[0] < 25_000
    assert len(response.responses[0].partitions[0].records) > 30_000
    assert told_ms(Throttled(client, client_id="d").fetch()) == 0


def test_time_of_threads_is_limited_and_the_wait_is_bounded(client: KafkaClient) -> None:
    alter(client, entry({"user": None}, request_percentage=1e-6))
    asking = Throttled(client)
    assert told_ms(asking.ask(ApiKey.METADATA, 12, {"topics": None})) == 1_000


def test_partitions_are_made_no_faster_than_the_quota(client: KafkaClient) -> None:
    alter(client, entry({"user": "alice"}, controller_mutation_rate=1.0))

    def created(version: int, name: str) -> Any:
        topic = {"name": name, "num_partitions": 21, "replication_factor": 1, "assignments": (), "configs": ()}
        return Throttled(client).ask(ApiKey.CREATE_TOPICS, version, {"topics": [topic], "timeout": 1_000})

    first, second, older = created(7, "a"), created(7, "b"), created(5, "c")
    assert (code(first.topics[0]), told_ms(first)) == (0, 0), "the bucket may be overdrawn"
    assert code(second.topics[0]) == 89
    assert told_ms(second) == pytest.approx(10_000, abs=500), "21 where a window of 11 s allows 11"
    assert code(older.topics[0]) == 0
    assert told_ms(older) == pytest.approx(31_000, abs=500), "an older client is throttled, not refused"


def test_clients_with_ids_of_their_own_are_forgotten() -> None:
    """All that each of them did was one request, a while ago."""
    image, clock = ClusterImage(), FakeClock()
    for record in alter_client_quota(image, [(CLIENT_ID, None)], [(MUTATION_RATE, 10.0)]).records:
        image = image.fold(record)
    quotas = ClientQuotas(lambda: image, lambda: 1, clock, QuotaWindow())
    for number in range(3 * PRUNED_FROM):
        clock.now_ms += INACTIVE_MS // PRUNED_FROM
        use = quotas.of_request(Principal("User:a"), f"client-{number}", ApiKey.CREATE_TOPICS, 100)
        assert use is not None
        use.mutates(1, is_strict=True)
    assert quotas.size < 2 * PRUNED_FROM
