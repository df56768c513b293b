"""Three broker processes on one bucket, a random one killed or paused every 15 s, and what is left in the bucket.

    python -m tests.lab.real.bucket_storm.run --minutes 10      # make bucket-storm

Idempotent producers with acks=all, of kafka-python over sockets and our own, write to a topic in the bucket's storage
domain. In the end: the history checker finds nothing, deltalake reads each acknowledged record at its offset, no kill
kept a partition longer than a session and a second, and, once clean-up has run, each object of the bucket is named.
"""

from __future__ import annotations

import random
import sys
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from stratalog.clients.admin.admin import Admin
from stratalog.replication.config import BrokerConfig
from stratalog.server.admin.admin import NewTopic
from stratalog.server.view.cluster_view import ClusterView
from tests.lab.demo_cloud.stored import records_by_deltalake, rows_by_deltalake, tables_of
from tests.lab.real.bucket_storm.failovers import Strike, failovers_ms
from tests.lab.real.bucket_storm.leftovers import Leftovers, leftovers_of
from tests.lab.real.bucket_storm.parties import BucketBrokers, SocketWriter
from tests.lab.real.harness.broker_processes import BROKERS, ClusterWatch
from tests.lab.real.harness.command import concluded, options, work_folder
from tests.lab.real.harness.faults import KILL, PAUSE, Faults, after, show
from tests.lab.real.harness.history import ACK, FAIL, SEND, STORED, Finding, History, check
from tests.lab.real.harness.machine_watch import MachineWatch
from tests.lab.real.harness.parties import Writer
from tests.stores.cloud.simulated import simulated_bucket
from tests.waiting import wait_until

TOPIC, PARTITIONS = "storm", 6
EVERY_S = 15.0
LASTS_S = (1.0, 12.0)
"""Of a fault: a pause, or the time until a killed broker is started again. Shorter and longer than a session."""
LIMIT_ABOVE_SESSION_MS = 1_000
SHOWN_ORPHANS = 40


@dataclass(frozen=True, slots=True)
class BucketStorm:
    """What a run found. `failover_ms`: by fault, the slowest partition that its broker led; `slow_pauses`: of those
    that took longer than the limit, how many happened while the machine itself stood still."""

    seconds: float
    seed: int
    profile: str
    faults: dict[str, int]
    sent: int
    acknowledged: int
    failed: int
    stored: int
    stored_by_deltalake: int
    failover_ms_p50: int
    failover_ms_max: int
    limit_ms: int
    failovers: list[int]
    stalled_s: float
    objects: dict[str, int]
    unnamed_before_clean_up: int
    orphans: list[str]
    findings: list[Finding]

    @property
    def is_clean(self) -> bool:
        is_in_time = self.failover_ms_max <= self.limit_ms or self.stalled_s > 0
        return is_in_time and not self.findings and not self.orphans and self.stored == self.stored_by_deltalake


def inject(
    faults: Faults, brokers: BucketBrokers, watch: ClusterWatch, rng: random.Random, strikes: list[Strike]
) -> None:
    """Strike a random broker, unless one is away or is not back yet."""
    if any(faults.has_struck(broker) or not broker.has_started for broker in brokers.by_id.values()):
        return
    if not watch.is_in_sync():
        return
    leaders = watch.leaders()
    victim, kind = rng.choice(BROKERS), rng.choice((KILL, PAUSE))
    led = frozenset(partition for partition, leader in enumerate(leaders) if leader == victim)
    strikes.append(Strike(time.monotonic() * 1_000, kind, led))
    faults.strike(brokers[victim], kind, rng.uniform(*LASTS_S))


