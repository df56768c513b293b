"""Pages that are open in Chromium while a broker is killed and comes back: tail and overview, by root and address.

    python -m tests.lab.console.failover

I/O: three broker processes, two consoles, a producer, a browser. Each page refreshes itself every 2 s, and notes what
it shows. A page that shows an error instead of what it showed, a note of old numbers that stays, a gap or a repetition
in the tail are findings. Exit code 1 for any.
"""

from __future__ import annotations

import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from playwright.sync_api import Page

from stratalog.clients.admin.admin import Admin
from stratalog.clients.producer.producer import Producer
from stratalog.server.admin.admin import NewTopic
from stratalog.server.view.cluster_view import ClusterView
from stratalog.storage.errors import StratalogError
from stratalog.storage.records import TopicPartition
from tests.lab.console.browsing import ConsoleProcess, chromium, noting_page
from tests.lab.foreign.served import Form, Served

TOPIC = TopicPartition("tail", 0)
RATE, BEFORE_S, DOWN_S, AFTER_S = 20, 10, 15, 20
OLD_S_MAX = 12.0
"""How long a page may say that its numbers are old: a session, an election and a refresh, on a machine with others."""
WATCH = """
window.shown = []; window.offsets = {};
addEventListener('DOMContentLoaded', () => {
  const look = () => {
    const cells = [...document.querySelectorAll('table.records tbody th')];
    const offsets = cells.map(each => Number(each.textContent.replace(/[^0-9]/g, '')));
    for (const each of offsets) window.offsets[each] = true;
    const notes = [...document.querySelectorAll('.notice.bad')].map(each => each.textContent.trim());
    const head = document.querySelector('h1');
    window.shown.push({at: Date.now(), newest: Math.max(-1, ...offsets), rows: offsets.length,
      twice: offsets.length - new Set(offsets).size, notes, head: head ? head.textContent : ''});
  };
  look();
  new MutationObserver(look).observe(document.body, {childList: true, subtree: true});
});
"""


@dataclass(slots=True)
class Writing:
    """A producer of numbered records, and when each was acknowledged."""

    acknowledged_s: list[float] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    is_over: bool = False

    def run(self, root: str) -> None:
        with Producer(root, {"acks": "all", "linger.ms": 0, "delivery.timeout.ms": 60_000}) as producer:
            number = 0
            begun = time.monotonic()
            while not self.is_over:
                producer.send(TOPIC.topic, key=str(number), value=f"record {number}", on_delivery=self._delivered)
                number += 1
                time.sleep(max(0.0, begun + number / RATE - time.monotonic()))

    def _delivered(self, _metadata: object, error: StratalogError | None) -> None:
        if error is not None:
            self.errors.append(f"{error.name}: {error}")
        self.acknowledged_s.append(time.time())


def longest_pause(times: Sequence[float]) -> float:
    """In seconds, between two of them.

    >>> longest_pause([1.0, 1.5, 4.0])
    2.5
    """
    return max((later - earlier for earlier, later in pairwise(times)), default=0.0)


def old_s(shown: Sequence[dict[str, Any]]) -> float:
    """For how long in all a page showed a note that something does not answer."""
    total = 0.0
    for one, following in pairwise(shown):
        if one["notes"]:
            total += (following["at"] - one["at"]) / 1_000
    return total


def judged(name: str, page: Page, head: str, *, is_tail: bool) -> list[str]:
    """Findings about one page; its figures are printed."""
    shown: list[dict[str, Any]] = page.evaluate("window.shown")
    offsets = sorted(int(each) for each in page.evaluate("Object.keys(window.offsets)"))
    findings = [f"{name}: it showed {each['head']!r}" for each in shown if each["head"] != head]
    stale_s = old_s(shown)
    print(f"{name}: {len(shown)} states, a note for {stale_s:.1f} s: {sorted({n for s in shown for n in s['notes']})}")
    if shown[-1]["notes"]:
        findings.append(f"{name}: at the end it says {shown[-1]['notes']}")
    if stale_s > OLD_S_MAX:
        findings.append(f"{name}: its numbers were old for {stale_s:.1f} s")
    if is_tail:
        missing = len(range(offsets[0], offsets[-1] + 1)) - len(offsets) if offsets else -1
        twice = sum(each["twice"] for each in shown)
        growth = [each["at"] / 1_000 for before, each in pairwise(shown)
                  if each["newest"] > before["newest"]]  # fmt: skip
        print(f"{name}: offsets {offsets[0]} to {offsets[-1]}, {missing} missing, {twice} twice; "
              f"longest time without a new record {longest_pause(growth):.1f} s")  # fmt: skip
        findings += [f"{name}: {missing} offsets were never shown"] if missing else []
        findings += [f"{name}: {twice} offsets were shown twice"] if twice else []
    return sorted(set(findings))


def run(folder: Path) -> list[str]:
    """A whole run; its findings."""
    with ExitStack() as stack:
        served = stack.enter_context(Served(Form.BROKERS))
        Admin(served.metadata_root).create_topics([NewTopic(TOPIC.topic, 1, 3, {"min.insync.replicas": 2})])
        writing = Writing()
        thread = threading.Thread(target=writing.run, args=[served.metadata_root], daemon=True)
        thread.start()
        consoles = {
            "by root": stack.enter_context(ConsoleProcess(folder / "root", "--root", served.metadata_root)),
            "by address": stack.enter_context(ConsoleProcess(folder / "wire", "--bootstrap-server", served.bootstrap)),
        }
        browser = stack.enter_context(chromium())
        pages: dict[tuple[str, bool], Page] = {}
        for name, console in consoles.items():
            for is_tail in (True, False):
                page, _ = noting_page(browser)
                page.add_init_script(WATCH)
                page.goto(console.url + (f"/records?topic={TOPIC.topic}&limit=500&every=2" if is_tail else "/?every=2"))
                pages[name, is_tail] = page
        view = ClusterView(served.metadata_root)
        first = next(iter(pages.values()))
        first.wait_for_timeout(BEFORE_S * 1_000)
        view.refresh()
        leader = view.leader(TOPIC)
        served.process(leader).kill()
        killed_s = time.time()
        first.wait_for_timeout(DOWN_S * 1_000)
        served.process(leader).start()
        first.wait_for_timeout(AFTER_S * 1_000)
        writing.is_over = True
        thread.join(60)
        count = len(writing.acknowledged_s)
        for (_, is_tail), page in pages.items():
            if is_tail:
                page.wait_for_function("count => window.shown.at(-1).newest >= count - 1", arg=count)
        print(f"broker {leader} killed; {count} records acknowledged, longest pause of the producer "
              f"{longest_pause([each for each in writing.acknowledged_s if each > killed_s - 1]):.1f} s")  # fmt: skip
        findings = [f"the producer: {each}" for each in writing.errors[:3]]
        for (name, is_tail), page in pages.items():
            head = TOPIC.topic if is_tail else "Overview"
            findings += judged(f"{'tail' if is_tail else 'overview'} {name}", page, head, is_tail=is_tail)
        return findings


def main() -> int:
    """The exit code."""
    with tempfile.TemporaryDirectory(prefix="failover-") as folder:
        findings = run(Path(folder))
    print("\n".join(findings))
    print(f"{len(findings)} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
