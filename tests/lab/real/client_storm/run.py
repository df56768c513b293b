"""Three broker processes under clients that others wrote, while one broker after the other is killed.

    python -m tests.lab.real.client_storm.run --minutes 5 --clients java --acls

Two idempotent producers, two members of a classic group and two of a KIP-848 group, and two transactional copiers, each
a process with Kafka's Java library, or with librdkafka. Every 20 s another broker gets SIGKILL and is started again a
moment later. At the end: the history checker finds nothing, each input is in the copy once, no partition was without an
acknowledgement, a poll of each group or a committed copy for longer than 15 s, and no client needed help.
"""

from __future__ import annotations

import random
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import confluent_kafka

from stratalog.clients.admin.admin import Admin
from stratalog.server.admin.admin import NewTopic
from tests.lab.foreign.served import Form, Served
from tests.lab.real.client_storm.client import COPY, PARTITIONS, SOURCE
from tests.lab.real.client_storm.processes import ClientProcess, Library
from tests.lab.real.client_storm.rights import BETWEEN_BROKERS, SETTINGS, give_rights
from tests.lab.real.client_storm.stops import COPIERS, GROUPS, PRODUCERS, group_of, moments_of, stops_of, unread
from tests.lab.real.harness.broker_processes import BROKERS, ClusterWatch
from tests.lab.real.harness.command import concluded, options
from tests.lab.real.harness.faults import KILL, Faults, after
from tests.lab.real.harness.history import POLL, Finding, History, HistoryEvent, check
from tests.lab.real.harness.machine_watch import MachineWatch
from tests.lab.real.harness.parties import events_with_replicas
from tests.waiting import wait_until

CLIENTS = (
    *(("producer", f"p{number}") for number in (1, 2)),
    *(("reader", f"group-classic-{number}") for number in (1, 2)),
    *(("reader", f"group-consumer-{number}") for number in (1, 2)),
    *(("copier", f"copier-{number}") for number in (1, 2)),
)
KINDS = (PRODUCERS, *GROUPS, COPIERS)
EVERY_S, DOWN_S = 20.0, 3.0
STOP_MAX_S = 15.0
END_S = 90
SHOWN_STOPS = 20


@dataclass(slots=True)
class ClientStorm:
    """What a run found. `stop_s_max`: the longest time without an acknowledgement, a poll, a copy of any partition."""

    clients: str
    seconds: float
    kills: int
    acknowledged: int
    failed: int
    copied: int
    missing_copies: int
    doubled_copies: int
    unread: dict[str, int]
    stop_s_max: dict[str, float]
    stops: list[str]
    counts: dict[str, dict[str, int]]
    stalled_s: float
    findings: list[Finding]

    @property
    def is_clean(self) -> bool:
        is_right = not (self.findings or self.missing_copies or self.doubled_copies or any(self.unread.values()))
        return is_right and not self.failed and max(self.stop_s_max.values()) <= STOP_MAX_S


def storm(served: Served, seconds: float, seed: int) -> int:
    """Kill a broker every 20 s, and start it again; the number of kills."""
    rng, faults, victims = random.Random(seed), Faults(), [0]

    def inject() -> None:
        victims.append(rng.choice([each for each in BROKERS if each != victims[-1]]))
        faults.strike(served.process(victims[-1]), KILL, DOWN_S)

    faults.run(EVERY_S, inject, after(seconds))
    faults.repair(at_once=True)
    return faults.counts[KILL]


