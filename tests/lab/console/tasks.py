"""Tasks of a user, done in Chromium: clicks, fields that are filled in, seconds.

    python -m tests.lab.console.tasks

I/O: a cluster in memory with a past, a server, a browser. Each task begins at the overview, uses links, buttons and
fields alone, and ends when its answer is on the page. One whose answer is not there is a finding. Exit code 1 for any.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from playwright.sync_api import Error as BrowserError
from playwright.sync_api import Page

from stratalog.clients.console.application import Console, ConsoleSettings
from stratalog.clients.console.doors import RootDoor
from stratalog.storage.clock import RandomIds, SystemClock
from tests.clients.console.console_world import HIDDEN, World, running_world
from tests.lab.console.browsing import chromium, noting_page, served

WAIT_MS = 10_000


class Hand:
    """Does what a user does, and counts it."""

    def __init__(self, page: Page, url: str) -> None:
        self.page = page
        self.clicks = 0
        self.fields = 0
        page.set_default_timeout(WAIT_MS)
        page.goto(url)

    def follow(self, name: str, *, within: str = "body") -> None:
        """A click on the link or button of this name; the page that it leads to is loaded then."""
        self.clicks += 1
        place = self.page.locator(within)
        pattern = re.compile(rf"^\s*{re.escape(name)}")
        found = place.get_by_role("link", name=pattern).or_(place.get_by_role("button", name=pattern)).first
        found.click()
        self.page.wait_for_load_state()

    def fill(self, field: str, text: str) -> None:
        """`field`: its name in the address."""
        self.fields += 1
        self.page.locator(f'main [name="{field}"]:visible').first.fill(text)

    def choose(self, field: str, text: str) -> None:
        self.fields += 1
        self.page.locator(f'main [name="{field}"]:visible').first.select_option(text)

    def sees(self, *patterns: str) -> None:
        """AssertionError when one of the patterns is not in the text of the page."""
        text = self.page.locator("main").inner_text()
        for each in patterns:
            assert re.search(each, text), f"{each!r} is not in: {text[:600]}"


def find_by_key(hand: Hand, _world: World) -> None:
    hand.follow("Topics", within="nav.menu")
    hand.follow("records of orders")
    hand.fill("contains", "ann")
    hand.choose("part", "key")
    hand.follow("Show", within="form.filter")
    hand.follow("0", within="table.records")
    hand.sees("offset 0", "ann", '"n": 0')


def why_behind(hand: Hand, _world: World) -> None:
    hand.follow("billing", within="main")
    hand.sees("Behind by", "nobody", "orders")


def delayed_records(hand: Hand, _world: World) -> None:
    hand.follow("Topics", within="nav.menu")
    hand.follow("orders", within="main table")
    hand.follow("Who led", within="nav.tabs")
    hand.sees("Failovers", "between the records beside it", "Acknowledged")


def prove_erasure(hand: Hand, _world: World) -> None:
    hand.follow("Erasures", within="nav.menu")
    hand.page.locator("main tbody tr", has_text="orders").locator('a[href^="/erasure?"]').first.click()
    hand.clicks += 1
    hand.page.wait_for_load_state()
    hand.sees("bob", "(?i)gone|erased")


def reset_to_time(hand: Hand, world: World) -> None:
    hand.follow("billing", within="main")
    hand.follow("Reset offsets")
    hand.choose("to", "time")
    hand.fill("at", datetime.fromtimestamp(world.before_ms / 1_000, UTC).isoformat(timespec="milliseconds"))
    hand.fill("topic", "orders")
    hand.follow("Preview")
    hand.sees("What would change", "orders-0")
    hand.follow("Reset a group")
    hand.sees("Done")


def holding_back(hand: Hand, _world: World) -> None:
    hand.follow("Transactions", within="nav.menu")
    hand.sees(f"{HIDDEN}-open", r"orders-1\s+from \d+: \d+ records")


def config_then(hand: Hand, world: World) -> None:
    hand.follow("Topics", within="nav.menu")
    hand.follow("orders", within="main table")
    hand.follow("As it was", within="nav.tabs")
    hand.fill("at", datetime.fromtimestamp(world.before_ms / 1_000, UTC).isoformat(timespec="milliseconds"))
    hand.page.locator("main form button").first.click()
    hand.clicks += 1
    hand.page.wait_for_load_state()
    hand.sees("retention.ms", "100000")


def restart_endangers(hand: Hand, _world: World) -> None:
    hand.follow("Brokers", within="nav.menu")
    hand.follow("1", within="main table")
    hand.sees("What its restart would endanger now", "single")


def compare_replicas(hand: Hand, _world: World) -> None:
    hand.follow("Topics", within="nav.menu")
    hand.follow("records of orders")
    hand.follow("11", within="table.records")
    hand.follow("Where it came from")
    hand.sees("all the same", "(?s)● same.*● same.*● same")


TASKS: dict[str, Callable[[Hand, World], None]] = {
    "find one order by its key": find_by_key,
    "why is this group behind": why_behind,
    "which records did the crash delay": delayed_records,
    "prove an erasure": prove_erasure,
    "find the open transaction that holds readers back": holding_back,
    "what was a config before it was altered": config_then,
    "which partitions would a broker's restart endanger": restart_endangers,
    "compare the replicas of a record": compare_replicas,
    "reset a group to a time": reset_to_time,
}


@dataclass(frozen=True, slots=True)
class Done:
    """How a task was done."""

    task: str
    clicks: int
    fields: int
    seconds: float
    problem: str = ""


def do(task: str, page: Page, url: str, world: World) -> Done:
    """One task, from the overview on."""
    hand = Hand(page, url)
    begun = time.monotonic()
    problem = ""
    try:
        TASKS[task](hand, world)
    except (AssertionError, BrowserError) as reason:
        problem = str(reason).splitlines()[0][:300]
    return Done(task, hand.clicks, hand.fields, time.monotonic() - begun, problem)


def main() -> int:
    """The exit code."""
    ids = RandomIds()
    with running_world() as world:
        world.cluster.admin().create_topic("single", 3, 1)
        producer = world.cluster.producer(transactional_id=f"{HIDDEN}-open")
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("orders", key="t", value="held back", partition=1)
        producer.flush()
        settings = ConsoleSettings("the lab's", allow_changes=True)
        console = Console(RootDoor(world.opened), settings, SystemClock(), ids.new_id)
        with served(console) as url, chromium() as browser:
            page, noted = noting_page(browser)
            done = [do(task, page, url, world) for task in TASKS]
            events = noted.taken(page)
        producer.abort_transaction()
        producer.close()
    for each in done:
        how = f"{each.clicks} clicks, {each.fields} fields, {each.seconds:.1f} s"
        print(f"{each.task}: {how}{f': {each.problem}' if each.problem else ''}")
    findings = [*events, *(each.task for each in done if each.problem)]
    print(f"{len(done)} tasks, {len(findings)} findings", *events, sep="\n")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
