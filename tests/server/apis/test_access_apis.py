"""ACLs and SCRAM credentials by Kafka's requests, and SASL on a connection that needs none."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from stratalog.replication.metadata.acls import Principal
from stratalog.wire.api_keys import ApiKey
from tests.clients.kafka_client import KafkaClient, code
from tests.clients.memory_cluster import MemoryCluster

ANY, MATCH = 1, 2
TOPIC, GROUP, CLUSTER, USER = 2, 3, 4, 7
LITERAL, PREFIXED = 3, 4
ALL, READ, WRITE = 2, 3, 4
DENY, ALLOW = 2, 3
SETTINGS = {"authorizer.class.name": "StandardAuthorizer", "super.users": "User:root"}


@pytest.fixture
def client() -> Iterator[KafkaClient]:
    cluster = MemoryCluster()
    with KafkaClient(cluster, stores=cluster.stores, settings=SETTINGS) as made:
        made.principal = Principal("User:root")
        yield made


def binding(name: str = "t", **fields: Any) -> dict[str, Any]:
    return {
        "resource_type": TOPIC,
        "resource_name": name,
        "resource_pattern_type": LITERAL,
        "principal": "User:alice",
        "host": "*",
        "operation": READ,
        "permission_type": ALLOW,
        **fields,
    }


def wanted(**fields: Any) -> dict[str, Any]:
    return {
        "resource_type_filter": ANY,
        "resource_name_filter": None,
        "pattern_type_filter": ANY,
        "principal_filter": None,
        "host_filter": None,
        "operation": ANY,
        "permission_type": ANY,
        **fields,
    }


def create(client: KafkaClient, *bindings: dict[str, Any]) -> list[tuple[int, str | None]]:
    response = client.ask(ApiKey.CREATE_ACLS, 3, {"creations": bindings})
    return [(code(each), each.error_message) for each in response.results]


def described(client: KafkaClient, **fields: Any) -> list[tuple[str, int]]:
    """Resource's name and number of entries."""
    response = client.ask(ApiKey.DESCRIBE_ACLS, 3, wanted(**fields))
    assert code(response) == 0
    return [(each.resource_name, len(each.acls)) for each in response.resources]


def test_bindings_are_created_described_and_deleted(client: KafkaClient) -> None:
    prefix = binding("order", resource_pattern_type=PREFIXED, operation=WRITE, permission_type=DENY)
    assert create(client, binding(), binding(), binding(operation=WRITE), prefix) == [(0, None)] * 4
    assert described(client) == [("order", 1), ("t", 2)]
    assert described(client, resource_name_filter="orders") == []
    assert described(client, resource_name_filter="orders", pattern_type_filter=MATCH) == [("order", 1)]
    assert described(client, operation=WRITE, permission_type=ALLOW) == [("t", 1)]
    assert described(client, resource_type_filter=USER) == []
    (resource,) = client.ask(ApiKey.DESCRIBE_ACLS, 3, wanted(permission_type=DENY)).resources
    assert (resource.resource_type, resource.pattern_type) == (TOPIC, PREFIXED)
    (entry,) = resource.acls
    assert (entry.principal, entry.host, entry.operation, entry.permission_type) == ("User:alice", "*", WRITE, DENY)
    filters = [wanted(resource_name_filter="t"), wanted(operation=READ), wanted(principal_filter="User:bob")]
    deleted = client.ask(ApiKey.DELETE_ACLS, 3, {"filters": filters}).filter_results
    assert [(code(each), len(each.matching_acls)) for each in deleted] == [(0, 2), (0, 1), (0, 0)]
    assert described(client) == [("order", 1)]


NO_TYPE = (
    "Could not parse principal from `alice` (no colon is present separating the principal type from the principal name)"
)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"resource_type": CLUSTER}, "The only valid name for the CLUSTER resource is kafka-cluster"),
        ({"resource_name": ""}, "Invalid empty resource name"),
        ({"principal": "alice"}, NO_TYPE),
        ({"resource_type": ANY}, "Invalid resourceType ANY"),
        ({"resource_type": USER}, "Invalid resourceType USER"),
        ({"resource_pattern_type": MATCH}, "Invalid patternType MATCH"),
        ({"operation": ANY}, "Invalid operation ANY"),
        ({"permission_type": ANY}, "Invalid permissionType ANY"),
    ],
)
def test_a_bad_binding_is_refused_alone(client: KafkaClient, fields: dict[str, Any], reason: str) -> None:
    assert create(client, binding(), {**binding(), **fields}) == [(0, None), (42, reason)]
    assert described(client) == [("t", 1)]


def test_an_unknown_filter_is_refused(client: KafkaClient) -> None:
    assert code(client.ask(ApiKey.DESCRIBE_ACLS, 3, wanted(operation=0))) == 42
    (result,) = client.ask(ApiKey.DELETE_ACLS, 3, {"filters": [wanted(resource_type_filter=99)]}).filter_results
    assert (code(result), result.error_message) == (42, "Unknown patternFilter.")


