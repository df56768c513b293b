"""Three brokers on hosts of their own, whose bucket and clients are on a fourth; every 20 s a link is cut.

    python -m tests.lab.real.hosts.run --minutes 10      # make hosts-storm; needs root and go

A seed draws the broker and the kind of fault. Idempotent producers with acks=all, kafka-python's and our own, write to
a topic in the bucket's storage domain, and a consumer reads it. In the end the history checker finds nothing, deltalake
reads each acknowledged record at its offset, and all partitions are in sync. For each kind of fault the longest pause
of a partition that the broker led is printed: from the fault to the acknowledgement of a record that was sent later.
"""

from __future__ import annotations

import os
import random
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from stratalog.clients.admin.admin import Admin
from stratalog.replication.config import BrokerConfig
from stratalog.server.admin.admin import NewTopic
from stratalog.server.view.cluster_view import ClusterView
from tests.lab.demo_cloud.stored import records_by_deltalake, rows_by_deltalake, tables_of
from tests.lab.real.bucket_storm.failovers import Strike, failovers_ms
from tests.lab.real.bucket_storm.parties import BrokerPlace, BucketBrokers, SocketWriter
from tests.lab.real.harness.broker_processes import BROKERS, LAUNCHER, ClusterWatch
from tests.lab.real.harness.command import concluded, options, work_folder
from tests.lab.real.harness.faults import KILL, PAUSE, Faults, after, show
from tests.lab.real.harness.history import ACK, FAIL, SEND, STORED, Finding, History, check
from tests.lab.real.harness.parties import Reader, Writer
from tests.lab.real.hosts.network import INSIDE, Network, built, run_in
from tests.stores.servers import versity_server
from tests.waiting import wait_until

TOPIC, PARTITIONS = "storm", 6
EVERY_S = 20.0
LASTS_S = (1.0, 16.0)
"""The shortest and the longest fault [s]: some end before the broker's session expires, some after it."""
OUTSIDE = "outside"
NAMES = {broker_id: f"broker-{broker_id}" for broker_id in BROKERS}
FROM_STORE, FROM_BROKERS, FROM_ONE, FROM_CLIENTS, FROM_ALL = (
    "cut from the store", "cut from the other brokers", "cut from another broker", "cut from clients",
    "cut from everything",
)  # fmt: skip
KINDS = (FROM_STORE, FROM_BROKERS, FROM_ONE, FROM_CLIENTS, FROM_ALL, KILL, PAUSE)


@dataclass(frozen=True, slots=True)
class HostsStorm:
    """What a run found. `pause_ms_max`: by kind of fault, with how many there were."""

    seconds: float
    seed: int
    sent: int
    acknowledged: int
    failed: int
    stored: int
    stored_by_deltalake: int
    pause_ms_max: dict[str, tuple[int, int]]
    findings: list[Finding]

    @property
    def is_clean(self) -> bool:
        return not self.findings and self.stored == self.stored_by_deltalake


class Cuts:
    """The cuts that are in effect, and when each of them ends."""

    def __init__(self, network: Network) -> None:
        self._network = network
        clients, store = network[OUTSIDE].addresses
        self._clients, self._store = [clients], [store]
        self._ends_s: dict[int, tuple[float, list[str]]] = {}

    @property
    def are_open(self) -> bool:
        return bool(self._ends_s)

    def cut(self, broker_id: int, kind: str, lasts_s: float, rng: random.Random) -> None:
        """Cut a broker's host as the kind says."""
        others = [self._network[NAMES[each]].address for each in BROKERS if each != broker_id]
        addresses = {
            FROM_STORE: self._store,
            FROM_BROKERS: others,
            FROM_ONE: [rng.choice(others)],
            FROM_CLIENTS: self._clients,
            FROM_ALL: [*self._store, *others, *self._clients],
        }[kind]
        self._network.cut(NAMES[broker_id], addresses)
        self._ends_s[broker_id] = time.monotonic() + lasts_s, addresses
        show(f"broker {broker_id} is {kind} for {lasts_s:.1f} s")

    def mend(self, *, at_once: bool = False) -> None:
        """Undo the cuts whose time is over; with `at_once` all cuts."""
        for broker_id, (end_s, addresses) in list(self._ends_s.items()):
            if at_once or end_s <= time.monotonic():
                del self._ends_s[broker_id]
                self._network.mend(NAMES[broker_id], addresses)


def inject(
    faults: Faults, cuts: Cuts, brokers: BucketBrokers, watch: ClusterWatch, kinds: Iterator[str], rng: random.Random
) -> Strike | None:
    """Begin the next fault, at a random broker that leads a partition. None, and no fault, while the last one lasts or
    the cluster is not in sync."""
    is_open = cuts.are_open or any(faults.has_struck(each) or not each.has_started for each in brokers.by_id.values())
    if is_open or not watch.is_in_sync():
        return None
    leaders, kind, lasts_s = watch.leaders(), next(kinds), rng.uniform(*LASTS_S)
    victim = rng.choice(sorted(set(leaders)))
    led = frozenset(partition for partition, leader in enumerate(leaders) if leader == victim)
    strike = Strike(time.monotonic() * 1_000, kind, led)
    if kind in (KILL, PAUSE):
        faults.strike(brokers[victim], kind, lasts_s)
    else:
        cuts.cut(victim, kind, lasts_s, rng)
    return strike


