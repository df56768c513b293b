"""Kafka's Java clients log in, work, are refused, and renew their sessions: its own tools with --command-config."""

from __future__ import annotations

import re
import subprocess
import tempfile
from pathlib import Path

from tests.lab.bench.peer.kafka import HERE, LIBS, fetch_jars, version
from tests.lab.foreign.checks import fresh
from tests.lab.foreign.security.credentials import (
    ALICE,
    PASSWORDS,
    RENEWAL_WINDOWS,
    SESSION_MS,
    Way,
    make_users,
    secrets,
)
from tests.lab.foreign.security.librdkafka import allowed
from tests.lab.foreign.served import Served

NAME = "Java clients with security"
TOOLS = "org.apache.kafka.tools"
TOOL_S, RECORDS = 150, 50
SECURITY = "org.apache.kafka.common.security"
RENEWALS = re.compile(r"producer-metrics:(successful|failed)-reauthentication-total:\{[^}]*\}\s*:\s*([0-9.]+)")


def java_version() -> str:
    """Kafka's version, of jars that are fetched if they are not there."""
    fetch_jars()
    return version()


def properties_of(way: Way, user: str, password: str | None = None) -> dict[str, str]:
    """Configs of a Java client that is `user`."""
    found = {"security.protocol": "SASL_SSL", "ssl.truststore.type": "PEM"}
    found["ssl.truststore.location"] = str(secrets().trusted)
    if way is Way.CERTIFICATE:
        own = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(secrets().certificates[user])}
        return found | own | {"security.protocol": "SSL"}
    found["sasl.mechanism"] = way.value
    if way is Way.OAUTHBEARER:
        token = secrets().folder / f"{user}.jwt"
        token.write_text(secrets().token(user))
        handler = f"{SECURITY}.oauthbearer.OAuthBearerLoginCallbackHandler"
        return found | {
            "sasl.jaas.config": f"{SECURITY}.oauthbearer.OAuthBearerLoginModule required;",
            "sasl.login.callback.handler.class": handler,
            "sasl.oauthbearer.token.endpoint.url": token.as_uri(),
        }
    kind = "plain.PlainLoginModule" if way is Way.PLAIN else "scram.ScramLoginModule"
    login = f'username="{user}" password="{password or PASSWORDS[user]}"'
    return found | {"sasl.jaas.config": f"{SECURITY}.{kind} required {login};"}


def run(way: Way, properties: dict[str, str], main: str, *arguments: str, given: str = "") -> tuple[int, str]:
    """Run a tool with the client's configs; its exit code, and all it printed."""
    allows = "-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls="
    java = ["java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", f"{LIBS}/*"]
    java += [f"-Dlog4j2.configurationFile={HERE / 'log4j2-tools.xml'}"]
    if way is Way.OAUTHBEARER:
        java.append(allows + properties["sasl.oauthbearer.token.endpoint.url"])
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "client.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
        done = subprocess.run(
            [*java, f"{TOOLS}.{main}", "--command-config", str(file), *arguments],
            input=given, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=TOOL_S, check=False,
        )  # fmt: skip
    return done.returncode, done.stdout


def work(way: Way, served: Served) -> None:
    """Produce, and read in a group."""
    name = allowed(served, way)
    properties, place = properties_of(way, ALICE), ("--bootstrap-server", served.bootstrap_of(way.listener))
    lines = "".join(f"{number}\n" for number in range(RECORDS))
    code, text = run(way, properties, "ConsoleProducer", *place, "--topic", name, given=lines)
    assert (code, "ERROR" in text) == (0, False), text
    reading = ("--topic", name, "--group", name, "--from-beginning", "--max-messages", str(RECORDS))
    code, text = run(way, properties, "consumer.ConsoleConsumer", *place, *reading, "--timeout-ms", "60000")
    found = sorted(int(line) for line in text.splitlines() if line.isdigit())
    assert (code, found) == (0, list(range(RECORDS))), text


def be_denied(way: Way, served: Served) -> None:
    """A group, a topic to write, and a topic to be made, that no ACL allows."""
    mine, other = allowed(served, way), allowed(served, way, grants=False)
    properties, place = properties_of(way, ALICE), ("--bootstrap-server", served.bootstrap_of(way.listener))
    reading = ("--topic", mine, "--group", other, "--timeout-ms", "30000")
    for main, arguments, words in (
        ("consumer.ConsoleConsumer", reading, f"Not authorized to access group: {other}"),
        ("ConsoleProducer", ("--topic", other), f"Not authorized to access topics: [{other}]"),
        ("TopicCommand", ("--create", "--topic", fresh("denied")), "TopicAuthorizationException"),
    ):
        _, text = run(way, properties, main, *place, *arguments, given="refused\n")
        assert words in text, text


def be_refused(way: Way, served: Served) -> None:
    """A wrong password, and an unknown user: SaslAuthenticationException in the same words."""
    make_users(served)
    refusals = set()
    for user in (ALICE, "nobody"):
        place = ("--bootstrap-server", served.bootstrap_of(way.listener), "--list")
        code, text = run(way, properties_of(way, user, "wr0ng"), "TopicCommand", *place)
        assert code != 0, text
        assert "wr0ng" not in text, text
        refusals |= set(re.findall(r"SaslAuthenticationException: (.*)", text))
    assert len(refusals) == 1, refusals


def renew(way: Way, served: Served) -> None:
    """A producer over several sessions: its metrics count renewals, and none that failed (KIP-368).

    One that is late to log in again, as on a busy machine, connects again instead: then the next one has to renew.
    """
    name = allowed(served, way)
    count = 10 * 4 * SESSION_MS // 1_000
    place = ("--bootstrap-server", served.bootstrap_of(way.listener), "--topic", name, "--print-metrics")
    amount = ("--num-records", str(count), "--record-size", "100", "--throughput", "10")
    for _ in range(RENEWAL_WINDOWS):
        code, text = run(way, properties_of(way, ALICE), "ProducerPerformance", *place, *amount)
        assert code == 0, text
        assert f"{count} records sent" in text, text
        found = {what: float(number) for what, number in RENEWALS.findall(text)}
        assert found["failed"] == 0, found
        if found["successful"] > 1:
            return
    raise AssertionError(f"no session was renewed: {found}")
