"""10,000 hostile records and some hundred hostile names, shown in Chromium; downloads; large values and bombs.

    python -m tests.lab.console.hostile

I/O: a cluster on disk, a console's process by its root, a browser. A dialog, a script of a record, anything that the
content security policy had to forbid, a page that is broken or wider than its window, and a page that takes longer
than its bound are findings. Exit code 1 for any.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from urllib.parse import urlencode

from playwright.sync_api import Page

from stratalog.clients.admin.admin import Admin
from stratalog.clients.admin.groups import GroupAdmin, LiveGroups
from stratalog.clients.consumer.consumer import Consumer
from stratalog.clients.producer.producer import Producer
from stratalog.clients.records import OffsetAndMetadata
from stratalog.replication.metadata.acls import AclBinding, Operation, PatternType, Permission, ResourceType
from stratalog.server.cluster import Cluster
from stratalog.server.view.cluster_view import ClusterView
from stratalog.storage.clock import SystemClock
from stratalog.storage.records import TopicPartition
from tests.clients.console.asked_cluster import password_of
from tests.lab.console.browsing import ConsoleProcess, Noted, chromium, cpu_s, noting_page, wider_than_window
from tests.lab.console.corpus import names, values

RECORDS, NAMES, SEED = 10_000, 200, 4711
PAGE_RECORDS = 500
USER, PASSWORD = "\"><svg onload=alert(4711)>'", "a password of a test"
MARKED = TopicPartition("hostile", 0)
LARGE_BYTES, BOMBS, BOMB_BYTES = 10 << 20, 40, 8 << 20
FORBIDDEN = "img,iframe,object,embed,style,base,video,marquee,math,template,noscript,frame,svg[onload],plaintext,link"
PAGE_S_MAX, MEMORY_MIB_MAX = 5.0, 700
SETTINGS = {
    "listeners": "PLAINTEXT://127.0.0.1:0",
    "offsets.topic.num.partitions": 4,
    "offsets.topic.replication.factor": 1,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "transaction.state.log.num.partitions": 2,
    "message.max.bytes": 16 << 20,
}


@dataclass(slots=True)
class Found:
    """What a run found."""

    pages: int = 0
    records_shown: int = 0
    findings: list[str] = field(default_factory=list)
    slowest: tuple[float, str] = (0.0, "")
    memory_mib: int = 0

    def note(self, address: str, *problems: str) -> None:
        self.findings += [f"{address[:160]}: {each[:300]}" for each in problems]


def fill(cluster: Cluster) -> None:
    """Records, groups, members, open transactions, users, rules with hostile names."""
    admin, clock = Admin(cluster), SystemClock()
    for topic in ("hostile", "large", "bombs"):
        admin.create_topic(topic, 1, 1, retention_ms=-1)
    texts, parts = names(NAMES, SEED), list(values(RECORDS, SEED))
    with Producer(cluster, {"max.request.size": 16 << 20, "linger.ms": 20}) as producer:
        for n, value in enumerate(parts):
            header = (texts[n % NAMES], parts[-n][:1_000])
            producer.send("hostile", key=parts[n - 1][:1_000], value=value, headers=[header])
        for n in range(3):
            producer.send("large", key=b"k", value=f"<script>alert({n})</script>".encode() * (LARGE_BYTES // 26))
        many = [(texts[n % NAMES], parts[n][:100]) for n in range(9_000)]
        producer.send("large", value=b"many headers", headers=many)
        producer.flush()
    with Producer(cluster, {"compression.type": "gzip", "max.request.size": 16 << 20, "linger.ms": 50}) as producer:
        for _ in range(BOMBS):
            producer.send("bombs", value=bytes(BOMB_BYTES))
    view = ClusterView(cluster)
    groups = GroupAdmin(LiveGroups(cluster, clock, 10_000), view)
    for text in texts:
        groups.alter_offsets(text, {MARKED: OffsetAndMetadata(1)})
    admin.alter_user_scram_credentials(upsertions=[password_of(each, PASSWORD) for each in (USER, *texts[:20])])
    rules = [
        AclBinding(kind, text, PatternType.LITERAL, f"User:{text}", "*", Operation.READ, Permission.ALLOW)
        for text in texts[:40]
        if ";" not in text  # it separates principals
        for kind in (ResourceType.TOPIC, ResourceType.GROUP)
    ]
    admin.create_acls(rules)


def open_transactions(cluster: Cluster, stack: ExitStack) -> None:
    """Transactions and members with hostile ids, until the stack ends."""
    texts = names(NAMES, SEED)
    for text in texts[:12]:
        producer = stack.enter_context(Producer(cluster, {"transactional.id": text, "client.id": text}))
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("hostile", value=b"in a transaction")
        producer.flush()
        stack.callback(producer.abort_transaction)
    consumer = stack.enter_context(
        Consumer(cluster, {"client.id": texts[3], "group.id": "members", "group.instance.id": texts[5]})
    )
    consumer.subscribe(["hostile"])
    consumer.poll(3_000)


def addresses() -> Iterator[tuple[str, int]]:
    """Each address with the rows that its largest table has; -1: any number."""
    texts = names(NAMES, SEED)
    for at in range(0, RECORDS, PAGE_RECORDS):
        given = {"topic": "hostile", "where": "offset", "partition": 0, "at": at, "limit": PAGE_RECORDS}
        yield f"/records?{urlencode(given)}", PAGE_RECORDS
    for at in range(150):
        yield f"/record?{urlencode({'topic': 'hostile', 'partition': 0, 'offset': at})}", -1
    yield "/ask/records?topic=hostile&where=oldest&limit=500", 500
    yield "/ask/groups?limit=500", NAMES + 1
    yield "/groups?limit=500", NAMES + 1
    statement = "SELECT key, value, headers FROM hostile WHERE offset < 300"
    yield f"/sql?{urlencode({'sql': statement, 'limit': 300})}", 300
    for path in ("/transactions", "/access", "/topics?more=on", "/brokers", "/", "/group?group=members", "/api"):
        yield path, -1
    for topic in ("large", "bombs"):
        yield f"/records?topic={topic}", -1
        yield f"/record?topic={topic}&partition=0&offset=1", -1
        yield f"/record?topic={topic}&partition=0&offset=3", -1
    for text in texts[:80]:
        yield f"/group?{urlencode({'group': text})}", 1
        yield f"/change/reset_group?{urlencode({'group': text, 'to': 'earliest'})}", -1
    for text in texts[:60]:
        yield f"/topics?{urlencode({'contains': text})}", -1
        yield f"/records?{urlencode({'topic': 'hostile', 'contains': text[:40], 'limit': 50})}", -1
        yield f"/topic?{urlencode({'topic': text})}", -1
        yield f"/?{urlencode({'done': text})}", -1
        yield f"/sql?{urlencode({'sql': text})}", -1
        yield f"/change/create_acl?{urlencode({'principal': f'User:{text}', 'resource_name': text})}", -1
        yield f"/{urlencode({'x': text})[2:]}", -1


def problems_of(page: Page, noted: Noted, rows: int) -> list[str]:
    """What is wrong with the page that is shown."""
    about = page.evaluate(
        """forbidden => ({
          scripts: document.scripts.length, links: document.querySelectorAll('link').length,
          foreign: [...document.querySelectorAll(forbidden)].map(each => each.outerHTML.slice(0, 80)),
          handlers: [...document.querySelectorAll('*')].filter(each => [...each.attributes].some(
            one => one.name.startsWith('on') || one.name === 'style' || one.name === 'srcdoc')).length,
          leaving: [...document.querySelectorAll('a[href], form[action]')].map(each => each.href || each.action)
            .filter(to => new URL(to).origin !== location.origin),
          rows: Math.max(0, ...[...document.querySelectorAll('tbody')].map(each => each.rows.length)),
          ends: document.body.lastElementChild.tagName, heads: document.querySelectorAll('h1').length,
          bidi: /[\\u202a-\\u202e\\u2066-\\u2069\\u200b-\\u200f]/.test(document.body.innerText)})""",
        FORBIDDEN.replace(",link", ""),
    )
    found = noted.taken(page)
    wider = wider_than_window(page)
    checks = (
        (about["scripts"] == 1 and about["links"] == 2, f"{about['scripts']} scripts, {about['links']} links"),
        (not about["foreign"], f"elements of records: {about['foreign'][:3]}"),
        (not about["handlers"], f"{about['handlers']} elements with handlers or styles"),
        (not about["leaving"], f"links that leave: {about['leaving'][:3]}"),
        (rows in (-1, about["rows"]), f"{about['rows']} rows instead of {rows}"),
        (about["ends"] == "FOOTER" and about["heads"] == 1, f"it ends with {about['ends']}, {about['heads']} headings"),
        (not about["bidi"], "characters that turn text around"),
        (wider == 0, f"it is {wider} px wider than the window"),
    )
    return [*found, *(text for is_fine, text in checks if not is_fine)]


def walk(page: Page, noted: Noted, console: ConsoleProcess, found: Found) -> None:
    """Every address. One takes as long as the page was waited for, or the console worked: the shorter of both, since
    others may use the machine."""
    for address, rows in addresses():
        begun, before_s = time.monotonic(), cpu_s(console)
        page.goto(console.url + address)
        took_s = min(time.monotonic() - begun, cpu_s(console) - before_s)
        found.pages += 1
        found.records_shown += max(0, rows) if address.startswith("/records") else 0
        found.slowest = max(found.slowest, (took_s, address))
        found.note(address, *problems_of(page, noted, rows))
        if took_s > PAGE_S_MAX:
            found.note(address, f"it took {took_s:.1f} s")


def examine_downloads(page: Page, url: str, found: Found) -> None:
    """Bytes as they were sent, as a file, never as a page; JSON that is JSON."""
    for offset, value in enumerate(islice(values(RECORDS, SEED), 150)):
        address = f"/download?{urlencode({'topic': 'hostile', 'partition': 0, 'offset': offset})}"
        answer = page.request.get(url + address)
        headers = answer.headers
        checks = (
            (answer.body() == value, "other bytes"),
            (headers["content-disposition"].startswith("attachment; filename"), headers["content-disposition"]),
            (headers["content-type"] == "application/octet-stream", headers["content-type"]),
            (headers["x-content-type-options"] == "nosniff", "it may be taken for a page"),
        )
        found.note(address, *(text for is_fine, text in checks if not is_fine))
    for address in ("/api/records?topic=hostile&where=oldest&limit=500", "/api/groups?limit=500", "/api/transactions"):
        answer = page.request.get(url + address)
        if not answer.headers["content-type"].startswith("application/json"):
            found.note(address, answer.headers["content-type"])
        json.loads(answer.text(), parse_constant=partial(_note_constant, found, address))


def _note_constant(found: Found, address: str, name: str) -> None:
    found.note(address, f"{name} is no JSON")


def run(folder: Path) -> Found:
    """A whole run."""
    found = Found()
    with ExitStack() as stack:
        cluster = stack.enter_context(Cluster.start(str(folder / "c"), 1, fetcher="thread", config=SETTINGS))
        fill(cluster)
        open_transactions(cluster, stack)
        console = stack.enter_context(
            ConsoleProcess(folder, "--root", cluster.root, "--super-users", f"User:{USER}", "--allow-changes")
        )
        browser = stack.enter_context(chromium())
        page, noted = noting_page(browser)
        page.goto(f"{console.url}/login?next=javascript:alert(4711)")
        page.fill("#name", USER)
        page.fill("#password", PASSWORD)
        page.click("main button")
        found.note("/login", *problems_of(page, noted, -1))
        if "Log in" in page.title():
            found.note("/login", "the user of a hostile name cannot log in")
        walk(page, noted, console, found)
        examine_downloads(page, console.url, found)
        found.memory_mib = console.memory_mib("VmHWM")
        if found.memory_mib > MEMORY_MIB_MAX:
            found.note("the console's process", f"it took {found.memory_mib} MiB")
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code."""
    del arguments
    with tempfile.TemporaryDirectory(prefix="hostile-") as folder:
        found = run(Path(folder))
    print("\n".join(found.findings))
    slowest_s, address = found.slowest
    print(
        f"{found.pages} pages, {found.records_shown} records shown, {len(found.findings)} findings; slowest "
        f"{slowest_s:.2f} s: {address[:80]}; the console took {found.memory_mib} MiB at most"
    )
    return 1 if found.findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
