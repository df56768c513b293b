"""The console's addresses: pages, logins, sessions, tokens, policies, changes, and a cluster that is away."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from typing import cast
from urllib.parse import urlencode

import pytest
from starlette.testclient import TestClient

from stratalog.clients.admin.admin import Admin
from stratalog.clients.client_view import ClientView
from stratalog.clients.console.application import KEPT_ANSWERS_MAX, KEPT_BYTES_MAX, PAGE_OF, KeptAnswers
from stratalog.clients.console.sessions import FREE_ATTEMPTS, IDLE_MS
from stratalog.clients.testing.in_memory_cluster import InMemoryCluster
from stratalog.jobs.command.opened import OpenedCluster
from stratalog.replication.metadata.acls import ResourceType
from stratalog.server.view.cluster_view import ClusterView
from tests.clients.console.asked_cluster import (
    FEW_RIGHTS,
    HIDDEN,
    HOSTILE,
    SECRET_GROUP,
    SECRET_TOPIC,
    LostView,
    SettableClock,
    console_of,
    filled_cluster,
    password_of,
    rule,
)


@pytest.fixture(scope="module")
def cluster() -> Iterator[OpenedCluster]:
    with filled_cluster() as opened:
        yield opened


@pytest.fixture
def browser(cluster: OpenedCluster) -> TestClient:
    return TestClient(console_of(cluster)[0].application(), follow_redirects=False)


@pytest.fixture
def editor(cluster: OpenedCluster) -> TestClient:
    return TestClient(console_of(cluster, allow_changes=True)[0].application(), follow_redirects=False)


ADDRESSES = [
    "/", "/topics", "/topics?internal=on&order=records", "/topics?more=on", "/topics?contains=%3Cscript%3E",
    "/topic?topic=orders",
    "/topic_groups?topic=orders", "/records?topic=orders", "/records?topic=orders&where=time&at=1010&limit=5",
    "/records?topic=hostile", "/records?topic=orders&contains=nothing", "/groups", "/groups?order=name",
    "/group?group=billing", "/transactions", "/transactions?ended=on", "/brokers", "/broker?broker=1",
    "/rates", "/rates?topic=orders&window=7d", "/lag_over_time?group=billing", "/reassignments",
    "/access", "/api", "/ask/overview", "/ask/records", "/ask/records?topic=hostile",
    "/ask/groups?order=name",
    *[f"/record?topic=hostile&partition=0&offset={n}" for n in range(len(HOSTILE))],
]  # fmt: skip


class Tags(HTMLParser):
    """The tags of a page with their attributes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


@pytest.mark.parametrize("address", ADDRESSES)
def test_a_page_has_nothing_inline_and_nothing_of_records(browser: TestClient, address: str) -> None:
    answer = browser.get(address)
    assert answer.status_code == 200, answer.text
    policy = answer.headers["content-security-policy"]
    assert "unsafe" not in policy
    assert "default-src 'none'" in policy
    for tag, attributes in Tags(answer.text).found:
        assert tag not in ("img", "iframe", "object", "style", "base"), (tag, attributes)
        assert tag != "script" or attributes.get("src") == "/static/console.js"
        assert not [name for name in attributes if name.startswith("on") or name == "style"], (tag, attributes)
    assert not re.search("[\u202a-\u202e\u2066-\u2069\x00-\x08\x0b\x0c\x0e-\x1f\x7f]", answer.text)


@pytest.mark.parametrize("address", ADDRESSES)
def test_a_table_has_headers_with_a_scope_and_fields_have_labels(browser: TestClient, address: str) -> None:
    tags = Tags(browser.get(address).text).found
    assert not [attributes for tag, attributes in tags if tag == "th" and "scope" not in attributes]
    assert [attributes.get("lang") for tag, attributes in tags if tag == "html"] == ["en"]
    assert sum(tag == "h1" for tag, _ in tags) == 1


def test_each_page_has_its_answer_as_json(browser: TestClient) -> None:
    assert browser.get("/api/topics?contains=orders").json()["topics"][0]["name"] == "orders"
    assert browser.get("/api/none").status_code == 404
    assert browser.get("/api/topics?first=x").json()["error"] == "INVALID_REQUEST"
    assert browser.get("/api/topic?topic=absent").status_code == 404


def test_an_error_is_a_page_with_advice(browser: TestClient) -> None:
    answer = browser.get("/topic?topic=absent")
    assert answer.status_code == 404
    assert "UNKNOWN_TOPIC_OR_PARTITION" in answer.text
    assert "look at the list" in answer.text
    assert browser.get("/records?topic=orders&where=time&at=yesterday").status_code == 400