def test_acls_are_for_those_who_may(client: KafkaClient) -> None:
    client.principal = Principal("User:alice")
    assert code(client.ask(ApiKey.DESCRIBE_ACLS, 3, wanted())) == 31
    assert [each for each, _ in create(client, binding(), binding("u"))] == [31, 31]
    assert code(client.ask(ApiKey.DELETE_ACLS, 3, {"filters": [wanted()]}).filter_results[0]) == 31


def test_without_an_authorizer_acls_are_disabled() -> None:
    cluster = MemoryCluster()
    with KafkaClient(cluster, stores=cluster.stores) as client:
        response = client.ask(ApiKey.DESCRIBE_ACLS, 3, wanted())
        assert (code(response), response.error_message) == (54, "No Authorizer is configured on the broker")
        assert create(client, binding()) == [(54, "No Authorizer is configured.")]


# -- SCRAM credentials --------------------------------------------------------------------------------------------


def upsertion(name: str = "alice", mechanism: int = 1, iterations: int = 4_096) -> dict[str, Any]:
    return {"name": name, "mechanism": mechanism, "iterations": iterations, "salt": b"s" * 16, "salted_password": b"p"}


def altered(client: KafkaClient, *upsertions: dict[str, Any], deletions: Any = ()) -> dict[str, tuple[int, str | None]]:
    response = client.ask(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, {"deletions": deletions, "upsertions": upsertions})
    return {each.user: (code(each), each.error_message) for each in response.results}


def test_credentials_are_set_described_and_removed(client: KafkaClient) -> None:
    assert altered(client, upsertion(), upsertion("bob", 2, 8_192)) == {"alice": (0, None), "bob": (0, None)}
    assert altered(client, upsertion(mechanism=2)) == {"alice": (0, None)}
    found = client.ask(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, {"users": None}).results
    infos = {each.user: [(info.mechanism, info.iterations) for info in each.credential_infos] for each in found}
    assert infos == {"alice": [(1, 4_096), (2, 4_096)], "bob": [(2, 8_192)]}
    assert altered(client, deletions=[{"name": "alice", "mechanism": 1}]) == {"alice": (0, None)}
    asked = client.ask(
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        0,
        {"users": [{"name": name} for name in ("carol", "bob", "bob", "alice")]},
    )
    assert [(each.user, code(each)) for each in asked.results] == [("carol", 91), ("bob", 92), ("alice", 0)]


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (upsertion(iterations=4_095), (93, "Too few iterations")),
        (upsertion(iterations=16_385), (93, "Too many iterations")),
        (upsertion(""), (93, "Username must not be empty")),
        ({**upsertion(), "salted_password": b""}, (93, "The salted password must not be empty")),
        (upsertion("\ufb01sh"), (93, "Username must be in the form that logins have (SASLprep, NFKC)")),
        (upsertion("a\u00ad"), (93, "Username must be in the form that logins have (SASLprep, NFKC)")),
        (upsertion(mechanism=3), (33, "Unknown SCRAM mechanism")),
    ],
)
def test_a_bad_credential_is_refused_alone(client: KafkaClient, change: dict[str, Any], error: tuple[int, str]) -> None:
    assert altered(client, change, upsertion("bob")) == {change["name"]: error, "bob": (0, None)}


def test_a_user_is_altered_once_in_a_request(client: KafkaClient) -> None:
    twice = (92, "A user credential cannot be altered twice in the same request")
    assert altered(client, upsertion(), upsertion(mechanism=2), upsertion("bob")) == {"alice": twice, "bob": (0, None)}
    gone = [{"name": "bob", "mechanism": 2}]
    absent = (91, "Attempt to delete a user credential that does not exist")
    assert altered(client, deletions=gone) == {"bob": absent}


def test_credentials_are_for_those_who_may(client: KafkaClient) -> None:
    client.principal = Principal("User:alice")
    assert code(client.ask(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, {"users": None})) == 31
    assert {user: error for user, (error, _) in altered(client, upsertion()).items()} == {"alice": 31}


def test_passwords_among_the_settings_are_not_shown() -> None:
    cluster = MemoryCluster()
    secret = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="secret";'
    with KafkaClient(cluster, stores=cluster.stores, settings={"sasl.jaas.config": secret}) as client:
        resource = {"resource_type": 4, "resource_name": "1", "configuration_keys": ["sasl.jaas.config"]}
        (result,) = client.ask(ApiKey.DESCRIBE_CONFIGS, 4, {"resources": [resource], "include_synonyms": True}).results
        (config,) = result.configs
        assert (config.value, config.is_sensitive, config.config_type) == (None, True, 9)
        assert [each.value for each in config.synonyms] == [None, None]
        assert "secret" not in repr(client.handlers[1].broker.config)
