"""PLAIN, SCRAM and OAUTHBEARER as tables; JAAS configs; users of certificates' names."""

from __future__ import annotations

import json
import re
from base64 import b64decode
from collections.abc import Mapping
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from kafka.net.sasl.scram import ScramClient as KafkaPythonScram
from scramp import ScramClient

from stratalog.replication.metadata.image import ClusterImage
from stratalog.replication.metadata.records import UserScramCredentialRecord
from stratalog.replication.metadata.scram import ScramMechanism, ScramUpsertion, alter_credentials
from stratalog.server.endpoint.security.jaas import plain_users
from stratalog.server.endpoint.security.jwks import parse_keys
from stratalog.server.endpoint.security.oauthbearer import (
    INVALID_TOKEN,
    OAuthBearerServer,
    TokenRules,
    initial_response,
    validated,
)
from stratalog.server.endpoint.security.plain import PlainServer
from stratalog.server.endpoint.security.principal_mapping import parse_rules, user_of
from stratalog.server.endpoint.security.sasl_server import InvalidCredentialsError
from stratalog.server.endpoint.security.scram import ScramServer
from stratalog.storage.errors import InvalidConfigError, SaslAuthenticationFailedError

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"

# -- PLAIN --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "users"),
    [
        ("", {}),
        (f'{MODULE} required username="admin" password="x" user_alice="secret" user_bob=\'b"c\';', None),
        (f'{MODULE} required\n user_a-b.c="1;2=3"\n;', {"a-b.c": "1;2=3"}),
        (f'{MODULE} required user_alice="quote \\" and \\\\";', {"alice": 'quote " and \\'}),
        (f"{MODULE} optional;", {}),
    ],
)
def test_users_are_options_of_the_login_module(text: str, users: dict[str, str] | None) -> None:
    assert plain_users(text) == ({"alice": "secret", "bob": 'b"c'} if users is None else users)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (f'{MODULE} required user_alice="secret"', "JAAS config entry not terminated by semi-colon"),
        (f'{MODULE} user_alice="secret";', "Control flag not specified in JAAS config"),
        (f"{MODULE} required user_alice;", "Value not specified for key 'user_alice' in JAAS config"),
        (f'{MODULE} required user_alice="secret;', "a quote is not closed"),
        ("com.example.Other required;", "ScramLoginModule, it is com.example.Other"),
        (f"{MODULE} required; {MODULE} required;", "contains 2 login modules"),
    ],
)
def test_another_form_is_refused_without_naming_a_password(text: str, reason: str) -> None:
    with pytest.raises(InvalidConfigError, match=re.escape(reason)) as refusal:
        plain_users(text)
    assert "secret" not in str(refusal.value)


