"""Three broker processes under clients that others wrote, while one broker after the other is killed.

    python -m tests.real.client_storm.run --minutes 5

Two idempotent producers, two members of a classic group and two of a KIP-848 group, and two transactional copiers, each
a process with librdkafka. Every 20 s the next broker gets SIGKILL and is started again a moment later. At the end: the
history checker finds nothing, each input is in the copy once, no partition was without an acknowledgement for longer
than 15 s, and no client needed help.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import confluent_kafka

from stratalog.clients.admin.admin import Admin, NewTopic
from tests.foreign.served import Form, Served
from tests.real.client_storm.client import COPY, PARTITIONS, SOURCE
from tests.real.processes.broker_processes import BROKERS, ENVIRONMENT, PROJECT, ClusterWatch
from tests.real.processes.machine_watch import MachineWatch
from tests.real.storm.history import ACK, POLL, SHOWN_FINDINGS, Finding, History, HistoryEvent, check
from tests.real.storm.parties import note_replicas, replicas_are_equal
from tests.waiting import wait_until

CLIENTS = (
    *(("producer", f"p{number}") for number in (1, 2)),
    *(("reader", f"group-classic-{number}") for number in (1, 2)),
    *(("reader", f"group-consumer-{number}") for number in (1, 2)),
    *(("copier", f"copier-{number}") for number in (1, 2)),
)
GROUPS = ("group-classic", "group-consumer")
EVERY_S, DOWN_S = 20.0, 3.0
STOP_MAX_S = 15.0
END_S = 90


@dataclass(slots=True)
class ClientStorm:
    """What a run found. `stop_s_max`: the longest time without an acknowledgement, or a poll, of any partition."""

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


class ClientProcess:
    """A client in a process of its own. In a `with` block; `finish` ends it in order."""

    def __init__(self, served: Served, role: str, name: str) -> None:
        self.name = name
        command = [sys.executable, "-m", "tests.real.client_storm.client", role, name, served.bootstrap]
        self._errors = (served.folder / f"{name}.err").open("wb")
        self._process = subprocess.Popen(
            [*command, str(served.folder / "history.jsonl")],
            cwd=PROJECT,
            env=ENVIRONMENT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
        )

    def await_ready(self) -> None:
        assert self._process.stdout is not None
        assert self._process.stdout.readline().strip() == b"ready", self.name

    def finish(self) -> dict[str, int]:
        """End the process; its counters by name."""
        written, _ = self._process.communicate(b"end\n", END_S)
        return dict(json.loads(written.splitlines()[-1]))

    def __enter__(self) -> ClientProcess:
        return self

    def __exit__(self, *_exception: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self._errors.close()


def storm(served: Served, seconds: float, seed: int) -> int:
    """Kill a broker every 20 s, and start it again; the number of kills."""
    rng, kills, victim = random.Random(seed), 0, 0
    begun_s = time.monotonic()
    end_s = begun_s + seconds
    while time.monotonic() < end_s:
        due_s = time.monotonic() + EVERY_S
        victim = rng.choice([each for each in BROKERS if each != victim])
        served.kill(victim)
        kills += 1
        killed_s = time.monotonic()
        time.sleep(DOWN_S)
        served.process(victim).start()
        while not served.process(victim).has_started and time.monotonic() < due_s:
            time.sleep(0.1)
        passed_s = (killed_s - begun_s, time.monotonic() - killed_s - DOWN_S)
        print(f"SIGKILL broker {victim} at {passed_s[0]:.1f} s, {passed_s[1]:.1f} s to start", flush=True)
        time.sleep(max(0.0, due_s - time.monotonic()))
    return kills


def run_storm(seconds: float, seed: int, keep: Path | None = None) -> ClientStorm:
    """A whole run."""
    with Served(Form.BROKERS, keep=keep) as served, MachineWatch() as machine, ExitStack() as ends:
        config = {"min.insync.replicas": 2}
        Admin(served.metadata_root).create_topics([NewTopic(each, PARTITIONS, 3, config) for each in (SOURCE, COPY)])
        history = History(served.folder / "history.jsonl")
        clients = [ends.enter_context(ClientProcess(served, *each)) for each in CLIENTS]
        for client in clients:
            client.await_ready()
        wait_until(lambda: _is_read(history.events()), "records of all partitions by all groups")
        begun_ms = time.monotonic() * 1_000
        kills = storm(served, seconds, seed)
        watch = ClusterWatch(served.metadata_root, SOURCE)
        watch.await_in_sync()
        ended_ms = time.monotonic() * 1_000
        counts = {client.name: client.finish() for client in clients[:2]}
        wanted = Counter(read_all(served.bootstrap, SOURCE))
        await_so(lambda: len(read_all(served.bootstrap, COPY)) >= wanted.total())
        await_so(lambda: not any(unread(history.events()).values()))
        counts |= {client.name: client.finish() for client in clients[2:]}
        copies = Counter(read_all(served.bootstrap, COPY))
        wait_until(lambda: replicas_are_equal(served.folder, SOURCE, BROKERS, PARTITIONS), "equal replicas", END_S)
        note_replicas(history, served.folder, SOURCE, BROKERS, PARTITIONS)
        events = history.events()
        keep_logs(served, keep)
        stops = stops_of(events, begun_ms, ended_ms)
        return ClientStorm(
            seconds=seconds,
            kills=kills,
            acknowledged=sum(each.get("acknowledged", 0) for each in counts.values()),
            failed=sum(each.get("failed", 0) + each.get("left", 0) for each in counts.values()),
            copied=copies.total(),
            missing_copies=(wanted - copies).total(),
            doubled_copies=(copies - wanted).total(),
            unread=unread(events),
            stop_s_max={who: max(each.seconds for each in stops if each.who == who) for who in ("producers", *GROUPS)},
            stops=[
                f"{each.who}, partition {each.partition}: {each.seconds} s from {each.begun_s} s on"
                for each in stops[:20]
            ],
            counts=counts,
            stalled_s=machine.stalled_s(begun_ms),
            findings=check(events),
        )


def keep_logs(served: Served, keep: Path | None) -> None:
    """Copy the logs of the brokers, and what the clients printed and did."""
    if keep is not None:
        served.keep_logs()
        for each in (*served.folder.glob("*.err"), served.folder / "history.jsonl"):
            shutil.copyfile(each, keep / each.name)


def await_so(is_so: Callable[[], bool]) -> None:
    """Wait for a condition; what does not come true in time is in the result."""
    end_s = time.monotonic() + END_S
    while not is_so() and time.monotonic() < end_s:
        time.sleep(1)


def _is_read(events: Sequence[HistoryEvent]) -> bool:
    places = {(group_of(each.client), each.partition) for each in events if each.kind == POLL}
    return len(places) == len(GROUPS) * PARTITIONS


def group_of(client: str) -> str:
    return client.rpartition("-")[0]


def unread(events: Sequence[HistoryEvent]) -> dict[str, int]:
    """Acknowledged records that no member of a group read, by group."""
    acknowledged = {each.value for each in events if each.kind == ACK}
    polled: dict[str, set[str]] = defaultdict(set)
    for each in events:
        if each.kind == POLL:
            polled[group_of(each.client)].add(each.value)
    return {group: len(acknowledged - polled[group]) for group in GROUPS}


class Stop(NamedTuple):
    """A time without an acknowledgement (`producers`), or a poll of a group, of one partition."""

    seconds: float
    begun_s: float
    who: str
    partition: int


def stops_of(events: Sequence[HistoryEvent], begun_ms: float, ended_ms: float) -> list[Stop]:
    """All times between two events of one partition, the longest first; `begun_s` is that since the storm's begin."""
    times: dict[tuple[str, int], list[float]] = {
        (who, partition): [begun_ms] for who in ("producers", *GROUPS) for partition in range(PARTITIONS)
    }
    for each in sorted(events, key=lambda event: event.time_ms):
        if each.kind in (ACK, POLL) and begun_ms <= each.time_ms <= ended_ms:
            times["producers" if each.kind == ACK else group_of(each.client), each.partition].append(each.time_ms)
    found = [
        Stop(round((after - before) / 1_000, 1), round((before - begun_ms) / 1_000, 1), who, partition)
        for (who, partition), at in times.items()
        for before, after in pairwise([*at, ended_ms])
    ]
    return sorted(found, reverse=True)


def read_all(bootstrap: str, topic: str) -> list[bytes]:
    """All committed values of a topic."""
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
        values: list[bytes] = []
        deadline_s = time.monotonic() + END_S
        while any(place.offset < ends[place.partition] for place in reader.position(places)):
            assert time.monotonic() < deadline_s, f"{topic} is not read to its ends {ends}"
            values += [each.value() for each in reader.consume(1_000, 0.2) if not each.error()]
        return values
    finally:
        reader.close()


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0 when nothing was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=30)
    parser.add_argument("--keep", type=Path, help="copy the logs of the brokers here")
    given = parser.parse_args(arguments)
    result = run_storm(given.minutes * 60, given.seed, given.keep)
    for finding in result.findings[:SHOWN_FINDINGS]:
        print(f"{finding.rule}: {finding.text}", flush=True)
    print(json.dumps({**asdict(result), "findings": len(result.findings), "is_clean": result.is_clean}, indent=1))
    return 0 if result.is_clean else 1


if __name__ == "__main__":
    sys.exit(main())