def test_a_download_has_every_byte_and_is_no_page(browser: TestClient) -> None:
    for n, value in enumerate(HOSTILE):
        answer = browser.get(f"/download?topic=hostile&partition=0&offset={n}&part=value")
        assert answer.content == value
        assert answer.headers["content-type"] == "application/octet-stream"
        assert answer.headers["content-disposition"].startswith("attachment")
        assert answer.headers["x-content-type-options"] == "nosniff"


def test_an_unknown_address_is_a_page_too(browser: TestClient) -> None:
    answer = browser.get("/absent<script>")
    assert (answer.status_code, "There is no such page" in answer.text) == (404, True)
    assert "<script>" not in answer.text
    assert "default-src 'none'" in answer.headers["content-security-policy"]


def test_an_error_of_the_console_itself_is_a_page_without_its_text(cluster: OpenedCluster) -> None:
    lost = LostView(cluster.view)
    console, _ = console_of(replace(cluster, view=cast("ClientView", lost)))
    browser = TestClient(console.application(), raise_server_exceptions=False)
    lost.error = ZeroDivisionError("secret of the console")
    lost.is_lost = True
    answer = browser.get("/topics")
    assert (answer.status_code, "ZeroDivisionError" in answer.text) == (500, True)
    assert "secret of the console" not in answer.text
    assert "default-src 'none'" in answer.headers["content-security-policy"]


def test_another_name_of_this_address_is_refused(browser: TestClient) -> None:
    assert browser.get("/", headers={"host": "evil.example"}).status_code == 403


def test_static_files_are_the_consoles_alone(browser: TestClient) -> None:
    assert browser.get("/static/console.css").headers["content-type"].startswith("text/css")
    assert browser.get("/static/..%2fapplication.py").status_code == 404
    assert browser.get("/static/absent.css").status_code == 404


# -- changes -----------------------------------------------------------------------------------------------------


def token(browser: TestClient, address: str) -> str:
    found = re.search(r'name="csrf" value="([0-9a-f]+)"', browser.get(address).text)
    assert found is not None
    return found[1]


CREATE = {"topic": "made-here", "partitions": "1", "replication_factor": "1", "configs": "retention.ms=60000"}


def test_a_console_that_only_shows_changes_nothing(browser: TestClient) -> None:
    assert browser.get("/change/create_topic").status_code == 403
    assert "Create a topic" not in browser.get("/topics").text


def test_a_change_is_previewed_then_made_with_a_token(editor: TestClient, cluster: OpenedCluster) -> None:
    page = editor.get(f"/change/create_topic?{urlencode(CREATE)}")
    assert "What would change" in page.text
    assert "60000" in page.text
    assert "made-here" not in cluster.view.topics()
    refused = editor.post("/change/create_topic", data=CREATE)
    assert refused.status_code == 403
    csrf = token(editor, f"/change/create_topic?{urlencode(CREATE)}")
    other = TestClient(editor.app, follow_redirects=False)
    other.cookies.set("strata", "another browser")
    assert other.post("/change/create_topic", data={**CREATE, "csrf": csrf}).status_code == 403
    foreign = {"origin": "https://evil.example"}
    assert editor.post("/change/create_topic", data={**CREATE, "csrf": csrf}, headers=foreign).status_code == 403
    made = editor.post("/change/create_topic", data={**CREATE, "csrf": csrf})
    assert (made.status_code, made.headers["location"][:21]) == (303, "/topic?topic=made-her")
    assert "was created" in editor.get(made.headers["location"]).text
    assert "owned" not in editor.get("/topics?done=owned&mark=1").text
    again = editor.post("/change/create_topic", data={**CREATE, "csrf": csrf})
    assert again.status_code == 409
    assert "TOPIC_ALREADY_EXISTS" in again.text
    altered = {"topic": "made-here", "name": "retention.ms", "value": "", "remove": "on", "csrf": csrf}
    assert editor.post("/change/alter_topic", data=altered).status_code == 303
    produced = {"topic": "made-here", "key": "k", "value": "<b>v</b>", "headers": "a: b", "csrf": csrf}
    assert editor.post("/change/produce", data=produced).status_code == 303
    assert "&lt;b&gt;v&lt;/b&gt;" in editor.get("/records?topic=made-here").text
    assert editor.post("/change/delete_topic", data={"topic": "made-here", "csrf": csrf}).status_code == 303
    assert "made-here" not in editor.get("/topics").text


def test_a_group_is_reset_as_its_preview_says(editor: TestClient, cluster: OpenedCluster) -> None:
    wanted = {"group": "billing", "to": "time", "at": "1010", "topic": "orders"}
    preview = editor.get(f"/change/reset_group?{urlencode(wanted)}").text
    assert "orders-0" in preview
    assert "orders-1" in preview
    made = editor.post(
        "/change/reset_group", data={**wanted, "csrf": token(editor, "/change/delete_group?group=billing")}
    )
    assert made.status_code == 303, made.text
    rows = editor.get("/api/group?group=billing").json()["partitions"]
    assert {row["partition"]: row["committed"] for row in rows if row["topic"] == "orders"} == {0: 5, 1: 5}


