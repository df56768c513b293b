"""`make console-test`: the console's pages in Chromium, examined by axe-core, in light and dark, wide and narrow.

I/O: a cluster in memory, a server, a browser; pictures when a folder is given. Exit code 1 for a finding of WCAG 2.2
AA, a page that is wider than its window, a script that fails, or text of a record that ran.
Source: axe-core (Deque), whose rules are those of WCAG 2.2.
"""

from __future__ import annotations

import shutil
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import uvicorn
from playwright.sync_api import Dialog, Error, Page, ViewportSize, sync_playwright

from stratalog.clients.typed_tables.notes import leave_note
from tests.clients.console.asked_cluster import HOSTILE, console_of, filled_cluster
from tests.clients.console.test_typed_tables import make_table
from tests.waiting import wait_until

LAKE = "/LAKE"
"""Stands for the folder of a typed table in the addresses of pages."""
PAGES = (
    "/", "/topics", "/topic?topic=orders", "/records?topic=orders", "/records?topic=hostile", "/groups",
    "/topic_groups?topic=orders", "/group?group=billing", "/transactions", "/brokers", "/broker?broker=1", "/access",
    "/api", "/reassignments", "/ask/records?topic=hostile", "/ask/overview",
    "/change/create_topic?topic=new&configs=retention.ms%3D1000", "/change/reset_group?group=billing&to=earliest",
    "/record_way?topic=orders&partition=0&offset=3", "/who_led?topic=orders", "/files?topic=orders", "/erasures",
    "/cluster_as_of", "/topic_as_of?topic=orders", "/group_as_of?group=billing", "/sql_tables", "/sql",
    "/schemas", "/schema?subject=decoded-value", "/schema_users?subject=Note", "/schema_fits?subject=decoded-value",
    "/records?topic=decoded", "/typed_tables", f"/typed_table?table={LAKE}", f"/dead_letters?table={LAKE}",
    f"/change/replay_dead_letters?table={LAKE}",
    *[f"/record?topic=decoded&partition=0&offset={n}" for n in (0, 2, 3, 6)],
    "/rates", "/rates?topic=orders&window=7d", "/lag_over_time?group=billing",
    "/change/move_partitions?topic=orders&brokers=1", "/change/limit_moves", "/change/elect_preferred_leaders",
    "/change/alter_brokers?name=num.partitions&value=3", "/change/set_quota?user=alice&bound=1048576",
    "/topic?topic=absent", "/topics?contains=nothing",
    *[f"/record?topic=hostile&partition=0&offset={n}" for n in range(len(HOSTILE))],
)  # fmt: skip
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
FLAGS = (
    "--no-sandbox",
    "--no-first-run",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
WIDTHS = (1_440, 390)
SETTLE_MS = 100


class Noted:
    """Notes an event of the browser; a dialog is closed."""

    def __init__(self, events: list[str], what: str) -> None:
        self._events = events
        self._what = what

    def __call__(self, event: Error | Dialog) -> None:
        self._events.append(f"{self._what}: {event}")
        if isinstance(event, Dialog):
            event.dismiss()


def problems_of(page: Page, axe: str) -> list[str]:
    """What is wrong with the page that is shown."""
    wider = page.evaluate("document.documentElement.scrollWidth - innerWidth")
    page.evaluate(axe)
    found: dict[str, Any] = page.evaluate("rules => axe.run(document, {runOnly: rules})", RULES)
    problems = [f"{each['id']} ({each['impact']}): {each['nodes'][0]['html'][:160]}" for each in found["violations"]]
    return problems + ([f"it is {wider} px wider than the window"] if wider > 0 else [])


def examine(at: str, pages: Sequence[str], axe: str, pictures: Path | None) -> list[str]:
    """Problems of every page, with the page's address before each."""
    found: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=list(FLAGS))
        for width in WIDTHS:
            for scheme in ("light", "dark"):
                context = browser.new_context(
                    viewport=ViewportSize(width=width, height=900),
                    color_scheme=scheme,
                )
                page = context.new_page()
                events: list[str] = []
                page.on("pageerror", Noted(events, "a script failed"))
                page.on("dialog", Noted(events, "a record ran"))
                for number, address in enumerate(pages):
                    page.goto(at + address)
                    page.wait_for_timeout(SETTLE_MS)
                    if pictures is not None:
                        page.screenshot(path=pictures / f"{number:02}-{width}-{scheme}.png")
                    problems = [*problems_of(page, axe), *events]
                    events.clear()
                    found += [f"{address} at {width} px, {scheme}: {each}" for each in problems]
                context.close()
        browser.close()
    return found


def main(arguments: list[str]) -> int:
    """`axe.min.js` and, if pictures are wanted, their folder; the exit code."""
    axe = Path(arguments[0]).read_text(encoding="utf-8")
    pictures = Path(arguments[1]) if len(arguments) > 1 else None
    if shutil.which("chromium") is None:
        print("make console-test needs chromium: apt-get install chromium")
        return 1
    begun = time.monotonic()
    with filled_cluster() as cluster, TemporaryDirectory() as lake:
        note = make_table(Path(lake) / "orders", cluster, "orders")
        leave_note(cluster.view.stores.objects(cluster.view.root), note)
        pages = [each.replace(LAKE, note.location) for each in PAGES]
        made, _ = console_of(cluster, allow_changes=True, host_names=frozenset())
        server = uvicorn.Server(uvicorn.Config(made.application(), port=0, log_level="warning", lifespan="off"))
        thread = threading.Thread(target=server.run, daemon=True)
        thread.start()
        wait_until(lambda: server.started)
        port = server.servers[0].sockets[0].getsockname()[1]
        found = examine(f"http://127.0.0.1:{port}", pages, axe, pictures)
        server.should_exit = True
        thread.join()
    print("\n".join(found))
    print(f"{len(PAGES)} pages, {len(found)} problems, {time.monotonic() - begun:.0f} s")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