def run_storm(
    library: Library, seconds: float, seed: int, keep: Path | None = None, *, acls: bool = False
) -> ClientStorm:
    """A whole run. `acls`: with an authorizer, and without super users."""
    secured = {"settings": SETTINGS, "listeners": BETWEEN_BROKERS} if acls else {}
    with (
        Served(Form.BROKERS, keep=keep, **secured) as served,
        library.program as program,
        MachineWatch() as machine,
        ExitStack() as ends,
    ):
        ends.callback(keep_logs, served, keep)
        if acls:
            give_rights(served.metadata_root)
        config = {"min.insync.replicas": 2}
        Admin(served.metadata_root).create_topics([NewTopic(each, PARTITIONS, 3, config) for each in (SOURCE, COPY)])
        history = History(served.folder / "history.jsonl")
        clients = [ends.enter_context(ClientProcess(program, served, *each)) for each in CLIENTS]
        for client in clients:
            client.await_ready()
        wait_until(lambda: _is_read(history.events()), "records of all partitions by all groups")
        wait_until(lambda: len({each.partition for each in read_all(served.bootstrap, COPY)}) == PARTITIONS, "copies")
        begun_ms = time.monotonic() * 1_000
        kills = storm(served, seconds, seed)
        ClusterWatch(served.metadata_root, SOURCE).await_in_sync()
        ended_ms = time.monotonic() * 1_000
        counts = {client.name: client.finish() for client in clients[:2]}
        wanted = Counter(each.value for each in read_all(served.bootstrap, SOURCE))
        await_so(lambda: len(read_all(served.bootstrap, COPY)) >= wanted.total())
        await_so(lambda: not any(unread(history.events()).values()))
        counts |= {client.name: client.finish() for client in clients[2:]}
        copied = read_all(served.bootstrap, COPY)
        copies = Counter(each.value for each in copied)
        events = events_with_replicas(history, served.folder, SOURCE, BROKERS, PARTITIONS, END_S)
        moments = moments_of(events, ((each.partition, each.time_ms) for each in copied))
        stops = stops_of(moments, begun_ms, ended_ms)
        return ClientStorm(
            clients=library,
            seconds=seconds,
            kills=kills,
            acknowledged=sum(each.get("acknowledged", 0) for each in counts.values()),
            failed=sum(each.get("failed", 0) + each.get("left", 0) for each in counts.values()),
            copied=copies.total(),
            missing_copies=(wanted - copies).total(),
            doubled_copies=(copies - wanted).total(),
            unread=unread(events),
            stop_s_max={who: max(each.seconds for each in stops if each.who == who) for who in KINDS},
            stops=[str(each) for each in stops[:SHOWN_STOPS]],
            counts=counts,
            stalled_s=machine.stalled_s(begun_ms),
            findings=check(events),
        )


def keep_logs(served: Served, keep: Path | None) -> None:
    """Copy the logs of the brokers, and what the clients printed and did, also of a run that failed."""
    if keep is not None:
        served.keep_logs()
        for each in (*served.folder.glob("*.err"), *served.folder.glob("history.jsonl")):
            shutil.copyfile(each, keep / each.name)


def await_so(is_so: Callable[[], bool]) -> None:
    """Wait for a condition; what does not come true in time is in the result."""
    end_s = time.monotonic() + END_S
    while not is_so() and time.monotonic() < end_s:
        time.sleep(1)


def _is_read(events: Sequence[HistoryEvent]) -> bool:
    places = {(group_of(each.client), each.partition) for each in events if each.kind == POLL}
    return len(places) == len(GROUPS) * PARTITIONS


class Stored(NamedTuple):
    """A committed record, and its timestamp on the monotonic clock."""

    value: bytes
    partition: int
    time_ms: float


def read_all(bootstrap: str, topic: str) -> list[Stored]:
    """All committed records of a topic."""
    reader = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "none",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
        }
    )
    try:
        places = [confluent_kafka.TopicPartition(topic, each, 0) for each in range(PARTITIONS)]
        ends = {each.partition: reader.get_watermark_offsets(each, 30)[1] for each in places}
        reader.assign(places)
        shift_ms = (time.monotonic() - time.time()) * 1_000
        found: list[Stored] = []
        deadline_s = time.monotonic() + END_S
        while any(place.offset < ends[place.partition] for place in reader.position(places)):
            assert time.monotonic() < deadline_s, f"{topic} is not read to its ends {ends}"
            records = (each for each in reader.consume(1_000, 0.2) if not each.error())
            found += [Stored(each.value(), each.partition(), each.timestamp()[1] + shift_ms) for each in records]
        return found
    finally:
        reader.close()


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0 when nothing was found."""
    parser = options(__doc__, seed=30)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--clients", type=Library, choices=Library, default=Library.JAVA)
    parser.add_argument("--acls", action="store_true", help="brokers with an authorizer, and without super users")
    given = parser.parse_args(arguments)
    return concluded(run_storm(given.clients, given.minutes * 60, given.seed, given.folder, acls=given.acls))


if __name__ == "__main__":
    sys.exit(main())
