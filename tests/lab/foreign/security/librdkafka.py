"""librdkafka logs in, works, is refused, and renews its session."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from functools import partial
from typing import Any

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from tests.lab.foreign.admin import admin_client
from tests.lab.foreign.checks import fresh
from tests.lab.foreign.security.credentials import (
    ADMIN,
    ALICE,
    FAILURE_DELAY_MS,
    PASSWORDS,
    RENEWAL_WINDOWS,
    SESSION_MS,
    Way,
    make_users,
    secrets,
)
from tests.lab.foreign.served import Served
from tests.waiting import wait_until

NAME = "librdkafka with security"
VERSION = f"{confluent_kafka.libversion()[0]} (confluent-kafka {confluent_kafka.__version__})"
SILENT = 2
"""Of the levels of librdkafka's own log: errors come to the checks, too."""
WAIT_S, RECORDS, TRIES = 60, 100, 3
RETENTION = ConfigEntry("retention.ms", "1000", incremental_operation=AlterConfigOpType.SET)
TOKEN_S = 6
"""When librdkafka counts a token as over; it fetches the next one after 80 % of this. Brokers accept tokens for longer:
else a session would end with its token, and to renew it within a second of the last renewal is refused, as Kafka does.
"""


def settings_of(
    served: Served, way: Way, user: str, password: str | None = None, token: Callable[[], str] | None = None
) -> dict[str, Any]:
    """Configs of a client that is `user`."""
    found: dict[str, Any] = {
        "bootstrap.servers": served.bootstrap_of(way.listener),
        "ssl.ca.location": str(secrets().trusted),
        "security.protocol": "SASL_SSL",
        "log_level": SILENT,
    }
    if way is Way.CERTIFICATE:
        own = str(secrets().certificates[user])
        return found | {"security.protocol": "SSL", "ssl.certificate.location": own, "ssl.key.location": own}
    found["sasl.mechanism"] = way.value
    if way.has_password:
        return found | {"sasl.username": user, "sasl.password": password or PASSWORDS[user]}
    make = token or partial(secrets().token, user)
    return found | {"oauth_cb": lambda _config: (make(), time.time() + TOKEN_S)}


def allowed(served: Served, way: Way, *, grants: bool = True) -> str:
    """A name: a topic of it exists, and alice may use topic and group of that name, if `grants`."""
    make_users(served)
    name = fresh("secured")
    admin = admin_client(settings_of(served, Way.PLAIN, ADMIN))
    admin.create_topics([NewTopic(name, 3, 3)])[name].result(WAIT_S)
    if grants:
        literal, allow = ResourcePatternType.LITERAL, AclPermissionType.ALLOW
        rights = (
            (ResourceType.TOPIC, AclOperation.WRITE),
            (ResourceType.TOPIC, AclOperation.READ),
            (ResourceType.GROUP, AclOperation.READ),
        )
        acls = [AclBinding(kind, name, literal, f"User:{ALICE}", "*", right, allow) for kind, right in rights]
        for made in admin.create_acls(acls).values():
            made.result(WAIT_S)
        wait_until(lambda: _knows(served, way, name), f"the ACLs of {name} at every broker", WAIT_S)
    return name


def _knows(served: Served, way: Way, name: str) -> bool:
    """Whether each broker lets alice see the topic."""
    for address in served.bootstrap_of(way.listener).split(","):
        admin = AdminClient({**settings_of(served, way, ALICE), "bootstrap.servers": address})
        if admin.list_topics(name, timeout=WAIT_S).topics[name].error is not None:
            return False
    return True


def produce(settings: dict[str, Any], topic: str, count: int = 1) -> list[KafkaError]:
    """The errors of records that were not stored."""
    errors: list[KafkaError] = []

    def delivered(error: KafkaError | None, _message: object) -> None:
        if error is not None:
            errors.append(error)

    producer = confluent_kafka.Producer(settings)
    for number in range(count):
        producer.produce(topic, b"%d" % number, on_delivery=delivered)
        producer.poll(0)
    assert producer.flush(WAIT_S) == 0, "records are still under way"
    return errors


def consume(settings: dict[str, Any], topic: str, group: str, count: int) -> list[bytes]:
    """Records that a member of the group reads. KafkaException for a refusal."""
    own = {"group.id": group, "auto.offset.reset": "earliest"}
    consumer = confluent_kafka.Consumer({**settings, **own})
    consumer.subscribe([topic])
    found: list[bytes] = []
    end_s = time.monotonic() + WAIT_S
    try:
        while len(found) < count and time.monotonic() < end_s:
            message = consumer.poll(0.2)
            if message is None:
                continue
            if message.error() is not None:
                raise KafkaException(message.error())
            found.append(message.value())
    finally:
        consumer.close()
    return found


def work(way: Way, served: Served) -> None:
    """Produce, and read in a group."""
    name = allowed(served, way)
    settings = settings_of(served, way, ALICE)
    assert produce(settings, name, RECORDS) == []
    found = consume(settings, name, name, RECORDS)
    assert sorted(map(int, found)) == list(range(RECORDS)), f"{len(found)} records"


def be_denied(way: Way, served: Served) -> None:
    """What no ACL allows is refused: to write, to read, to be in a group, to have transactions, to administer."""
    mine, other = allowed(served, way), allowed(served, way, grants=False)
    settings = settings_of(served, way, ALICE)
    codes = {error.code() for error in produce(settings, other)}
    assert codes == {KafkaError.TOPIC_AUTHORIZATION_FAILED}, codes
    for topic, group, code in (
        (mine, other, KafkaError.GROUP_AUTHORIZATION_FAILED),
        (other, mine, KafkaError.TOPIC_AUTHORIZATION_FAILED),
    ):
        found = code_of(partial(consume, settings, topic, group, 1))
        assert found == code, f"{found} from {topic} by group {group}"
    producer = confluent_kafka.Producer({**settings, "transactional.id": other})
    found = code_of(partial(producer.init_transactions, WAIT_S))
    assert found == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, found
    administer(admin_client(settings), mine)


