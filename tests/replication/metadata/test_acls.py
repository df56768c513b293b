"""ACLs decide as Kafka's StandardAuthorizer: the first tables are those of its StandardAuthorizerTest."""

from __future__ import annotations

import pytest

from stratalog.replication.config import BrokerConfig, parse_principals
from stratalog.replication.metadata.acls import (
    CLUSTER,
    AclBinding,
    AclFilter,
    Authorizer,
    Operation,
    PatternType,
    Permission,
    Principal,
    Resource,
    ResourceType,
    authorizer_of,
    create_acls,
    delete_acls,
    describe_acls,
)
from stratalog.replication.metadata.image import ClusterImage, Result
from stratalog.replication.metadata.records import record_from_json, record_to_json
from stratalog.storage.clock import RandomIds
from stratalog.storage.errors import InvalidConfigError, InvalidRequestError
from tests.replication.images import GrowingImage

CLASS = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


def acl(text: str) -> AclBinding:
    """`ALLOW User:bob READ TOPIC foo_* [from HOST]`; a last `*` makes the name a prefix, `**` stands for `*`."""
    permission, principal, operation, kind, name, *rest = text.split()
    is_prefix = name.endswith("*") and name != "**"
    return AclBinding(
        ResourceType(kind),
        "*" if name == "**" else name.removesuffix("*"),
        PatternType.PREFIXED if is_prefix else PatternType.LITERAL,
        principal,
        rest[1] if rest else "*",
        Operation(operation),
        Permission(permission),
    )


def asks(authorizer: Authorizer, text: str) -> bool:
    """`bob READ TOPIC foo [from HOST]`"""
    who, operation, kind, name, *rest = text.split()
    principal = Principal(f"User:{who}", *rest[1:])
    return authorizer.authorize(principal, Operation(operation), Resource(ResourceType(kind), name))


@pytest.mark.parametrize(
    ("rule", "client"),
    [
        ("10.0.0.7", "::ffff:10.0.0.7"),
        ("::ffff:10.0.0.7", "10.0.0.7"),
        ("0:0:0:0:0:0:0:1", "::1"),
        ("FE80::1", "fe80::1%eth0"),
    ],
)
def test_a_rule_by_host_counts_for_every_form_of_the_address(rule: str, client: str) -> None:
    authorizer = Authorizer(map(acl, ("ALLOW User:* READ TOPIC foo", f"DENY User:alice READ TOPIC foo from {rule}")))
    assert not asks(authorizer, f"alice READ TOPIC foo from {client}")
    assert asks(authorizer, "alice READ TOPIC foo from 10.0.0.8")
    assert AclFilter(host=client).matches(acl(f"ALLOW User:bob READ TOPIC foo from {rule}"))
    assert not AclFilter(host="10.0.0.8").matches(acl(f"ALLOW User:bob READ TOPIC foo from {rule}"))


DENY_WITH_ALL = (
    "DENY User:alice ALL TOPIC foo",
    "ALLOW User:alice READ TOPIC foo*",
    "DENY User:* ALL TOPIC foo",
    "ALLOW User:* DESCRIBE TOPIC foo*",
)
ALLOW_ALL = ("ALLOW User:* ALL TOPIC foo", "ALLOW User:alice ALL TOPIC bar*", "ALLOW User:bob ALL TOPIC baz")
HOSTS = (
    "DENY User:alice READ TOPIC foo from 192.168.1.1",
    "ALLOW User:alice READ TOPIC foo",
    "ALLOW User:bob READ TOPIC bar from 192.168.1.2",
    "ALLOW User:* DESCRIBE TOPIC bar from 127.0.0.1",
)
MANY = (
    "ALLOW User:* READ TOPIC green2",
    "ALLOW User:bob READ TOPIC green*",
    "ALLOW User:bob READ TOPIC betamax4",
    "ALLOW User:bob READ TOPIC betamax",
    "ALLOW User:* READ TOPIC beta*",
    "ALLOW User:* READ TOPIC alpha*",
    "DENY User:bob READ TOPIC alp*",
    "ALLOW User:bob WRITE GROUP **",
    "DENY User:* WRITE GROUP wheel",
)
PREFIXES = ("ALLOW User:alice ALL TOPIC fooa*", "ALLOW User:bob ALL TOPIC foobar", "ALLOW User:bob ALL TOPIC f*")