def run_storm(folder: Path, seconds: float, seed: int, profile: str, settings: dict[str, object]) -> BucketStorm:
    """A whole run; `folder` gets the history and what brokers print."""
    config = BrokerConfig.from_properties(settings)
    with simulated_bucket(seed, profile) as (cloud, url), BucketBrokers(folder, url, settings) as brokers:
        root = brokers.metadata_root
        topic_config = {"min.insync.replicas": 2, "retention.ms": -1}
        Admin(root).create_topics([NewTopic(TOPIC, PARTITIONS, 3, topic_config)])
        watch = ClusterWatch(root, TOPIC)
        watch.await_in_sync()
        history, faults, rng, strikes = History(folder / "history.jsonl"), Faults(), random.Random(seed), list[Strike]()
        with ExitStack() as parties:
            machine = parties.enter_context(MachineWatch())
            parties.enter_context(SocketWriter(brokers.bootstrap, TOPIC, PARTITIONS, history, "kafka-python"))
            parties.enter_context(
                Writer(root, TOPIC, history, "own", pause_s=0.2, **{"stratalog.transport": "listener"})
            )
            wait_until(lambda: history.counts[ACK] > 100, "the first acknowledgements", 120)
            begun_ms = time.monotonic() * 1_000
            faults.run(EVERY_S, lambda: inject(faults, brokers, watch, rng, strikes), after(seconds))
            faults.repair(at_once=True)
            watch.await_in_sync()
            enough = history.counts[ACK] + 200
            wait_until(lambda: history.counts[ACK] > enough, "acknowledgements after the storm", 120)
        show(f"brokers end with {brokers.stop()}")
        cloud.profile("0ms")  # nothing is timed from here on
        tables = tables_of(ClusterView(root), TOPIC)
        found = records_by_deltalake(tables)
        for place, value in found.items():
            history.add("bucket", STORED, place.partition, place.offset, value=value.decode())
        stored_by_deltalake = rows_by_deltalake(tables)
        before = leftovers_of(url)
        show(f"before clean-up: {dict(before.objects)}, unnamed {_by_folder(before)}")
        cleaned = leftovers_of(url, cleans=lambda table: True)
        show(f"after clean-up: {dict(cleaned.objects)}, unnamed {_by_folder(cleaned)}")
        history.close()
    events = history.events()
    slowest = sorted(failovers_ms(events, strikes))
    return BucketStorm(
        seconds=seconds,
        seed=seed,
        profile=profile,
        faults=dict(faults.counts),
        sent=history.counts[SEND],
        acknowledged=history.counts[ACK],
        failed=history.counts[FAIL],
        stored=len(found),
        stored_by_deltalake=stored_by_deltalake,
        failover_ms_p50=slowest[len(slowest) // 2] if slowest else 0,
        failover_ms_max=slowest[-1] if slowest else 0,
        limit_ms=config.broker_session_timeout_ms + LIMIT_ABOVE_SESSION_MS,
        failovers=slowest,
        stalled_s=machine.stalled_s(begun_ms),
        objects=dict(cleaned.objects),
        unnamed_before_clean_up=len(before.orphans),
        orphans=list(cleaned.orphans),
        findings=check(events),
    )


def _by_folder(found: Leftovers) -> dict[str, int]:
    """How many, by the first two parts of their paths."""
    return dict(Counter("/".join(path.split("/")[:2]) for path in found.orphans))


def main(arguments: list[str] | None = None) -> int:
    """Exit code 0 when nothing was found, every failover was in time and no object is an orphan."""
    parser = options(__doc__, seed=1)
    parser.add_argument("--minutes", type=float, default=2.0, help="of storm (2)")
    parser.add_argument("--profile", default="fast", help="how long the bucket's requests take (fast)")
    parser.add_argument("--session-ms", type=int, default=9_000, help="broker.session.timeout.ms (9000)")
    given = parser.parse_args(arguments)
    settings: dict[str, object] = {"broker.session.timeout.ms": given.session_ms}
    with work_folder(given.folder, "bucket-storm") as folder:
        result = run_storm(folder, given.minutes * 60, given.seed, given.profile, settings)
    for path in result.orphans[:SHOWN_ORPHANS]:
        show(f"orphan: {path}")
    return concluded(result, orphans=len(result.orphans))


if __name__ == "__main__":
    sys.exit(main())
