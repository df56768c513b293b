"""The same random requests to Kafka and to stratalog: `python -m tests.lab.differential.random_dialogues --seeds 50`.

Prints the steps of a dialogue up to the first answer that differs, and ends with 1 then. I/O: Java, sockets, folders.
"""

from __future__ import annotations

import argparse
import copy
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from tests.lab.bench.peer.kafka import Kafka
from tests.lab.differential import clusters, normal
from tests.lab.differential.comparison import known_everywhere
from tests.lab.differential.dialogue import Dialogue, Peer
from tests.lab.differential.random_admin import RandomAdmin
from tests.lab.differential.random_groups import RandomGroup, SettledGroup, in_order
from tests.lab.differential.random_moves import RandomMoves
from tests.lab.differential.random_security import RandomSecurity
from tests.lab.differential.random_steps import RandomSteps
from tests.lab.differential.scripts import Step

Steps = RandomSteps | RandomAdmin | RandomMoves | RandomSecurity
STEPS = 120
CONTROL = 0x20
OWN = ["*topics[__consumer_offsets].partitions"]
"""Which one a group has follows from its id, which is each cluster's own."""
LISTED = ["*lastTimestamp", "*logAppendTimeMs"]
"""A producer's last timestamp, and that of a batch that comes again: see docs/migrate-from-kafka.md."""
READS = {
    "Fetch", "ListOffsets", "DescribeProducers", "DescribeTransactions", "OffsetFetch",
    "DescribeConfigs", "DescribeClientQuotas", "DescribeAcls", "DescribeUserScramCredentials",
    "Metadata",
}  # fmt: skip
AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
TRIES = 20
"""Reads whose answers differ are asked again: Kafka's Fetch may lack the marker of a transaction that has ended."""


@contextmanager
def both(folder: Path) -> Iterator[tuple[Peer, Peer]]:
    """Kafka and stratalog, with the same settings."""
    settings = {name: str(value).lower() for name, value in clusters.SETTINGS.items()} | AUTHORIZER
    with Kafka.start(folder / "kafka", heap=("-Xms256m", "-Xmx512m"), settings=settings) as kafka:
        addresses = {broker: ("127.0.0.1", port) for broker, port in enumerate(kafka.ports, start=1)}
        with Peer(addresses) as theirs, clusters.stratalog(folder / "cluster", **AUTHORIZER) as ours:
            for peer in (theirs, ours):
                begin(peer)
            yield theirs, ours


def begin(peer: Peer) -> None:
    """Wait for all coordinators, and take producer id 0, which is not told from other numbers."""
    dialogue = Dialogue(peer, "low")
    for number in range(12):
        name = f"before-{number}"
        fields = {"transactionalId": name, "transactionTimeoutMs": 60_000}
        dialogue.answer(Step("", "InitProducerId", fields, f"transaction {name}", until=("errorCode", 0)))
        asked = {"groups": [{"groupId": name, "topics": []}], "requireStable": False}
        dialogue.answer(Step("", "OffsetFetch", asked, f"group {name}", version=8, until=("*errorCode", 0)))


def difference_of_groups(protocols: tuple[str, ...], seed: int, count: int, theirs: Peer, ours: Peer) -> list[str]:
    """The changes up to the first one after which the groups differ, and how; empty if none does."""
    kafka, stratalog = (SettledGroup(Dialogue(peer, "high")) for peer in (theirs, ours))
    kafka.begin()
    stratalog.begin()
    story: list[str] = []
    for number, change in enumerate(RandomGroup(seed, protocols).changes(count)):
        told, answered = kafka.after(change), stratalog.after(change)
        story.append(f"{number:4} {change.that}")
        if lines := _differing(dict(enumerate(told)), dict(enumerate(answered))):
            return [*story, f"       {told}", *lines]
    return []


def difference(steps: Steps, count: int, theirs: Peer, ours: Peer) -> list[str]:
    """The steps up to the first one that is answered differently, and how; empty if none is."""
    kafka, stratalog = Dialogue(theirs, "high"), Dialogue(ours, "high")
    story: list[str] = []
    for number, step in enumerate(steps.steps(count)):
        for _ in range(TRIES if step.api in READS else 1):
            told, answered = kafka.answer(step), stratalog.answer(step)
            lines = _differing(*_of_one_reach(*(normal.without(a, step.own) for a in (told, answered)), steps.starts))
            if not lines:
                break
            kafka.pause()
        story.append(f"{number:4} {_line(step)}\n       {told}")
        if lines:
            return [*story, *lines]
        steps.learn(told)
    return []


