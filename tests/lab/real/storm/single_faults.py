"""How long produce is away after one fault; the next fault is five seconds after the ISR is full again."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from pathlib import Path

from stratalog.clients.admin.admin import Admin
from stratalog.clients.producer.producer import Producer
from stratalog.clients.records import RecordMetadata
from stratalog.replication.config import BrokerConfig
from stratalog.server.admin.admin import NewTopic
from stratalog.storage.errors import StratalogError
from tests.lab.real.harness.broker_processes import BROKERS, BrokerProcesses, ClusterWatch
from tests.lab.real.harness.faults import KILL, PAUSE, Faults, show
from tests.lab.real.harness.history import ACK, FAIL, SEND, Finding, History, HistoryEvent, check
from tests.lab.real.harness.machine_watch import MachineWatch
from tests.lab.real.harness.parties import Party, Reader, events_with_replicas
from tests.waiting import wait_until

TOPIC, PARTITIONS = "faults", 6
REST_S, UNTIL_BACK_S = 5.0, 240.0
LIMIT_ABOVE_SESSION_MS = 2_000
PROBE_PAUSE_S = 0.1
REPEATED_MAX = 5


@dataclass(frozen=True, slots=True)
class SingleFault:
    """`away_ms`: from the fault until a record sent after it was acknowledged in the slowest partition."""

    number: int
    at_s: float
    kind: str
    broker_id: int
    is_controller: bool
    led_partitions: int
    away_ms: int
    in_sync_after_s: float


@dataclass(frozen=True, slots=True)
class SingleFaults:
    """A run. `probes` are (time in s at which a record was sent, milliseconds until its acknowledgement); `repeated`
    counts faults that do not count, since the whole machine stood still meanwhile."""

    session_timeout_ms: int
    fetcher: str
    faults: list[SingleFault]
    probes: list[tuple[float, int]]
    findings: list[Finding]
    repeated: int = 0

    @property
    def limit_ms(self) -> int:
        return self.session_timeout_ms + LIMIT_ABOVE_SESSION_MS

    @property
    def is_clean(self) -> bool:
        return not self.findings and all(fault.away_ms <= self.limit_ms for fault in self.faults)


class Prober(Party):
    """Sends a record to every partition every 100 ms, without waiting for the earlier ones."""

    def __init__(self, metadata_root: str, history: History) -> None:
        super().__init__("prober")
        self._producer = Producer(metadata_root, acks="all")
        self._history = history
        self._number = 0
        self._answered: dict[int, list[tuple[float, float]]] = {partition: [] for partition in range(PARTITIONS)}

    def turn(self) -> None:
        self._number += 1
        for partition in range(PARTITIONS):
            self._send(partition, f"probe-{partition}:{self._number}")
        time.sleep(PROBE_PAUSE_S)

    def _send(self, partition: int, value: str) -> None:
        self._history.add(self.name, SEND, partition, value=value)
        sent_ms = now_ms()

        def answered(metadata: RecordMetadata | None, error: StratalogError | None) -> None:
            if metadata is not None:
                self._answered[partition].append((sent_ms, now_ms()))
                self._history.add(self.name, ACK, metadata.partition, metadata.offset, value=value)
            else:
                self._history.add(self.name, FAIL, partition, value=f"{value} {error}")

        self._producer.send(TOPIC, value, partition=partition, on_delivery=answered)

    def back_at_ms(self, since_ms: float) -> float | None:
        """When every partition had acknowledged a record that was sent at `since_ms` or later; None: not yet."""
        firsts = [next((acked for sent, acked in found if sent >= since_ms), None) for found in self._answered.values()]
        return None if None in firsts else max(firsts)

    def finish(self) -> None:
        self._producer.flush(60)
        self._producer.close()


def run_single_faults(
    folder: Path,
    count: int,
    seed: int,
    fetcher: str,
    *,
    settings: dict[str, object] | None = None,
    rest_s: float = REST_S,
) -> SingleFaults:
    """A whole run below `folder`, which is empty or absent; with the default settings unless others are given."""
    config = BrokerConfig.from_properties(settings or {})
    rng = random.Random(seed)
    with BrokerProcesses(folder, settings, fetcher) as brokers:
        root = brokers.metadata_root
        Admin(root).create_topics([NewTopic(TOPIC, PARTITIONS, 3, {"min.insync.replicas": 2})])
        watch = ClusterWatch(root, TOPIC)
        watch.await_in_sync()
        history = History(folder / "history.jsonl")
        begun_ms = now_ms()
        faults: list[SingleFault] = []
        repeated = 0
        with Reader(root, TOPIC, history, "reader"), Prober(root, history) as prober, MachineWatch() as machine:
            while len(faults) < count:
                time.sleep(rest_s)
                rested_ms = now_ms()
                fault = one_fault(len(faults) + 1, brokers, watch, prober, rng, begun_ms)
                stalled_s = machine.stalled_s(rested_ms)
                show(f"{fault}{f', machine stood still for {stalled_s:.1f} s: repeated' if stalled_s else ''}")
                if stalled_s and repeated < REPEATED_MAX:
                    repeated += 1
                else:
                    faults.append(fault)
            time.sleep(rest_s)
        events = events_with_replicas(history, folder, TOPIC, BROKERS, PARTITIONS)
    timeout_ms = config.broker_session_timeout_ms
    return SingleFaults(timeout_ms, fetcher, faults, probes(events, begun_ms), check(events), repeated)


def one_fault(
    number: int, brokers: BrokerProcesses, watch: ClusterWatch, prober: Prober, rng: random.Random, begun_ms: float
) -> SingleFault:
    """Inject a fault, wait until every partition acknowledges again, repair it, wait until the ISR is full.

    Kills and pauses alternate; every other pair is of the controller.
    """
    kind = KILL if number % 2 else PAUSE
    controller, leaders = watch.controller(), watch.leaders()
    victim = controller if number % 4 in (1, 2) else rng.choice([i for i in BROKERS if i != controller])
    struck_ms, faults = now_ms(), Faults()
    faults.strike(brokers[victim], kind)
    wait_until(lambda: prober.back_at_ms(struck_ms) is not None, "acknowledgements by every partition", UNTIL_BACK_S)
    away_ms = prober.back_at_ms(struck_ms) - struck_ms
    faults.repair(at_once=True)
    in_sync_after_s = watch.await_in_sync()
    return SingleFault(
        number=number,
        at_s=round((struck_ms - begun_ms) / 1000, 1),
        kind=kind,
        broker_id=victim,
        is_controller=victim == controller,
        led_partitions=leaders.count(victim),
        away_ms=round(away_ms),
        in_sync_after_s=round(in_sync_after_s, 1),
    )


def now_ms() -> float:
    return time.monotonic() * 1000


def probes(events: list[HistoryEvent], begun_ms: float) -> list[tuple[float, int]]:
    """Each acknowledged probe: when it was sent [s], how long it took [ms]."""
    sent = {event.value: event.time_ms for event in events if event.kind == SEND}
    return [
        (round((sent[e.value] - begun_ms) / 1000, 2), e.time_ms - sent[e.value])
        for e in events
        if e.kind == ACK and e.value in sent
    ]