@pytest.mark.parametrize(
    ("acls", "request_", "allowed"),
    [
        (DENY_WITH_ALL, "alice WRITE TOPIC foo", False),
        (DENY_WITH_ALL, "alice READ TOPIC foo", False),
        (DENY_WITH_ALL, "alice DESCRIBE TOPIC foo", False),
        (DENY_WITH_ALL, "alice READ TOPIC foobar", True),
        (DENY_WITH_ALL, "bob DESCRIBE TOPIC foo", False),
        (DENY_WITH_ALL, "bob READ TOPIC foo", False),
        (DENY_WITH_ALL, "bob DESCRIBE TOPIC foobaz", True),
        (DENY_WITH_ALL, "bob READ TOPIC foobaz", False),
        (ALLOW_ALL, "alice WRITE TOPIC foo", True),
        (ALLOW_ALL, "alice DESCRIBE_CONFIGS TOPIC bar", True),
        (ALLOW_ALL, "alice DESCRIBE TOPIC baz", False),
        (ALLOW_ALL, "bob READ TOPIC bar", False),
        (ALLOW_ALL, "bob DESCRIBE TOPIC baz", True),
        (ALLOW_ALL, "malory DESCRIBE TOPIC foo", True),
        (ALLOW_ALL, "malory WRITE TOPIC bar", False),
        (HOSTS, "alice READ TOPIC foo", True),
        (HOSTS, "alice READ TOPIC bar", False),
        (HOSTS, "alice DESCRIBE TOPIC bar", True),
        (HOSTS, "alice READ TOPIC foo from 192.168.1.1", False),
        (HOSTS, "alice READ TOPIC foo from 192.168.1.2", True),
        (HOSTS, "alice DESCRIBE TOPIC bar from 192.168.1.2", False),
        (HOSTS, "bob READ TOPIC bar", False),
        (HOSTS, "bob READ TOPIC bar from 192.168.1.2", True),
        (HOSTS, "bob DESCRIBE TOPIC bar from 192.168.1.2", True),
        (HOSTS, "bob DESCRIBE TOPIC bar from 192.168.1.1", False),
        (MANY, "bob READ TOPIC green1", True),
        (MANY, "bob WRITE GROUP wheel", False),
        (MANY, "bob READ TOPIC alpha", False),
        (MANY, "bob WRITE GROUP arbitrary", True),
        (MANY, "bob READ TOPIC ala", False),
        (PREFIXES, "bob WRITE TOPIC foobarr", True),
        (PREFIXES, "bob READ TOPIC goobar", False),
        (PREFIXES, "bob READ TOPIC fooa", True),
        (PREFIXES, "alice DESCRIBE TOPIC fooa", True),
        (PREFIXES, "alice WRITE TOPIC bar", False),
        (("ALLOW User:bob READ TOPIC t",), "bob READ GROUP t", False),
        (("ALLOW User:bob READ TOPIC t",), "bob READ TOPIC tt", False),
        (("ALLOW User:bob READ TOPIC tt*",), "bob READ TOPIC t", False),
        (("ALLOW User:* CLUSTER_ACTION CLUSTER kafka-cluster",), "bob CLUSTER_ACTION CLUSTER kafka-cluster", True),
    ],
)
def test_a_deny_beats_every_allow_and_a_name_is_met_by_itself_by_its_prefixes_and_by_the_star(
    acls: tuple[str, ...], request_: str, allowed: bool
) -> None:
    assert asks(Authorizer(acl(text) for text in acls), request_) is allowed