def drawn(rng: random.Random, kinds: Sequence[str]) -> Iterator[str]:
    """An endless sequence of kinds of faults: all kinds in a random order, then all in another order, and so on."""
    while True:
        yield from rng.sample(kinds, len(kinds))


@contextmanager
def store_of(network: Network) -> Iterator[str]:
    """A bucket at the outer host's second address; its URL. All processes that are started find it."""
    with versity_server(network[OUTSIDE].addresses[1]) as server:
        os.environ.update(server.environment)
        yield server.new_root()


def run_storm(
    folder: Path,
    network: Network,
    seconds: float,
    seed: int,
    settings: dict[str, object],
    wanted: Sequence[str] = KINDS,
) -> HostsStorm:
    """A whole run, on the outer host."""
    BrokerConfig.from_properties(settings)
    places = {i: BrokerPlace(network[NAMES[i]].address, (*network[NAMES[i]].launcher, *LAUNCHER)) for i in BROKERS}
    with store_of(network) as url, BucketBrokers(folder, url, settings, places) as brokers:
        root = brokers.metadata_root
        Admin(root).create_topics([NewTopic(TOPIC, PARTITIONS, 3, {"min.insync.replicas": 2, "retention.ms": -1})])
        watch = ClusterWatch(root, TOPIC)
        watch.await_in_sync()
        history, faults, cuts = History(folder / "history.jsonl"), Faults(), Cuts(network)
        rng, strikes = random.Random(seed), list[Strike]()
        kinds = drawn(rng, wanted)

        def strike() -> None:
            found = inject(faults, cuts, brokers, watch, kinds, rng)
            if found is not None:
                strikes.append(found)

        def is_over() -> bool:
            cuts.mend()
            return ends()

        with ExitStack() as parties:
            parties.enter_context(SocketWriter(brokers.bootstrap, TOPIC, PARTITIONS, history, "kafka-python"))
            by_listener = {"stratalog.transport": "listener"}
            parties.enter_context(Writer(root, TOPIC, history, "own", pause_s=0.2, **by_listener))
            parties.enter_context(Reader(root, TOPIC, history, "reader"))
            wait_until(lambda: history.counts[ACK] > 100, "the first acknowledgements", 120)
            ends = after(seconds)
            faults.run(EVERY_S, strike, is_over)
            faults.repair(at_once=True)
            cuts.mend(at_once=True)
            watch.await_in_sync()
            enough = history.counts[ACK] + 200
            wait_until(lambda: history.counts[ACK] > enough, "acknowledgements after the storm", 120)
        show(f"brokers end with {brokers.stop()}")
        tables = tables_of(ClusterView(root), TOPIC)
        found = records_by_deltalake(tables)
        for place, value in found.items():
            history.add("bucket", STORED, place.partition, place.offset, value=value.decode())
        stored_by_deltalake = rows_by_deltalake(tables)
        history.close()
    events = history.events()
    pauses_ms = {kind: list(failovers_ms(events, [s for s in strikes if s.kind == kind])) for kind in KINDS}
    return HostsStorm(
        seconds=seconds,
        seed=seed,
        sent=history.counts[SEND],
        acknowledged=history.counts[ACK],
        failed=history.counts[FAIL],
        stored=len(found),
        stored_by_deltalake=stored_by_deltalake,
        pause_ms_max={kind: (len(found_ms), max(found_ms, default=0)) for kind, found_ms in pauses_ms.items()},
        findings=check(events),
    )


def main(arguments: list[str] | None = None) -> int:
    """Exit code 0 when nothing was found."""
    words = sys.argv[1:] if arguments is None else arguments
    parser = options(__doc__, seed=1)
    parser.add_argument("--minutes", type=float, default=3.0, help="of storm (3)")
    parser.add_argument("--kind", choices=KINDS, action="append", help="of faults (all)")
    parser.add_argument("--session-ms", type=int, default=9_000, help="broker.session.timeout.ms (9000)")
    given = parser.parse_args(words)
    network = Network("lab", [*NAMES.values(), OUTSIDE], {OUTSIDE: 2})
    if INSIDE not in os.environ:
        with built(network):
            return run_in(network[OUTSIDE], "tests.lab.real.hosts.run", words)
    settings: dict[str, object] = {"broker.session.timeout.ms": given.session_ms, "stratalog.allow.plaintext": True}
    with work_folder(given.folder, "hosts-storm") as folder:
        return concluded(run_storm(folder, network, given.minutes * 60, given.seed, settings, given.kind or KINDS))


if __name__ == "__main__":
    sys.exit(main())