def _of_one_reach(told: Any, answered: Any, starts: Mapping[int, int]) -> tuple[Any, Any]:
    """Two answers without what one of them may have more than the other.

    A broker need not return all that it has. Kafka may not return a marker at the end, though its last stable offset is
    behind it, lists aborted transactions behind the last record that it returns, and says a last stable offset before
    the start of the log where the start of a transaction was deleted.
    """
    answers = copy.deepcopy(told), copy.deepcopy(answered)
    for each in answers:
        for topic in each.get("topics", ()):
            if "topicConfigErrorCode" in topic:  # of one that is only checked Kafka tells more
                topic.update(dict.fromkeys(topic.keys() - {"name", "errorCode"}))
        for part in _parts(each, "topics", "partitions"):
            if part.get("timestamp") == -1 and part["offset"] >= 0:
                part["offset"] = max(part["offset"], starts[part["partitionIndex"]])
    for both in zip(*(_parts(each, "responses", "partitions") for each in answers), strict=False):
        if all("lastStableOffset" in part for part in both):  # of a Fetch
            _trim(both)
    return answers


def _parts(answer: Any, topics: str, partitions: str) -> Iterator[Any]:
    for topic in answer.get(topics, ()):
        yield from topic.get(partitions, ())


def _trim(both: tuple[Any, Any]) -> None:
    """Cut the records of both answers to the number that both have, and drop aborted transactions behind their end."""
    records = [part.get("records") or [] for part in both]
    for batches in records:
        batches.sort(key=lambda batch: batch["baseOffset"])
        while batches and batches[-1]["attributes"] & CONTROL:
            batches.pop()
    count = min(map(len, records))
    for part, batches in zip(both, records, strict=True):
        if count:
            del batches[count:]
        end = batches[-1]["baseOffset"] + batches[-1]["recordCount"] if batches else 0
        aborted = part.get("abortedTransactions") or []
        part["abortedTransactions"] = [each for each in aborted if each["firstOffset"] < end]
        part["lastStableOffset"] = max(part["lastStableOffset"], part["logStartOffset"])


def _differing(told: Any, answered: Any) -> list[str]:
    """A line for each field that differs, without those that docs/migrate-from-kafka.md lists."""
    listed = [path for each in known_everywhere() for path in each["paths"]] + OWN + LISTED
    return [
        f"     > {path}: Kafka {pair[0]!r}, stratalog {pair[1]!r}"
        for path, pair in normal.differences(in_order(told), in_order(answered)).items()
        if not any(normal.matches(each, path) for each in listed)
    ]


def _line(step: Step) -> str:
    fields: dict[str, Any] = dict(step.fields)
    return f"{step.that}: {step.api} {'' if step.version is None else step.version} to {step.to}: {fields}"


KINDS: Mapping[str, Callable[[int, int, Peer, Peer], list[str]]] = {
    "logs": lambda seed, *others: difference(RandomSteps(seed), *others),
    "groups": partial(difference_of_groups, ("consumer",)),
    "classic": partial(difference_of_groups, ("classic",)),
    "migration": partial(difference_of_groups, ("classic", "consumer")),
    "admin": lambda seed, *others: difference(RandomAdmin(seed), *others),
    "moves": lambda seed, *others: difference(RandomMoves(seed), *others),
    "security": lambda seed, *others: difference(RandomSecurity(seed), *others),
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.lab.differential.random_dialogues")
    parser.add_argument("--seeds", type=int, default=50)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--of", choices=[*KINDS], nargs="*", default=[*KINDS])
    given = parser.parse_args()
    differing = 0
    with tempfile.TemporaryDirectory() as folder, both(Path(folder)) as (theirs, ours):
        for seed in range(given.first_seed, given.first_seed + given.seeds):
            for kind in given.of:
                if story := KINDS[kind](seed, given.steps, theirs, ours):
                    differing += 1
                    print(f"{kind}, seed {seed}", *story, sep="\n", flush=True)
    print(f"{given.seeds} dialogues of {' and of '.join(given.of)}, {given.steps} steps each: {differing} differ")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