@pytest.mark.parametrize(
    ("token", "reason"),
    [
        (b"\0alice\0secret", None),
        (b"alice\0alice\0secret", None),
        (b"bob\0alice\0secret", "Client requested an authorization id that is different from username"),
        (b"\0alice\0guess", "Invalid username or password"),
        (b"\0bob\0secret", "Invalid username or password"),
        (b"\0\0secret", "username not specified"),
        (b"\0alice\0", "password not specified"),
        (b"alice\0secret", "Invalid SASL/PLAIN response: expected 3 tokens, got 2"),
        (b"\0alice\0secret\0\0\0", "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
        (b"\0alice\0\xff", "Invalid username or password"),
    ],
)
def test_plain(token: bytes, reason: str | None) -> None:
    server = PlainServer({"alice": "secret"})
    if reason is None:
        assert server.evaluate(token, 0).user == "alice"
        return
    with pytest.raises(SaslAuthenticationFailedError, match=re.escape(reason)):
        server.evaluate(token, 0)


# -- SCRAM --------------------------------------------------------------------------------------------------------


def credential_of(
    user: str, password: str, mechanism: ScramMechanism, salt: bytes = b"a salt of 16 byt"
) -> UserScramCredentialRecord:
    salted = mechanism.salted_password(password, salt, 4_096)
    result = alter_credentials(ClusterImage(), [], [ScramUpsertion(user, mechanism.code, 4_096, salt, salted)])
    assert result.response == {user: None}
    (record,) = result.records
    assert isinstance(record, UserScramCredentialRecord)
    return record


@pytest.mark.parametrize("mechanism", list(ScramMechanism))
@pytest.mark.parametrize("user", ["alice", "a,b=c"])
def test_scram_proves_the_password_to_both_sides(mechanism: ScramMechanism, user: str) -> None:
    record = credential_of(user, "secret", mechanism)
    server = ScramServer(mechanism, lambda name, _: record if name == user else None, "nonce")
    client = ScramClient([mechanism.value], user, "secret")
    first = server.evaluate(client.get_client_first().encode(), 0)
    assert first.user is None
    client.set_server_first(first.answer.decode())
    last = server.evaluate(client.get_client_final().encode(), 0)
    client.set_server_final(last.answer.decode())
    assert last.user == user


@pytest.mark.parametrize("salt", [b"salt", b"s", b"a salt of 16 byt"])
@pytest.mark.parametrize("mechanism", list(ScramMechanism))
def test_scram_takes_any_salt(mechanism: ScramMechanism, salt: bytes) -> None:
    """By kafka-python, which has no rule for salts, as Kafka has none; librdkafka's test 0081 has one of four bytes."""
    record = credential_of("alice", "secret", mechanism, salt)
    for password in ("secret", "guess"):
        server = ScramServer(mechanism, lambda *_: record, "nonce")
        client = KafkaPythonScram("alice", password, mechanism.value)
        first = server.evaluate(client.first_message(), 0)
        client.process_server_first_message(first.answer)
        assert b64decode(dict(part.split("=", 1) for part in first.answer.decode().split(","))["s"]) == salt
        if password == "guess":
            with pytest.raises(InvalidCredentialsError):
                server.evaluate(client.final_message(), 0)
        else:
            last = server.evaluate(client.final_message(), 0)
            client.process_server_final_message(last.answer)
            assert last.user == "alice"


@pytest.mark.parametrize(("user", "password"), [("alice", "guess"), ("nobody", "secret")])
def test_scram_refuses_without_a_public_reason(user: str, password: str) -> None:
    record = credential_of("alice", "secret", ScramMechanism.SHA_256)
    server = ScramServer("SCRAM-SHA-256", lambda name, _: record if name == "alice" else None, "nonce")
    client = ScramClient(["SCRAM-SHA-256"], user, password)
    with pytest.raises(InvalidCredentialsError):  # noqa: PT012 - an unknown user is refused at the first token
        first = server.evaluate(client.get_client_first().encode(), 0)
        client.set_server_first(first.answer.decode())
        server.evaluate(client.get_client_final().encode(), 0)


@pytest.mark.parametrize("token", [b"", b"\xff", b"n,,", b"n,,n=alice", b"p=tls-unique,,n=alice,r=x", b"n" * 100_000])
def test_scram_refuses_what_is_no_message(token: bytes) -> None:
    with pytest.raises(InvalidCredentialsError):
        ScramServer("SCRAM-SHA-256", lambda *_: None, "nonce").evaluate(token, 0)


# -- OAUTHBEARER --------------------------------------------------------------------------------------------------

NOW_S = 1_700_000_000
PRIVATE, OTHER = (rsa.generate_private_key(65_537, 2_048) for _ in range(2))
CLAIMS = {"sub": "alice", "iat": NOW_S - 10, "exp": NOW_S + 600}


def public_keys(**more: Any) -> bytes:
    key = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(PRIVATE.public_key()))
    return json.dumps({"keys": [{**key, "kid": "one", **more}]}).encode()


class Keys:
    def key(self, key_id: str | None) -> Any:
        keys = parse_keys(public_keys())
        return keys["one"] if key_id is None else keys.get(key_id)


def signed(claims: Mapping[str, Any], key: Any = PRIVATE, kid: str | None = "one") -> str:
    return jwt.encode(dict(claims), key, "RS256", headers={} if kid is None else {"kid": kid})


def test_a_token_names_its_user_and_its_end() -> None:
    for kid in ("one", None):
        found = validated(signed(CLAIMS, kid=kid), Keys(), TokenRules(), NOW_S * 1_000)
        assert (found.user, found.expires_ms) == ("alice", (NOW_S + 600) * 1_000)
    rules = TokenRules(("kafka", "other"), "https://issuer", 0, "client")
    claims = {**CLAIMS, "aud": ["kafka"], "iss": "https://issuer", "client": "bob"}
    assert validated(signed(claims), Keys(), rules, NOW_S * 1_000).user == "bob"


@pytest.mark.parametrize(
    ("token", "rules"),
    [
        (signed({**CLAIMS, "exp": NOW_S - 31}), TokenRules()),
        (signed({**CLAIMS, "nbf": NOW_S + 31}), TokenRules()),
        (signed({key: CLAIMS[key] for key in ("sub", "iat")}), TokenRules()),
        (signed({key: CLAIMS[key] for key in ("sub", "exp")}), TokenRules()),
        (signed({key: CLAIMS[key] for key in ("iat", "exp")}), TokenRules()),
        (signed({**CLAIMS, "sub": " "}), TokenRules()),
        (signed({**CLAIMS, "sub": 7}), TokenRules()),
        (signed(CLAIMS, OTHER), TokenRules()),
        (signed(CLAIMS, kid="two"), TokenRules()),
        (signed(CLAIMS), TokenRules(("kafka",))),
        (signed({**CLAIMS, "aud": "elsewhere"}), TokenRules(("kafka",))),
        (signed({**CLAIMS, "aud": "elsewhere"}), TokenRules()),
        (signed({**CLAIMS, "iss": "https://other"}), TokenRules(issuer="https://issuer")),
        (jwt.encode(CLAIMS, None, "none"), TokenRules()),
        (jwt.encode(CLAIMS, "x" * 64, "HS256", headers={"kid": "one"}), TokenRules()),
        ("a.b.c", TokenRules()),
    ],
)
def test_a_token_that_does_not_count(token: str, rules: TokenRules) -> None:
    with pytest.raises(InvalidCredentialsError):
        validated(token, Keys(), rules, NOW_S * 1_000)


