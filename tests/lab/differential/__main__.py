"""Asks Kafka and stratalog the same and compares: `make differential`. I/O: Maven, Java, sockets, a temporary folder.

Writes Kafka's answers beside this file, prints what differs, and ends with 1 if the page of differences lacks it.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from pathlib import Path

from tests.lab.bench.peer.kafka import Kafka
from tests.lab.differential import answers, clusters
from tests.lab.differential.comparison import compare
from tests.lab.differential.dialogue import Dialogue, Peer
from tests.lab.differential.scripts import NAMES, RUNS


def answers_of(peer: Peer, names: list[str]) -> dict[str, dict[str, object]]:
    """The answers by script and step."""
    found: dict[str, dict[str, object]] = {}
    for name in names:
        for run in RUNS:
            found.setdefault(name, {}).update(Dialogue(peer, run).answers(name))
    return found


def record(names: list[str], bootstrap: str | None) -> None:
    """Ask Kafka, and keep what it answered."""
    kept = answers.recorded_answers() if answers.FILE.exists() else {}
    if bootstrap:
        ports = [int(address.rsplit(":", 1)[1]) for address in bootstrap.split(",")]
        with Peer(_addresses(ports)) as peer:
            kept |= answers_of(peer, names)
    else:
        with tempfile.TemporaryDirectory() as folder:
            settings = {name: str(value).lower() for name, value in clusters.SETTINGS.items()}
            with (
                Kafka.start(Path(folder), heap=("-Xms256m", "-Xmx512m"), settings=settings) as kafka,
                Peer(_addresses(kafka.ports)) as peer,
            ):
                kept |= answers_of(peer, names)
    answers.write_answers({name: kept[name] for name in NAMES if name in kept})


def _addresses(ports: list[int] | tuple[int, ...]) -> dict[int, tuple[str, int]]:
    return {broker: ("127.0.0.1", port) for broker, port in enumerate(ports, start=1)}


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.lab.differential")
    parser.add_argument("scripts", nargs="*", default=NAMES)
    parser.add_argument("--bootstrap", help="a Kafka of three brokers that runs already, 127.0.0.1:port,…")
    parser.add_argument("--recorded", action="store_true", help="do not ask Kafka")
    given = parser.parse_args()
    if not given.recorded:
        record(given.scripts, given.bootstrap)
    theirs = answers.recorded_answers()
    with tempfile.TemporaryDirectory() as folder, clusters.stratalog(Path(folder) / "cluster") as peer:
        ours = answers_of(peer, given.scripts)
    listed: Counter[str] = Counter()
    unlisted = 0
    for name in given.scripts:
        found = compare(name, theirs.get(name, {}), ours[name])
        for line in (*found.unlisted, *found.not_seen):
            print(line)
        listed += found.listed
        unlisted += len(found.unlisted)
    for row, count in sorted(listed.items()):
        print(f"{count:5} {row}")
    print(f"{sum(map(len, ours.values()))} requests, {sum(listed.values())} listed differences, {unlisted} others")
    return 1 if unlisted else 0


if __name__ == "__main__":
    sys.exit(main())
