"""The tail of a topic that takes 10,000 records a second, in Chromium for a minute.

    python -m tests.lab.console.tail [--seconds 60] [--rate 10000]

I/O: a cluster's process, a console's process by its root, a producer, a browser. A stall, a page whose elements or
memory grow, and a console whose memory grows are findings. Exit code 1 for any.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from stratalog.clients.admin.admin import Admin
from stratalog.clients.producer.producer import Producer
from tests.lab.console.browsing import ConsoleProcess, chromium, cpu_s, noting_page
from tests.lab.console.failover import WATCH, longest_pause
from tests.lab.real.harness.cluster_process import ClusterProcess

PARTITIONS, VALUE_BYTES = 4, 100
STALL_S_MAX = 5.0
GROWTH_MAX = 1.5
"""How much more at the end of a run than after its first third is taken for growth."""


@dataclass(frozen=True, slots=True)
class Sample:
    """The page and the console at one time."""

    at_s: float
    nodes: int
    heap_mib: float
    console_mib: int


class Flow:
    """Writes records at a rate until it is told to end."""

    def __init__(self, root: str, rate: int) -> None:
        self.sent = 0
        self.is_over = False
        self._root, self._rate = root, rate
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Flow:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.is_over = True
        self._thread.join(60)

    def _run(self) -> None:
        value = b"v" * VALUE_BYTES
        with Producer(self._root, {"linger.ms": 50}) as producer:
            begun = time.monotonic()
            while not self.is_over:
                for _ in range(self._rate // 20):
                    producer.send("tail", key=str(self.sent).encode(), value=value)
                    self.sent += 1
                time.sleep(max(0.0, begun + self.sent / self._rate - time.monotonic()))


def run(folder: Path, seconds: int, rate: int) -> list[str]:
    """A whole run; its findings."""
    with ExitStack() as stack:
        cluster = stack.enter_context(ClusterProcess(folder, 1, {}))
        Admin(cluster.root).create_topic("tail", PARTITIONS, 1)
        console = stack.enter_context(ConsoleProcess(folder, "--root", cluster.root))
        browser = stack.enter_context(chromium())
        page, noted = noting_page(browser)
        page.add_init_script(WATCH.replace("window.offsets[each] = true", ""))
        flow = stack.enter_context(Flow(cluster.root, rate))
        page.goto(f"{console.url}/records?topic=tail&limit=500&every=2")
        devtools = page.context.new_cdp_session(page)
        devtools.send("Performance.enable")
        samples: list[Sample] = []
        begun, before_s, sent = time.monotonic(), cpu_s(console), flow.sent
        while time.monotonic() < begun + seconds:
            page.wait_for_timeout(1_000)
            figures = {each["name"]: each["value"] for each in devtools.send("Performance.getMetrics")["metrics"]}
            heap_mib = figures["JSHeapUsedSize"] / (1 << 20)
            samples.append(Sample(time.monotonic() - begun, int(figures["Nodes"]), heap_mib, console.memory_mib()))
        took_s = time.monotonic() - begun
        shown = page.evaluate("window.shown")
        growth = [each["at"] / 1_000 for before, each in pairwise(shown)
                  if each["newest"] > before["newest"]]  # fmt: skip
        stall_s = longest_pause([begun - time.monotonic() + time.time(), *growth])
        third = [each for each in samples if took_s / 3 <= each.at_s < 2 * took_s / 3]
        end = [each for each in samples if each.at_s >= 2 * took_s / 3]
        print(
            f"{(flow.sent - sent) / took_s:,.0f} records/s for {took_s:.0f} s: {len(growth)} refreshes, at most "
            f"{stall_s:.1f} s apart; {max(each['rows'] for each in shown)} rows, "
            f"{max(each.nodes for each in samples):,} nodes, heap {max(each.heap_mib for each in samples):.1f} MiB; "
            f"console {(cpu_s(console) - before_s) / took_s:.0%} of a core, "
            f"{max(each.console_mib for each in samples)} MiB"
        )
        findings = noted.taken(page)
        if stall_s > STALL_S_MAX:
            findings.append(f"no new record was shown for {stall_s:.1f} s")
        for what in ("nodes", "heap_mib", "console_mib"):
            earlier, later = (max(getattr(each, what) for each in part) for part in (third, end))
            if later > GROWTH_MAX * earlier:
                findings.append(f"{what} grew from {earlier:.0f} to {later:.0f}")
        return findings


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--rate", type=int, default=10_000, help="records a second")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="tail-") as folder:
        findings = run(Path(folder), given.seconds, given.rate)
    print("\n".join(findings))
    print(f"{len(findings)} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
