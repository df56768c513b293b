"""The console by brokers' addresses: the same answers, and a login that is a connection of the user."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import cast

import pytest
from starlette.testclient import TestClient

from stratalog.clients.admin.admin import Admin
from stratalog.clients.admin.groups import GroupAdmin, LiveGroups
from stratalog.clients.console.application import Console, ConsoleSettings
from stratalog.clients.console.catalogue import CHANGES, QUESTIONS
from stratalog.clients.console.doors import ServedDoor
from stratalog.clients.console.over_time.rates import Rates
from stratalog.clients.console.question import plain
from stratalog.clients.console.questions.access import QuotaList
from stratalog.clients.console.questions.groups import GroupList
from stratalog.clients.console.questions.overview import Overview
from stratalog.clients.producer.producer import Producer
from stratalog.clients.records import OffsetAndMetadata
from stratalog.clients.schemas.registry_state import RegistryState
from stratalog.clients.schemas.schema import Schema
from stratalog.clients.schemas.schema_folder import SCHEMAS_TOPIC
from stratalog.clients.testing.in_memory_cluster import InMemoryCluster
from stratalog.jobs.command.opened import OpenedCluster, open_cluster
from stratalog.replication.metadata.acls import ResourceType
from stratalog.replication.metadata.records import NO_LEADER
from stratalog.server.admin.admin import NewTopic
from stratalog.server.view.cluster_view import ClusterView
from stratalog.storage import errors
from stratalog.storage.clock import SystemClock
from stratalog.storage.records import TopicPartition
from tests.clients.console.asked_cluster import FEW_RIGHTS, NOW_MS, everybody, password_of, rule
from tests.clients.console.probes import Reader, absent_of, probes
from tests.clients.console.test_application import log_in
from tests.clients.console.test_equal_answers import StillClock, answer_to
from tests.waiting import wait_until

SECURED = {
    "listeners": "CLIENTS://127.0.0.1:0",
    "listener.security.protocol.map": "CLIENTS:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "SCRAM-SHA-256",
    "authorizer.class.name": "StandardAuthorizer",
    "super.users": "User:root",
    "connection.failed.authentication.delay.ms": 1,
}
LOGIN = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-256"}
WAIT_MS = 5_000
OF_DORA = (rule("User:dora", ResourceType.TOPIC, "orders"), rule("User:dora", ResourceType.GROUP, "billing"))


def named(servers: str) -> argparse.Namespace:
    return argparse.Namespace(root=None, bootstrap_server=servers, command_config=None)


def fill(cluster: InMemoryCluster) -> Admin:
    admin = cluster.admin()
    for topic in ("orders", "hidden-payroll", "recent", SCHEMAS_TOPIC):
        admin.create_topic(topic, partitions=1 + (topic != SCHEMAS_TOPIC), retention_ms=-1)  # records are of 1970
    with cluster.producer() as producer:
        for n in range(10):
            producer.send("orders", key=f"k{n}", value=f"v{n}", partition=n % 2, timestamp_ms=1_000 + n)
        for n in reversed(range(7)):  # the first one is older than the window
            producer.send("recent", value="now", partition=n % 2, timestamp_ms=NOW_MS - n * 600_000)
        for subject in ("orders-value", "hidden-payroll-value"):
            for key, value in RegistryState().register(subject, Schema('"string"')).records:
                producer.send(SCHEMAS_TOPIC, key=key, value=value)
    groups = GroupAdmin(LiveGroups(cluster, SystemClock(), WAIT_MS), ClusterView(cluster))
    offsets = {TopicPartition(topic, 0): OffsetAndMetadata(2) for topic in ("orders", "hidden-payroll")}
    for group in ("billing", "hidden-auditors"):
        groups.alter_offsets(group, offsets)
    return admin


@pytest.fixture(scope="module")
def both() -> Iterator[tuple[OpenedCluster, OpenedCluster]]:
    with InMemoryCluster.start_new(1) as cluster:
        fill(cluster)
        wait_until(lambda: ClusterView(cluster).image.controller_id != NO_LEADER)
        by_root = OpenedCluster(ClusterView(cluster), Admin(cluster), {})
        with open_cluster(named(cluster.bootstrap_servers), wait_ms=WAIT_MS) as served:
            yield by_root, served


SAME = [
    ("topics", {}),
    ("topics", {"order": "records", "sizes": "on"}),
    ("topic_lags", {}),
    ("topic", {"topic": "orders"}),
    ("records", {"topic": "orders"}),
    ("records", {"topic": "orders", "where": "time", "at": "1005"}),
    ("record", {"topic": "orders", "partition": "0", "offset": "1"}),
    ("groups", {}),
    ("topic_groups", {"topic": "orders"}),
    ("transactions", {}),
    ("users", {}),
    ("quotas", {}),
    ("reassignments", {}),
    ("overview", {}),
    ("overview", {"groups": "5"}),
    ("groups", {"seconds": "on"}),
    ("schemas", {}),
    ("schema", {"subject": "orders-value"}),
]


@pytest.mark.parametrize(("name", "given"), SAME)
def test_both_ways_have_the_same_answer(
    both: tuple[OpenedCluster, OpenedCluster], name: str, given: dict[str, str]
) -> None:
    by_root, served = (json.dumps(plain(QUESTIONS[name].ask(everybody(each), given))) for each in both)
    assert served == by_root


def test_rates_by_brokers_are_those_by_storage_without_bytes(both: tuple[OpenedCluster, OpenedCluster]) -> None:
    answers = [cast("Rates", QUESTIONS["rates"].ask(everybody(each), {"topic": "recent"})) for each in both]
    sums = [
        sum((each.records_per_s or 0) * (each.until_ms - each.at_ms) / 1_000 for each in one.points) for one in answers
    ]
    assert sums == [pytest.approx(6), pytest.approx(6)]
    by_minute = [each.records_per_s * 60 for each in answers[0].points if each.records_per_s]
    assert (by_minute[:-1], answers[0].spread) == ([pytest.approx(1)] * 5, 0)
    assert [each.source for each in answers] == ["storage", "brokers"]
    assert {each.bytes_per_s for each in answers[1].points} == {None}
    assert answers[1].out_hidden


@pytest.mark.parametrize("side", [0, 1])
def test_the_age_of_a_group_that_retention_has_passed_is_that_of_the_first_record(
    both: tuple[OpenedCluster, OpenedCluster], side: int
) -> None:
    asker, place = everybody(both[side]), TopicPartition(f"cut-{side}", 0)
    both[0].admin.create_topics([NewTopic(place.topic, 1, 1, {"retention.ms": "-1"})])
    with Producer(both[0].view.root) as producer:
        for n in range(4):
            producer.send(place.topic, value="v", timestamp_ms=2_000 + n)
    with both[0].groups(WAIT_MS, changes=True) as asked:
        GroupAdmin(asked, both[0].view).alter_offsets("late", {place: OffsetAndMetadata(1)})
    both[0].admin.delete_records({place: 3})
    asker.cluster.view.refresh()
    (row,) = cast("GroupList", QUESTIONS["groups"].ask(asker, {"contains": "late", "seconds": "on"})).groups
    assert (row.lag, row.seconds) == (3, (NOW_MS - 2_003) / 1_000)
    both[0].admin.delete_topics([place.topic])


@pytest.mark.parametrize("side", [0, 1])
def test_the_overview_has_a_rate_from_its_second_reading_on(
    both: tuple[OpenedCluster, OpenedCluster], side: int
) -> None:
    first = everybody(both[side])
    seen = [
        cast("Overview", QUESTIONS["overview"].ask(replace(first, now_ms=first.now_ms + ms), {"groups": "1"}))
        for ms in (100_000, 110_000)
    ]
    assert seen[-1].records_per_s == 0
    assert [each.group_id for each in seen[-1].behind] == ["billing"]


@pytest.mark.parametrize("side", [0, 1])
def test_a_quota_is_set_and_removed(both: tuple[OpenedCluster, OpenedCluster], side: int) -> None:
    asker = everybody(both[side])
    given = {"user": "<default>", "client_id": "app", "quota": "producer_byte_rate"}
    bound = {**given, "bound": "1048576"}
    assert CHANGES["set_quota"].previewed(asker, bound).lines[0].before == ""
    CHANGES["set_quota"].performed(asker, bound)
    for each in both:
        (found,) = cast("QuotaList", QUESTIONS["quotas"].ask(everybody(each), {})).quotas
        assert (found.user, found.client_id, found.value) == ("", "app", 1_048_576)
    preview = CHANGES["remove_quota"].previewed(asker, given)
    assert preview.lines[0].before == "1048576 bytes/s"
    CHANGES["remove_quota"].performed(asker, given)
    with pytest.raises(errors.ResourceNotFoundError):
        CHANGES["remove_quota"].previewed(asker, given)
    for wrong in ({**bound, "bound": "0"}, {**bound, "bound": "0.5"}, {"bound": "1"}):
        with pytest.raises(errors.InvalidRequestError):
            CHANGES["set_quota"].previewed(asker, wrong)


@pytest.mark.parametrize("side", [0, 1])
def test_a_config_of_all_brokers_is_altered_and_restored(both: tuple[OpenedCluster, OpenedCluster], side: int) -> None:
    asker, change = everybody(both[side]), CHANGES["alter_brokers"]
    given = {"name": "num.partitions", "value": "7"}
    before = change.previewed(asker, given).lines[0].before
    change.performed(asker, given)
    assert change.previewed(asker, given).lines[0].before == "7 (DYNAMIC_DEFAULT_BROKER_CONFIG)"
    change.performed(asker, {"name": "num.partitions", "remove": "on"})
    assert change.previewed(asker, given).lines[0].before == before
    with pytest.raises(errors.StratalogError, match="Invalid value many"):
        (change.performed if side else change.previewed)(asker, {"name": "num.partitions", "value": "many"})
    with pytest.raises(errors.InvalidConfigError, match="was not altered"):
        change.previewed(asker, {"name": "num.partitions", "remove": "on"})
    with pytest.raises(errors.InvalidConfigError, match="is not altered while brokers run"):
        change.previewed(asker, {"name": "log.dirs", "value": "x"})


@pytest.fixture(scope="module")
def secured() -> Iterator[TestClient]:
    with InMemoryCluster.start_new(1, SECURED) as cluster:
        admin = fill(cluster)
        admin.alter_user_scram_credentials(
            upsertions=[password_of(each, f"{each}'s password") for each in ("bob", "dora")]
        )
        admin.create_acls([*FEW_RIGHTS, *OF_DORA])
        servers = cluster.bootstrap_servers

        @contextmanager
        def open_as(name: str, password: str) -> Iterator[OpenedCluster]:
            connection = {**LOGIN, "sasl.username": name, "sasl.password": password}
            with open_cluster(named(servers), connection=connection, wait_ms=WAIT_MS) as opened:
                yield opened

        numbers = iter(range(1_000))
        settings = ConsoleSettings(servers, allow_changes=True)
        made = Console(ServedDoor(None, open_as), settings, StillClock(), lambda: f"secret-{next(numbers)}")
        yield TestClient(made.application(), follow_redirects=False)
        made.sessions.close()


def test_a_login_is_a_connection_whose_broker_applies_the_acls(secured: TestClient) -> None:
    assert secured.get("/topics").status_code == 303
    assert log_in(secured, "bob", "wrong") == 401
    assert log_in(secured, "bob", "bob's password") == 303
    page = secured.get("/topics").text
    assert "orders" in page
    assert "hidden-payroll" not in page
    assert secured.get("/records?topic=orders").status_code == 200
    assert secured.get("/topic?topic=hidden-payroll").status_code in (403, 404)
    assert secured.get("/records?topic=hidden-payroll").status_code in (403, 404)
    assert secured.get("/download?topic=hidden-payroll&partition=0&offset=0").status_code in (403, 404)
    assert secured.get("/api/schemas").json()["subjects"] == [], "bob may not read the schema topic"
    assert secured.get("/access").status_code == 200
    preview = secured.get("/change/delete_topic?topic=orders")
    assert preview.status_code == 200
    csrf = preview.text.partition('name="csrf" value="')[2].partition('"')[0]
    refused = secured.post("/change/delete_topic", data={"topic": "orders", "csrf": csrf})
    assert refused.status_code in (403, 409)
    assert "orders" in secured.get("/topics").text


def test_what_a_broker_does_not_show_is_answered_as_what_is_not_there(secured: TestClient) -> None:
    """As by root, though the brokers decide: see test_equal_answers. Who may describe the cluster sees all groups."""
    browser = TestClient(secured.app, follow_redirects=False)
    assert log_in(browser, "dora", "dora's password") == 303
    hidden = {"topic": ("hidden-payroll",), "group": ("hidden-auditors",), "subject": ("hidden-payroll-value",)}
    reader = Reader("dora", {"topic": "orders", "group": "billing", "subject": "orders-value"}, hidden, ("hidden-",))
    found = re.search(r'name="csrf" value="([0-9a-f]+)"', browser.get("/topics").text)
    assert found is not None
    for probe in probes(reader):
        answer = answer_to(browser, found[1], probe)
        assert [each for each in reader.secrets if each in answer] == [], probe
        if probe.guess:
            assert answer == answer_to(browser, found[1], probe.renamed(absent_of(probe.guess))), probe