def test_a_refused_token_is_acknowledged_before_the_end() -> None:
    server = OAuthBearerServer(Keys(), TokenRules())
    step = server.evaluate(message(signed(CLAIMS, OTHER)), NOW_S * 1_000)
    assert (step.answer, step.user) == (INVALID_TOKEN, None)
    with pytest.raises(SaslAuthenticationFailedError, match="invalid_token"):
        server.evaluate(b"\x01", NOW_S * 1_000)


def message(token: str, authorization_id: str = "", scheme: str = "Bearer") -> bytes:
    name = f"a={authorization_id}" if authorization_id else ""
    return f"n,{name},\x01auth={scheme} {token}\x01key=value\x01\x01".encode()


def test_the_first_message_of_oauthbearer() -> None:
    assert initial_response(message("t.o.k")) == ("", "t.o.k")
    server = OAuthBearerServer(Keys(), TokenRules())
    step = server.evaluate(message(signed(CLAIMS), "alice"), NOW_S * 1_000)
    assert (step.answer, step.user, step.expires_ms) == (b"", "alice", (NOW_S + 600) * 1_000)
    with pytest.raises(SaslAuthenticationFailedError, match="an authorization id \\(bob\\) that is different"):
        server.evaluate(message(signed(CLAIMS), "bob"), NOW_S * 1_000)
    for bad in (b"", b"\x01", b"n,,\x01\x01", b"n,,\x01key=v\x01\x01", message("t", scheme="Basic"), message("a b")):
        with pytest.raises(InvalidCredentialsError):
            OAuthBearerServer(Keys(), TokenRules()).evaluate(bad, NOW_S * 1_000)


@pytest.mark.parametrize("data", [b"", b"[]", b'{"keys": []}', b'{"keys": [{"kty": "oct", "k": "eA"}]}', b"\xff"])
def test_a_set_without_keys_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - json's own texts, too
        parse_keys(data)


def test_keys_that_encrypt_are_left_out() -> None:
    with pytest.raises(ValueError, match="no set of keys"):
        parse_keys(public_keys(use="enc"))


# -- certificates' names ------------------------------------------------------------------------------------------


NAME = "CN=Duke,OU=ServiceUsers,O=Org,C=US"
RULES_OF_KAFKA = (
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/,"
    "RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L,"
    "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/U, DEFAULT"
)


@pytest.mark.parametrize(
    ("rules", "name", "user"),
    [
        ("DEFAULT", NAME, NAME),
        (RULES_OF_KAFKA, NAME, "Duke"),
        (RULES_OF_KAFKA, "CN=Duke,OU=SME,O=mycp,L=Fulton,ST=MD,C=US", "duke@sme"),
        (RULES_OF_KAFKA, "cn=duke,ou=sme,o=mycp,l=fulton,st=md,c=us", "DUKE"),
        (RULES_OF_KAFKA, "OU=JavaSoft,O=Sun,C=US", "OU=JavaSoft,O=Sun,C=US"),
        ("RULE:^CN=(.*?),.*$/$1@$4/", NAME, "Duke@$4"),
        ("RULE:^CN=(.*?),.*$/$12/", NAME, "Duke2"),
        (r"RULE:^CN=(\w+)\,.*$/a\/b-$1/", NAME, "a/b-Duke"),
    ],
)
def test_the_first_rule_that_matches_counts(rules: str, name: str, user: str) -> None:
    assert user_of(parse_rules(rules), name) == user


def test_a_name_that_no_rule_matches_is_refused() -> None:
    with pytest.raises(SaslAuthenticationFailedError, match=f"Failed to map name for '{NAME}' based on SSL principal"):
        user_of(parse_rules("RULE:^X=.*$/x/"), NAME)


@pytest.mark.parametrize("rules", ["deFAULT", "RULE:.*/", "RULE:a/b/X", "RULE:(/x/", "DEFAULT, other"])
def test_what_is_no_rule_is_refused(rules: str) -> None:
    with pytest.raises(InvalidConfigError, match=re.escape("ssl.principal.mapping.rules: Invalid rule")):
        parse_rules(rules)