# -- logins ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def guarded() -> Iterator[OpenedCluster]:
    with filled_cluster() as opened:
        opened.admin.alter_user_scram_credentials(
            upsertions=[password_of("bob", "bob's password"), password_of("root", "root's password")]
        )
        opened.admin.create_acls(FEW_RIGHTS)
        yield opened


@pytest.fixture
def entrance(guarded: OpenedCluster) -> tuple[TestClient, SettableClock]:
    console, clock = console_of(guarded, allow_changes=True, super_users=("User:root",), is_secure=True)
    return TestClient(console.application(), base_url="https://testserver", follow_redirects=False), clock


def log_in(browser: TestClient, name: str, password: str, after: str = "/") -> int:
    form = {"name": name, "password": password, "next": after, "csrf": token(browser, "/login")}
    return int(browser.post("/login", data=form).status_code)


def test_nothing_is_seen_before_a_login(entrance: tuple[TestClient, SettableClock]) -> None:
    browser, _ = entrance
    for address in (*PAGE_OF, "/access", "/api", "/download", "/change/produce"):
        answer = browser.get(address)
        assert answer.status_code == 303, address
        assert answer.headers["location"].startswith("/login"), address
    assert browser.get("/api/topics").status_code == 401


def test_a_login_gets_a_new_cookie_that_scripts_cannot_read(entrance: tuple[TestClient, SettableClock]) -> None:
    browser, _ = entrance
    csrf = token(browser, "/login")
    before = browser.cookies["strata"]
    form = {"name": "bob", "password": "bob's password", "next": "//evil.example", "csrf": csrf}
    answer = browser.post("/login", data=form)
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert "secure" in cookie
    assert browser.cookies["strata"] != before
    assert browser.get("/").status_code == 200
    assert "max-age" in browser.get("/").headers["strict-transport-security"]


def test_a_user_sees_what_the_acls_allow(entrance: tuple[TestClient, SettableClock]) -> None:
    browser, _ = entrance
    assert log_in(browser, "bob", "bob's password") == 303
    assert "orders" in browser.get("/topics").text
    pages = [*ADDRESSES, f"/topic?topic={SECRET_TOPIC}", f"/group?group={SECRET_GROUP}",
             f"/download?topic={SECRET_TOPIC}&partition=0&offset=0", f"/change/delete_topic?topic={SECRET_TOPIC}",
             f"/change/reset_group?group={SECRET_GROUP}&to=latest"]  # fmt: skip
    for address in pages:
        text = browser.get(address).text
        guessed = SECRET_TOPIC in address or SECRET_GROUP in address
        assert guessed or HIDDEN not in text, address
        assert "hidden-salary" not in text
        assert "hidden-key" not in text
    assert browser.get(f"/topic?topic={SECRET_TOPIC}").status_code == 403
    assert browser.get(f"/download?topic={SECRET_TOPIC}&partition=0&offset=0").status_code == 403


def test_a_super_user_sees_all(entrance: tuple[TestClient, SettableClock]) -> None:
    browser, _ = entrance
    assert log_in(browser, "root", "root's password") == 303
    assert SECRET_TOPIC in browser.get("/topics").text


def test_a_session_ends(entrance: tuple[TestClient, SettableClock]) -> None:
    browser, clock = entrance
    assert log_in(browser, "bob", "bob's password") == 303
    clock.moved_ms += IDLE_MS + 1
    assert browser.get("/topics").headers["location"] == "/login?next=%2Ftopics"
    assert log_in(browser, "bob", "bob's password") == 303
    csrf = token(browser, "/topics")
    assert browser.post("/logout", data={"csrf": csrf}).status_code == 303
    assert browser.get("/topics").status_code == 303


def test_guessing_passwords_is_slowed(entrance: tuple[TestClient, SettableClock]) -> None:
    browser, clock = entrance
    assert [log_in(browser, "bob", f"guess {n}") for n in range(FREE_ATTEMPTS)] == [401] * FREE_ATTEMPTS
    assert log_in(browser, "bob", "bob's password") == 429
    clock.moved_ms += 5_000
    assert log_in(browser, "bob", "bob's password") == 303


def test_an_unknown_name_is_answered_as_a_wrong_password(entrance: tuple[TestClient, SettableClock]) -> None:
    browser, _ = entrance
    texts = []
    for name in ("bob", "eve"):
        form = {"name": name, "password": "wrong", "csrf": token(browser, "/login")}
        texts.append(browser.post("/login", data=form).text.replace(f'"{name}"', '""'))
    assert re.sub(r'value="[0-9a-f]{64}"', "", texts[0]) == re.sub(r'value="[0-9a-f]{64}"', "", texts[1])


