"""10,000 partitions and 1,000 groups in Chromium: how long each page takes, by root and by address.

    python -m tests.lab.console.many [--topics 1000] [--partitions 10] [--groups 1000]

I/O: a cluster's process, two consoles, a browser. A page whose first load takes longer than its bound is a finding.
Exit code 1 for any.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from playwright.sync_api import Page

from stratalog.clients.admin.admin import Admin
from stratalog.clients.admin.groups import GroupAdmin
from stratalog.clients.producer.producer import Producer
from stratalog.clients.records import OffsetAndMetadata
from stratalog.jobs.command.opened import open_cluster
from stratalog.server.admin.admin import NewTopic
from stratalog.storage.records import TopicPartition
from tests.lab.console.browsing import ConsoleProcess, chromium, cpu_s, noting_page
from tests.lab.real.harness.broker_processes import ServerProcess
from tests.lab.real.harness.cluster_process import ClusterProcess

BOUND_MS = 1_000
"""The bound of a page, of its time and of the processor time for it: on a machine with others the first says little."""
ROUNDS = 3
SETTINGS = {"offsets.topic.num.partitions": 8, "stratalog.lag.interval.ms": 600_000}
PAGES = (
    "/", "/topics", "/topics?order=records", "/topics?order=partitions", "/topics?order=offline",
    "/topics?contains=t-99", "/topic?topic=t-500", "/records?topic=t-7", "/groups", "/groups?order=name",
    "/groups?contains=g-99", "/group?group=g-500", "/topic_groups?topic=t-7", "/brokers", "/broker?broker=1",
    "/transactions", "/access",
)  # fmt: skip
BY_ROOT = ("/cluster_as_of", "/who_led?topic=t-7", "/sql_tables")


def fill(bootstrap: str, topics: int, partitions: int, groups: int) -> None:
    """Topics, a few records, groups with offsets."""
    given = argparse.Namespace(root=None, bootstrap_server=bootstrap, command_config=None)
    with open_cluster(given, wait_ms=30_000) as opened:
        opened.view.refresh()
        with opened.groups(30_000, changes=True) as asked, ThreadPoolExecutor(4) as threads:
            commit = partial(_commit, GroupAdmin(asked, opened.view), topics, partitions)
            list(threads.map(commit, range(groups)))


def _commit(groups: GroupAdmin, topics: int, partitions: int, number: int) -> None:
    named = [TopicPartition(f"t-{number % topics}", each) for each in range(min(3, partitions))]
    groups.alter_offsets(f"g-{number}", {each: OffsetAndMetadata(0) for each in named})


def make_topics(root: str, topics: int, partitions: int) -> None:
    admin = Admin(root)
    for first in range(0, topics, 100):
        admin.create_topics([NewTopic(f"t-{n}", partitions, 1) for n in range(first, min(first + 100, topics))])
    with Producer(root, {"linger.ms": 100}) as producer:
        for number in range(2_000):
            producer.send(f"t-{number % 50}", key=str(number), value="x" * 100)


@dataclass(frozen=True, slots=True)
class Load:
    """One page: milliseconds until it could be used and until it was whole, the median of further loads, and the
    processor time that console and brokers took for the first, which hardly depends on what else the machine does."""

    address: str
    usable_ms: float
    whole_ms: float
    again_ms: float
    cpu_ms: float

    def __str__(self) -> str:
        times = f"usable after {self.usable_ms:.0f} ms, whole after {self.whole_ms:.0f}, again {self.again_ms:.0f}"
        return f"{self.address}: {times}; {self.cpu_ms:.0f} ms of CPU"


def load_ms(page: Page, address: str) -> tuple[float, float]:
    """Until the page could be used, and until it was whole, by the browser's own clock."""
    page.goto(address)
    found = page.evaluate("performance.getEntriesByType('navigation')[0].toJSON()")
    return float(found["domInteractive"]), float(found["loadEventEnd"] or found["domComplete"])


def measured(page: Page, servers: Sequence[ServerProcess], url: str, addresses: Sequence[str]) -> Iterator[Load]:
    """Each address; `servers` are the processes whose time counts."""
    for address in addresses:
        before_s = sum(map(cpu_s, servers))
        usable_ms, whole_ms = load_ms(page, url + address)
        used_s = sum(map(cpu_s, servers)) - before_s
        again = sorted(load_ms(page, url + address)[0] for _ in range(ROUNDS))
        yield Load(address, usable_ms, whole_ms, again[ROUNDS // 2], used_s * 1_000)


def run(folder: Path, topics: int, partitions: int, groups: int) -> list[str]:
    """A whole run; its findings."""
    findings: list[str] = []
    with ExitStack() as stack:
        cluster = stack.enter_context(ClusterProcess(folder, 3, SETTINGS))
        begun = time.monotonic()
        make_topics(cluster.root, topics, partitions)
        bootstrap = ",".join(f"{host}:{port}" for host, port in cluster.addresses().values())
        fill(bootstrap, topics, partitions, groups)
        print(f"{topics * partitions:,} partitions, {groups:,} groups, made in {time.monotonic() - begun:.0f} s")
        for name, given, pages in (
            ("by root", ("--root", cluster.root), (*PAGES, *BY_ROOT)),
            ("by address", ("--bootstrap-server", bootstrap), PAGES),
        ):
            console = stack.enter_context(ConsoleProcess(folder / name.replace(" ", "-"), *given))
            with chromium() as browser:
                page, noted = noting_page(browser)
                begun = time.monotonic()
                page.goto(console.url)
                print(f"{name}: the first page of all took {time.monotonic() - begun:.2f} s")
                for load in measured(page, (console, cluster), console.url, pages):
                    print(f"{name}: {load}")
                    if min(load.usable_ms, load.cpu_ms) > BOUND_MS:
                        findings.append(f"{name}: {load}")
                findings += noted.taken(page)
            console.kill()
    return findings


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--topics", type=int, default=1_000)
    parser.add_argument("--partitions", type=int, default=10, help="of each topic")
    parser.add_argument("--groups", type=int, default=1_000)
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="many-") as folder:
        findings = run(Path(folder), given.topics, given.partitions, given.groups)
    print("\n".join(findings))
    print(f"{len(findings)} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
