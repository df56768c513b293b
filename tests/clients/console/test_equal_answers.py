"""Two users with different ACLs over every route, question and change: neither sees what is the other's alone, and what
a user may not see is answered byte for byte as what is not there."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

import anyio
import pytest
from mcp import Client
from starlette.testclient import TestClient

from stratalog.clients.console.agents import agent_server
from stratalog.clients.console.application import Console, ConsoleSettings
from stratalog.clients.console.catalogue import QUESTIONS
from stratalog.clients.console.doors import RootDoor
from stratalog.clients.typed_tables.notes import leave_note
from stratalog.jobs.command.opened import OpenedCluster
from stratalog.replication.metadata.acls import Operation, ResourceType
from stratalog.storage.clock import SystemClock
from tests.clients.console.asked_cluster import (
    SECRET_GROUP,
    SECRET_ID,
    SECRET_TOPIC,
    everybody,
    filled_cluster,
    password_of,
    rule,
)
from tests.clients.console.probes import (
    Probe,
    Reader,
    absent_of,
    all_changes,
    all_questions,
    probes,
    unclassified,
    without_name,
)
from tests.clients.console.test_application import log_in
from tests.clients.console.test_typed_tables import make_table

NOW_MS = 1_900_000_000_000
PASSWORD = "a password of a test"
RIGHTS = (
    rule("User:bob", ResourceType.TOPIC, "orders"),
    rule("User:bob", ResourceType.TOPIC, "orders", Operation.ALTER_CONFIGS),
    rule("User:bob", ResourceType.GROUP, "billing"),
    rule("User:bob", ResourceType.CLUSTER, "kafka-cluster", Operation.DESCRIBE),
    rule("User:carol", ResourceType.TOPIC, "hidden", pattern="PREFIXED"),
    rule("User:carol", ResourceType.TOPIC, "hidden", Operation.DESCRIBE_CONFIGS, "PREFIXED"),
    rule("User:carol", ResourceType.GROUP, "hidden", pattern="PREFIXED"),
    rule("User:carol", ResourceType.TRANSACTIONAL_ID, "hidden", Operation.DESCRIBE, "PREFIXED"),
)
"""Names in rules are seen by users that may describe the cluster, so none has a whole hidden name."""


class StillClock(SystemClock):
    """Wall time that stands still, so that answers differ by what they say alone."""

    def wall_ms(self) -> int:
        return NOW_MS


@dataclass(frozen=True, slots=True)
class Users:
    """A cluster and its two readers."""

    cluster: OpenedCluster
    readers: dict[str, Reader]

    def console(self) -> Console:
        numbers = iter(range(1_000_000))
        settings = ConsoleSettings("the test's", allow_changes=True)
        return Console(RootDoor(self.cluster), settings, StillClock(), lambda: f"secret-{next(numbers)}")


def readers_of(topic_ids: dict[str, str], tables: dict[str, str]) -> dict[str, Reader]:
    bob = Reader(
        "bob",
        {"topic": "orders", "group": "billing", "subject": "orders-value", "table": tables["orders"]},
        {"topic": (SECRET_TOPIC, "hostile"), "group": (SECRET_GROUP,), "topic_id": (topic_ids[SECRET_TOPIC],),
         "transactional_id": (SECRET_ID,), "subject": (f"{SECRET_TOPIC}-value",), "table": (tables[SECRET_TOPIC],)},
        ("hidden-", "hostile", topic_ids[SECRET_TOPIC], topic_ids["hostile"]),
    )  # fmt: skip
    carol = Reader(
        "carol",
        {
            "topic": SECRET_TOPIC,
            "group": SECRET_GROUP,
            "subject": f"{SECRET_TOPIC}-value",
            "table": tables[SECRET_TOPIC],
        },
        {
            "topic": ("orders", "hostile"),
            "group": ("billing",),
            "topic_id": (topic_ids["orders"],),
            "subject": ("orders-value",),
            "table": (tables["orders"],),
        },
        ("orders", "hostile", "billing", "customer-", topic_ids["orders"], topic_ids["hostile"]),
    )
    return {each.name: each for each in (bob, carol)}


@pytest.fixture(scope="module")
def users(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Users]:
    with filled_cluster() as opened:
        opened.admin.alter_user_scram_credentials(upsertions=[password_of(each, PASSWORD) for each in ("bob", "carol")])
        opened.admin.create_acls(RIGHTS)
        opened.view.refresh()
        lake, objects = tmp_path_factory.mktemp("lake"), opened.view.stores.objects(opened.view.root)
        notes = {
            topic: make_table(lake / topic, opened, topic, keys)
            for topic, keys in (("orders", "customer"), (SECRET_TOPIC, "person"))
        }
        for note in notes.values():
            leave_note(objects, note)
        tables = {topic: note.location for topic, note in notes.items()}
        yield Users(opened, readers_of(dict(opened.view.image.topic_ids), tables))


def browser_of(console: Console, name: str) -> tuple[TestClient, str]:
    """A browser in which the user is logged in, and the token of its forms."""
    browser = TestClient(console.application(), follow_redirects=False)
    assert log_in(browser, name, PASSWORD) == 303
    found = re.search(r'name="csrf" value="([0-9a-f]+)"', browser.get("/topics").text)
    assert found is not None
    return browser, found[1]


def answer_to(browser: TestClient, csrf: str, probe: Probe) -> str:
    """Status, headers and text, without the name that was asked for."""
    if probe.form is None:
        answer = browser.get(probe.address)
    else:
        answer = browser.post(probe.address, data={**probe.form, "csrf": csrf})
    headers = "\n".join(f"{name}: {value}" for name, value in answer.headers.items() if name != "content-length")
    return without_name(f"{answer.status_code}\n{headers}\n{answer.text}", probe.guess)


def secrets_in(reader: Reader, text: str) -> list[str]:
    return [each for each in reader.secrets if each in text]


def test_every_route_and_every_parameter_is_asked(users: Users) -> None:
    assert unclassified(users.console().application()) == []


@pytest.mark.parametrize("name", ["bob", "carol"])
def test_what_may_not_be_seen_is_answered_as_what_is_not_there(users: Users, name: str) -> None:
    reader = users.readers[name]
    browser, csrf = browser_of(users.console(), name)
    asked = 0
    for probe in probes(reader):
        answer = answer_to(browser, csrf, probe)
        assert secrets_in(reader, answer) == [], probe
        if probe.guess:
            assert answer == answer_to(browser, csrf, probe.renamed(absent_of(probe.guess))), probe
            asked += 1
    assert asked > 50


@pytest.mark.parametrize("name", ["bob", "carol"])
def test_an_agent_is_answered_alike(users: Users, name: str) -> None:
    reader = users.readers[name]
    entry = RootDoor(users.cluster).enter(name, PASSWORD, "127.0.0.1")
    asked = [each for each in all_questions(reader) if each.name != "sql"]
    server = agent_server(lambda _: entry, StillClock(), "0")

    async def run() -> list[tuple[str, str]]:
        found = []
        async with Client(server) as client:
            for each in asked:
                pair: list[str] = []
                for guess in (each.guess, absent_of(each.guess)):
                    given = {key: guess if value == each.guess else value for key, value in each.given.items()}
                    answer: Any = await client.call_tool(each.name, given)
                    pair.append(without_name(f"{answer.is_error} {answer.content[0].text}", guess))
                found.append((pair[0], pair[1]))
        return found

    for each, (hidden, absent) in zip(asked, anyio.run(run), strict=True):
        assert secrets_in(reader, hidden) == [], each
        assert not each.guess or hidden == absent, each


def test_nothing_was_changed(users: Users) -> None:
    """The changes that were posted were of topics and groups that the user may not see: all were refused."""
    browser, csrf = browser_of(users.console(), "bob")
    before = json.dumps(sorted(users.cluster.view.topics()))
    for each in all_changes(users.readers["bob"]):
        if each.guess:
            answer = browser.post(f"/change/{each.name}", data={**each.given, "csrf": csrf})
            assert answer.status_code in (403, 404, 409), each
    users.cluster.view.refresh()
    assert json.dumps(sorted(users.cluster.view.topics())) == before


def test_a_schema_of_what_may_not_be_seen_is_none_by_its_id_either(users: Users) -> None:
    schema = cast("Any", QUESTIONS["schema"].ask(everybody(users.cluster), {"subject": f"{SECRET_TOPIC}-value"}))
    browser, _ = browser_of(users.console(), "bob")
    seen = [browser.get(f"/api/schema_by_id?schema_id={number}") for number in (schema.schema_id, 999)]
    assert seen[0].status_code == seen[1].status_code >= 400
    assert seen[0].text.replace(str(schema.schema_id), "ID") == seen[1].text.replace("999", "ID")