def administer(admin: AdminClient, topic: str) -> None:
    """A user that may write and read a topic may not make, delete or change topics, nor make ACLs."""
    of_topic, of_cluster = KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED
    changed = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[RETENTION])
    own = AclBinding(
        ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, f"User:{ALICE}", "*", AclOperation.ALL,
        AclPermissionType.ALLOW,
    )  # fmt: skip
    asked: dict[str, tuple[int, Callable[[], Mapping[Any, Future[Any]]]]] = {
        "create a topic": (of_topic, lambda: admin.create_topics([NewTopic(fresh("denied"), 1, 1)])),
        "delete a topic": (of_topic, lambda: admin.delete_topics([topic])),
        "change its configs": (of_topic, lambda: admin.incremental_alter_configs([changed])),
        "allow itself everything": (of_cluster, lambda: admin.create_acls([own])),
    }
    for what, (code, ask) in asked.items():
        found = answer_of(ask)
        assert found == code, f"error {found} for the call to {what}"


def answer_of(ask: Callable[[], Mapping[Any, Future[Any]]]) -> int | None:
    """The error code that a broker answers. A session of `SESSION_MS` can end on a busy machine before the client has
    renewed it: the broker then closes the connection, and librdkafka does not send an admin's request again."""
    for _ in range(TRIES):
        (future,) = ask().values()
        found = code_of(partial(future.result, WAIT_S))
        if found != KafkaError._TRANSPORT:
            break
    return found


def code_of(call: Callable[[], object]) -> int | None:
    """The error code that a call raises; None for none."""
    try:
        call()
    except KafkaException as refusal:
        return int(refusal.args[0].code())
    return None


def refusal_of(settings: dict[str, Any]) -> tuple[str, float]:
    """Why a client is not let in, as it is told, without what depends on the connection; and after how many ms."""
    errors: list[str] = []
    refused = KafkaError._AUTHENTICATION

    def failed(error: KafkaError) -> None:
        if error.code() == refused:
            errors.append(error.str())

    client = confluent_kafka.Producer({**settings, "error_cb": failed})
    wait_until(lambda: client.poll(0.1) is not None and bool(errors), "a refusal", WAIT_S)
    text = errors[0].partition("/bootstrap: ")[2] or errors[0]
    found = re.search(r"\(after (\d+)ms", text)
    assert found is not None, text
    return text.partition(" (after ")[0], float(found[1])


def be_refused(way: Way, served: Served) -> None:
    """A wrong password: told late, in words that do not depend on whether the user exists."""
    make_users(served)
    wrong = "wr0ng"
    known, known_ms = refusal_of(settings_of(served, way, ALICE, wrong))
    unknown, unknown_ms = refusal_of(settings_of(served, way, "nobody", wrong))
    assert known == unknown, f"{known!r}, {unknown!r}"
    assert "uthentication failed" in known, known
    assert wrong not in known, known
    for delay_ms in (known_ms, unknown_ms):
        assert delay_ms >= FAILURE_DELAY_MS * 0.9, f"told after {delay_ms} ms"


def have_no_key(served: Served) -> None:
    """A token that another key signed, and one of the past."""
    for token in (
        secrets().token(ALICE, is_foreign=True),
        secrets().token(ALICE, lifetime_s=-600),
    ):
        text, _ = refusal_of(settings_of(served, Way.OAUTHBEARER, ALICE, token=lambda token=token: token))
        assert "invalid_token" in text or "uthentication failed" in text, text


def show_no_certificate(served: Served) -> None:
    settings = settings_of(served, Way.CERTIFICATE, ALICE)
    for name in ("ssl.certificate.location", "ssl.key.location"):
        del settings[name]
    try:
        AdminClient(settings).list_topics(timeout=3)
    except KafkaException:
        return
    raise AssertionError("a client without a certificate was answered")


def renew(way: Way, served: Served) -> None:
    """Connections over several sessions: no record is lost, and they stay (KIP-368).

    A client that is late to log in again, as on a busy machine, loses its connection by right: then another window of
    four sessions has to pass without that.
    """
    name = allowed(served, way)
    tokens: list[float] = []

    def token() -> str:
        tokens.append(time.monotonic())
        return secrets().token(ALICE)

    lost: list[str] = []
    settings = settings_of(served, way, ALICE, token=token) | {"error_cb": lambda error: lost.append(error.str())}
    errors: list[KafkaError] = []
    producer = confluent_kafka.Producer({**settings, "acks": "all"})
    count = 0
    for _ in range(RENEWAL_WINDOWS):
        lost.clear()
        end_s = time.monotonic() + 4 * SESSION_MS / 1_000
        while time.monotonic() < end_s:
            producer.produce(name, b"%d" % count, on_delivery=lambda error, _: errors.append(error) if error else None)
            count += 1
            producer.poll(0.05)
        refused = [each for each in lost if "transport failure" not in each and "Disconnected" not in each]
        assert refused == [], refused
        if not lost:
            break
    assert producer.flush(WAIT_S) == 0
    assert errors == []
    assert lost == [], lost
    if way is Way.OAUTHBEARER:
        assert len(tokens) > 1, "the token was not renewed"
    assert len(consume(settings_of(served, way, ALICE), name, name, count)) == count