def test_a_rule_is_added_and_removed(entrance: tuple[TestClient, SettableClock]) -> None:
    browser, _ = entrance
    assert log_in(browser, "root", "root's password") == 303
    wanted = {"principal": "User:eve", "operation": "WRITE", "resource_name": "orders"}
    assert "ALLOW User:eve" in browser.get(f"/change/create_acl?{urlencode(wanted)}").text
    wrong = browser.get(f"/change/create_acl?{urlencode({**wanted, 'resource_type': 'GROUP'})}").text
    assert "no operation on a GROUP" in wrong
    csrf = token(browser, "/access")
    assert browser.post("/change/create_acl", data={**wanted, "csrf": csrf}).status_code == 303
    assert "User:eve" in browser.get("/access").text
    assert browser.post("/change/delete_acl", data={**wanted, "csrf": csrf}).status_code == 303
    assert "User:eve" not in browser.get("/access").text


def test_a_password_is_not_in_an_address(entrance: tuple[TestClient, SettableClock]) -> None:
    browser, _ = entrance
    assert log_in(browser, "root", "root's password") == 303
    page = browser.get("/change/set_user?user=eve&password=in-an-address")
    assert "in-an-address" not in page.text
    assert "What would change" not in page.text
    csrf = token(browser, "/change/set_user")
    given = {"user": "eve", "mechanism": "SCRAM-SHA-256", "password": "eve's password", "iterations": "4096"}
    shown = browser.post("/change/set_user", data={**given, "step": "preview", "csrf": csrf})
    assert "What would change" in shown.text
    assert "eve&#39;s password" not in shown.text
    made = browser.post("/change/set_user", data={**given, "csrf": csrf})
    assert made.status_code == 303
    assert "password" in made.headers["location"]
    assert "eve%27s" not in made.headers["location"]
    removed = {"user": "eve", "mechanism": "SCRAM-SHA-256", "csrf": csrf}
    assert browser.post("/change/delete_user", data=removed).status_code == 303


def test_a_page_says_since_when_no_broker_lives() -> None:
    with InMemoryCluster.start_new(1) as cluster:
        console, clock = console_of(OpenedCluster(ClusterView(cluster), Admin(cluster), {}))
        browser = TestClient(console.application(), follow_redirects=False)
        clock.moved_ms += 60_000
        assert "sign of life" not in browser.get("/").text
        cluster.kill(1)
        assert "sign of life" not in browser.get("/").text
        clock.moved_ms += 3_000
        assert "sign of life" not in browser.get("/topics").text
        clock.moved_ms += 60_000
        assert "no broker has given a sign of life" in browser.get("/topics").text


# -- a cluster that is away --------------------------------------------------------------------------------------


def test_a_page_says_since_when_its_numbers_are_old(cluster: OpenedCluster) -> None:
    lost = LostView(cluster.view)
    console, clock = console_of(replace(cluster, view=cast("ClientView", lost)))
    browser = TestClient(console.application(), follow_redirects=False)
    assert "does not answer" not in browser.get("/topics").text
    lost.is_lost = True
    clock.moved_ms += 60_000
    found = browser.get("/topics")
    assert (found.status_code, "The cluster does not answer" in found.text) == (200, True)
    assert "the disk is gone" in found.text
    assert "orders" in found.text
    assert browser.get("/topic?topic=orders").status_code == 503
    assert browser.get("/api/topics").status_code == 503
    lost.is_lost = False
    assert "does not answer" not in browser.get("/topics").text


def test_what_was_shown_under_other_rules_is_not_shown_again(guarded: OpenedCluster) -> None:
    lost = LostView(guarded.view)
    console, _ = console_of(replace(guarded, view=cast("ClientView", lost)))
    browser = TestClient(console.application(), base_url="https://testserver", follow_redirects=False)
    assert log_in(browser, "bob", "bob's password") == 303
    assert "orders" in browser.get("/topics").text
    lost.is_lost = True
    assert "orders" in browser.get("/topics").text
    guarded.admin.create_acls([rule("User:bob", ResourceType.TOPIC, "another")])
    guarded.view.refresh()
    answer = browser.get("/topics")
    assert (answer.status_code, "orders" in answer.text) == (503, False)


def test_answers_are_kept_up_to_a_number_and_a_size() -> None:
    kept = KeptAnswers()
    for n in range(KEPT_ANSWERS_MAX + 1):
        kept.put((n,), n, 0, None, 1)
    assert [kept.get((n,), None) is None for n in (0, 1)] == [True, False]
    kept.put(("large",), "large", 0, None, KEPT_BYTES_MAX)
    assert [kept.get((n,), None) is None for n in (KEPT_ANSWERS_MAX, "large")] == [True, False]
    kept.put(("too large",), "too large", 0, None, KEPT_BYTES_MAX + 1)
    assert kept.get(("too large",), None) is None