@pytest.mark.parametrize(
    ("permission", "has", "wants", "allowed"),
    [
        *[("ALLOW", op, "DESCRIBE", True) for op in ("DESCRIBE", "READ", "WRITE", "DELETE", "ALTER")],
        ("ALLOW", "CREATE", "DESCRIBE", False),
        ("ALLOW", "DESCRIBE", "READ", False),
        ("ALLOW", "DESCRIBE_CONFIGS", "DESCRIBE_CONFIGS", True),
        ("ALLOW", "ALTER_CONFIGS", "DESCRIBE_CONFIGS", True),
        ("ALLOW", "DESCRIBE_CONFIGS", "ALTER_CONFIGS", False),
        *[("DENY", op, "DESCRIBE", True) for op in ("READ", "WRITE", "DELETE", "ALTER")],
        ("DENY", "DESCRIBE", "DESCRIBE", False),
        ("DENY", "ALTER_CONFIGS", "DESCRIBE_CONFIGS", True),
    ],
)
def test_an_allow_implies_describe_and_a_deny_implies_nothing(
    permission: str, has: str, wants: str, allowed: bool
) -> None:
    """With a deny, another binding allows everything, so that the deny alone decides."""
    others = ("ALLOW User:bob ALL TOPIC foo_*",) if permission == "DENY" else ()
    authorizer = Authorizer(acl(text) for text in (f"{permission} User:bob {has} TOPIC foo_*", *others))
    assert asks(authorizer, f"bob {wants} TOPIC foo_bar") is allowed


@pytest.mark.parametrize(
    ("default", "topic", "allowed"),
    [(True, "topic1", False), (True, "topic2", True), (False, "topic1", False), (False, "topic2", False)],
)
def test_where_no_acl_names_the_resource_the_setting_decides(default: bool, topic: str, allowed: bool) -> None:
    acls = [acl("ALLOW User:Alice READ TOPIC topic1")]
    authorizer = Authorizer(acls, allow_everyone_if_no_acl_found=default)
    assert asks(authorizer, f"Bob READ TOPIC {topic}") is allowed


def test_a_super_user_may_do_what_is_denied_to_everyone() -> None:
    acls = [acl("DENY User:* ALL TOPIC **")]
    assert asks(Authorizer(acls, ["User:superman"]), "superman WRITE TOPIC t")
    assert not asks(Authorizer(acls, ["User:superman"]), "alice WRITE TOPIC t")


@pytest.mark.parametrize(
    ("acls", "allowed"),
    [
        ((), False),
        (("ALLOW User:bob WRITE TOPIC a",), True),
        (("ALLOW User:bob READ TOPIC a",), False),
        (("ALLOW User:alice WRITE TOPIC a",), False),
        (("ALLOW User:bob WRITE GROUP a",), False),
        (("ALLOW User:* ALL TOPIC a*",), True),
        (("ALLOW User:bob WRITE TOPIC a from 10.0.0.1",), False),
        (("ALLOW User:bob WRITE TOPIC a", "DENY User:bob WRITE TOPIC a"), False),
        (("ALLOW User:bob WRITE TOPIC a", "DENY User:bob WRITE TOPIC b"), True),
        (("ALLOW User:bob WRITE TOPIC ab", "DENY User:bob WRITE TOPIC a*"), False),
        (("ALLOW User:bob WRITE TOPIC ab*", "DENY User:bob WRITE TOPIC a*"), False),
        (("ALLOW User:bob WRITE TOPIC a*", "DENY User:bob WRITE TOPIC ab*"), True),
        (("ALLOW User:bob WRITE TOPIC a*", "DENY User:bob WRITE TOPIC a"), True),
        (("ALLOW User:bob WRITE TOPIC **", "DENY User:bob WRITE TOPIC a*"), True),
        (("ALLOW User:bob WRITE TOPIC **", "DENY User:* ALL TOPIC **"), False),
        (("ALLOW User:bob IDEMPOTENT_WRITE CLUSTER kafka-cluster",), True),
    ],
)
def test_who_may_write_to_any_topic_may_write_idempotently(acls: tuple[str, ...], allowed: bool) -> None:
    """KIP-679, with the dominance rules of Kafka's AuthorizerInterfaceDefault."""
    assert Authorizer(acl(text) for text in acls).may_write_idempotently(Principal("User:bob")) is allowed


