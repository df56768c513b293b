"""Pages of what storage alone answers, over a cluster with a past."""

from __future__ import annotations

from collections.abc import Iterator
from html.parser import HTMLParser

import pytest
from starlette.testclient import TestClient

from stratalog.clients.console.over_time.pages import OVER_TIME_PAGES
from stratalog.clients.console.stored.pages import LABEL_WIDTH, STORED_PAGES, WIDTH, timeline_bars
from stratalog.clients.console.stored.timeline import StateInTime, events_of
from tests.clients.console.asked_cluster import console_of, password_of
from tests.clients.console.console_world import ALICE, HIDDEN, World, running_world


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with running_world() as made:
        yield made


PAGES = {
    "/record_way?topic=orders&partition=0&offset=7": ["● all the same", "committed", "leader epoch 0"],
    "/record_way?topic=orders&partition=0&offset=1": ["No replica has the record any more", "removed by compaction"],
    "/who_led?topic=orders": ["Failovers", "<svg", "failover, ISR shrunk", "●"],
    "/topic_as_of?topic=orders": ["Partitions then", "Nothing: it is now as it was then."],
    "/topic_as_of?topic=orders&at=1970-01-01": ["There was no topic of this name."],
    "/group_as_of?group=billing": ["Lag then", "orders"],
    "/cluster_as_of": ["Brokers then", "running"],
    "/erasures": ["prove it", "bob"],
    "/erasure?topic=orders&erase_id=1": ["● none gets it", "Every replica, read now"],
    "/files?topic=orders": ["Commits of the last hour"],
    "/files?topic=orders&partition=0": ["Live files", "Newest commits", "WRITE", "Calls to stores"],
    "/rates": ["Records/s in", "<path d=", "In numbers"],
    "/rates?topic=orders&window=24h": ["Bytes/s in, as stored", "Records/s that groups read"],
    "/lag_over_time?group=billing": ["Behind by", "<path d=", "orders"],
    "/sql": ["One statement that reads"],
    "/sql?sql=SELECT+*+FROM+orders+ORDER+BY+offset+LIMIT+1": ["1 row in", "timestampType"],
    "/sql_tables": ["leader_epochs", "<code>orders</code>"],
}


class Checked(HTMLParser):
    """Fails on a tag that is not closed in turn, and on scripts and styles inside of a page."""

    VOID = ("meta", "link", "input", "br", "path", "rect", "line")

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.feed(page)
        assert not self.open, self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = dict(attrs)
        assert "style" not in names
        assert not any(name.startswith("on") for name in names)
        assert tag != "script" or names.get("src") == "/static/console.js"
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID:
            assert self.open.pop() == tag


@pytest.mark.parametrize("address", PAGES)
def test_a_page_shows_its_answer(world: World, address: str) -> None:
    browser = TestClient(console_of(world.opened)[0].application(), follow_redirects=False)
    answer = browser.get(address)
    assert answer.status_code == 200, answer.text
    for text in PAGES[address]:
        assert text in answer.text
    Checked(answer.text)


def test_each_question_of_storage_has_a_page_that_is_tested() -> None:
    assert {address.partition("?")[0] for address in PAGES} == {*STORED_PAGES, *OVER_TIME_PAGES}


def test_a_refused_statement_is_shown_again_with_the_reason(world: World) -> None:
    browser = TestClient(console_of(world.opened)[0].application(), follow_redirects=False)
    answer = browser.get("/sql", params={"sql": "DROP TABLE <b>orders</b>"})
    assert answer.status_code == 400
    assert "DROP TABLE &lt;b&gt;orders&lt;/b&gt;</textarea>" in answer.text
    assert "the statement is refused" in answer.text
    Checked(answer.text)


def test_pages_have_no_trace_of_what_is_hidden(world: World) -> None:
    admin = world.cluster.admin()
    admin.alter_user_scram_credentials((), [password_of("alice", "right")])
    admin.create_acls(list(ALICE))
    console, _ = console_of(world.opened)
    browser = TestClient(console.application(), follow_redirects=False)
    form = browser.get("/login").text
    token = form.partition('name="csrf" value="')[2].partition('"')[0]
    login = browser.post("/login", data={"name": "alice", "password": "right", "csrf": token})
    assert login.status_code == 303, login.text
    for address in PAGES:
        answer = browser.get(address)
        assert answer.status_code == 200, (address, answer.text)
        assert HIDDEN not in answer.text, address
    for path in ("/who_led", "/files", "/topic_as_of"):
        assert browser.get(path, params={"topic": f"{HIDDEN}-log"}).status_code == 403


def test_bars_are_as_long_as_their_states() -> None:
    states = [StateInTime(n, 10_000 * n, "id", 0, leader, n, None, (1,), (1,), n) for n, leader in ((1, 1), (2, -1))]
    picture = timeline_bars(events_of(states, {}), 30_000)
    half = (WIDTH - LABEL_WIDTH) / 2
    bars = picture["bars"]
    assert isinstance(bars, list)
    assert [(each["x"], each["width"], each["colour"]) for each in bars] == [
        (LABEL_WIDTH, half, "leads-1"),
        (LABEL_WIDTH + half, half, "leads-none"),
    ]
    assert timeline_bars([], 5)["bars"] == []