@pytest.mark.parametrize(
    ("kind", "operation", "name"),
    [
        ("TOPIC", "WRITE", "TOPIC_AUTHORIZATION_FAILED"),
        ("GROUP", "READ", "GROUP_AUTHORIZATION_FAILED"),
        ("CLUSTER", "IDEMPOTENT_WRITE", "CLUSTER_AUTHORIZATION_FAILED"),
        ("TRANSACTIONAL_ID", "WRITE", "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"),
    ],
)
def test_a_refusal_is_the_error_of_its_resource_type(kind: str, operation: str, name: str) -> None:
    resource = CLUSTER if kind == "CLUSTER" else Resource(ResourceType(kind), "r")
    refused = Authorizer(()).refusal(Principal("User:bob"), Operation(operation), resource)
    assert refused is not None
    assert (refused.name, refused.retriable) == (name, False)
    assert str(refused) == f"User:bob is not allowed to {operation} {resource}"
    allowing = Authorizer([acl(f"ALLOW User:bob {operation} {kind} {resource.name}")])
    assert allowing.refusal(Principal("User:bob"), Operation(operation), resource) is None


def test_authorized_operations_are_a_bit_for_each_code() -> None:
    topic = Resource(ResourceType.TOPIC, "t")
    assert Authorizer([acl("ALLOW User:bob READ TOPIC t")]).authorized_operations(Principal("User:bob"), topic) == 264
    everything = Authorizer((), ["User:bob"]).authorized_operations(Principal("User:bob"), topic)
    assert everything == sum(1 << code for code in (3, 4, 5, 6, 7, 8, 10, 11))


def committed(image: GrowingImage, result: Result[object]) -> None:
    """Replay a decision by way of the bytes that the metadata log holds."""
    image.becomes(image.fold(*(record_from_json(record_to_json(record)[1]) for record in result.records)))


def test_bindings_are_metadata_records_that_come_once_and_go_by_filter() -> None:
    image, ids = GrowingImage(), RandomIds()
    bindings = [acl(text.replace("WRITE GROUP", "READ GROUP")) for text in MANY]
    committed(image, create_acls(image, bindings, ids))
    assert create_acls(image, bindings[:3], ids).records == ()
    assert set(describe_acls(image, AclFilter())) == set(bindings)
    of_green2 = describe_acls(image, AclFilter(ResourceType.TOPIC, "green2", match_pattern=True))
    assert [b.resource_name for b in of_green2] == ["green", "green2"]
    removed = delete_acls(image, [AclFilter(principal="User:bob", operation=Operation.READ)])
    committed(image, removed)
    assert len(removed.response) == 5
    assert {b.principal for b in describe_acls(image, AclFilter(ResourceType.TOPIC))} == {"User:*"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ALLOW User:bob WRITE GROUP g", "ResourceType GROUP only supports operations .*; found WRITE"),
        ("ALLOW User:bob ALTER CLUSTER other", "The only valid name for the CLUSTER resource is kafka-cluster"),
        ("ALLOW User:bob READ TOPIC *", "Resource name should not be empty"),
    ],
)
def test_a_binding_that_means_nothing_is_refused(text: str, message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        create_acls(ClusterImage(), [acl(text)], RandomIds())


def test_it_is_off_by_default_and_takes_its_settings_from_the_brokers() -> None:
    image = GrowingImage()
    assert authorizer_of(image, BrokerConfig().properties()) is None
    committed(image, create_acls(image, [acl("ALLOW User:bob READ TOPIC t")], RandomIds()))
    settings = {"authorizer.class.name": CLASS, "super.users": "User:root"}
    authorizer = authorizer_of(image, BrokerConfig.from_properties(settings).properties())
    assert authorizer is not None
    assert [asks(authorizer, f"{who} READ TOPIC t") for who in ("bob", "root", "eve")] == [True, True, False]
    assert not asks(authorizer, "eve READ TOPIC other")
    lenient = settings | {"allow.everyone.if.no.acl.found": "true"}
    authorizer = authorizer_of(image, BrokerConfig.from_properties(lenient).properties())
    assert authorizer is not None
    assert asks(authorizer, "eve READ TOPIC other")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"authorizer.class.name": "mine"}, "Class mine could not be found"),
        ({"super.users": "bob;:alice"}, "expected a string in format principalType:principalName but got bob"),
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidConfigError, match=message):
        BrokerConfig.from_properties(settings)


@pytest.mark.parametrize(
    ("text", "users"),
    [(" ", ()), ("User:bob;User:alice ", ("alice", "bob")), (";  User:bob  ;  User:alice ", ("alice", "bob"))],
)
def test_super_users_stand_between_semicolons(text: str, users: tuple[str, ...]) -> None:
    assert parse_principals(text) == {f"User:{name}" for name in users}
