"""What the reassign-partitions tool reads and prints: JSON files, plans and states, in Kafka's format. Pure."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from stratalog import PartitionReassignment, TopicPartition
from stratalog.jobs.command.terminal import UsageError

VERSION = 1
ANY_LOG_DIR = "any"
Item = TypeVar("Item", bound=Hashable)
Assignment = Mapping[TopicPartition, Sequence[int]]


@dataclass(frozen=True, slots=True)
class ReassignmentState:
    """A partition's replicas now and those asked for; `is_done`: no reassignment is active."""

    current: tuple[int, ...]
    target: tuple[int, ...]
    is_done: bool


def parse_reassignment(text: str) -> list[tuple[TopicPartition, tuple[int, ...]]]:
    """`(partition, replicas)` of a reassignment file, as they stand there. UsageError in Kafka's words."""
    rows = []
    for fields in _listed(text, "partitions"):
        try:
            named = TopicPartition(str(fields["topic"]), int(fields["partition"]))
            replicas = tuple(int(broker) for broker in fields["replicas"])
            log_dirs = list(fields.get("log_dirs", [ANY_LOG_DIR] * len(replicas)))
        except (KeyError, TypeError, ValueError, AttributeError) as reason:
            raise UsageError(f"Each partition has a topic, a partition and replicas; found {reason}") from reason
        if len(replicas) != len(log_dirs):
            raise UsageError(
                f"Size of replicas list {_bracketed(replicas)} is different from size of log dirs list "
                f"{_bracketed(log_dirs)} for partition {named}"
            )
        if set(log_dirs) - {ANY_LOG_DIR}:
            raise UsageError(
                f"A broker has one log directory, so log_dirs of partition {named} can only be '{ANY_LOG_DIR}', "
                f"not {_bracketed(log_dirs)}"
            )
        rows.append((named, replicas))
    return rows


def parse_plan(text: str) -> dict[TopicPartition, tuple[int, ...]]:
    """A reassignment file that can be executed. UsageError in Kafka's words for any other."""
    rows = parse_reassignment(text)
    if not rows:
        raise UsageError("Partition reassignment list cannot be empty")
    if any(not replicas for _, replicas in rows):
        raise UsageError("Partition replica list cannot be empty")
    twice = duplicates(named for named, _ in rows)
    if twice:
        raise UsageError(f"Partition reassignment contains duplicate topic partitions: {_joined(twice)}")
    entries = [f"{named} contains multiple entries for {_joined(d)}" for named, r in rows if (d := duplicates(r))]
    if entries:
        raise UsageError(f"Partition replica lists may not contain duplicate entries: {'. '.join(entries)}")
    return dict(rows)


def parse_topics(text: str) -> list[str]:
    """The topics of a topics-to-move file. UsageError in Kafka's words."""
    try:
        topics = [str(fields["topic"]) for fields in _listed(text, "topics")]
    except (KeyError, TypeError) as reason:
        raise UsageError(f"Each topic has a topic; found {reason}") from reason
    twice = duplicates(topics)
    if twice:
        raise UsageError(f"List of topics to reassign contains duplicate entries: {_bracketed(twice)}")
    return topics


def parse_brokers(text: str) -> list[int]:
    """`--broker-list`. UsageError for an id that is not a number, or is named twice.

    >>> parse_brokers("4,5,6")
    [4, 5, 6]
    """
    try:
        brokers = [int(part) for part in text.split(",")]
    except ValueError as reason:
        raise UsageError(f"Broker list {text}: {reason}") from reason
    twice = duplicates(brokers)
    if twice:
        raise UsageError(f"Broker list contains duplicate entries: {_bracketed(twice)}")
    return brokers


def assignment_json(assignment: Assignment) -> str:
    """An assignment as a reassignment file, on one line, partitions in order."""
    partitions = [
        {
            "topic": named.topic,
            "partition": named.partition,
            "replicas": list(assignment[named]),
            "log_dirs": [ANY_LOG_DIR] * len(assignment[named]),
        }
        for named in sorted(assignment)
    ]
    return json.dumps({"version": VERSION, "partitions": partitions}, separators=(",", ":"))


def rollback_text(current: Assignment) -> str:
    """What `--execute` prints before it changes anything."""
    return (
        f"Current partition replica assignment\n\n{assignment_json(current)}\n\n"
        "Save this to use as the --reassignment-json-file option during rollback"
    )


def states_text(states: Mapping[TopicPartition, ReassignmentState]) -> str:
    """What `--verify` prints."""
    return "\n".join(["Status of partition reassignment:", *(_state_line(p, states[p]) for p in sorted(states))])


def _state_line(named: TopicPartition, state: ReassignmentState) -> str:
    if not state.is_done:
        return f"Reassignment of partition {named} is still in progress."
    if state.current == state.target:
        return f"Reassignment of partition {named} is completed."
    return (
        f"There is no active reassignment of partition {named}, but replica set is {_joined(state.current)} rather "
        f"than {_joined(state.target)}."
    )


def under_way_text(under_way: Mapping[TopicPartition, PartitionReassignment]) -> str:
    """What `--list` prints."""
    if not under_way:
        return "No partition reassignments found."
    return "\n".join(["Current partition reassignments:", *(f"{p}: {under_way_line(under_way[p])}" for p in under_way)])


def under_way_line(moving: PartitionReassignment) -> str:
    """One partition's replicas, and which of them come and go.

    >>> under_way_line(PartitionReassignment((4, 1), (4,), (1,)))
    'replicas: 4,1. adding: 4. removing: 1.'
    """
    adding = f" adding: {_joined(moving.adding)}." if moving.adding else ""
    removing = f" removing: {_joined(moving.removing)}." if moving.removing else ""
    return f"replicas: {_joined(moving.replicas)}.{adding}{removing}"


def plural(word: str, count: int) -> str:
    return word if count == 1 else f"{word}s"


def duplicates(items: Iterable[Item]) -> list[Item]:
    """Items that occur more than once.

    >>> duplicates([1, 2, 1])
    [1]
    """
    return [item for item, count in Counter(items).items() if count > 1]


def _listed(text: str, field: str) -> list[Any]:
    try:
        body = json.loads(text)
    except ValueError as reason:
        raise UsageError("The input string is not a valid JSON") from reason
    if not isinstance(body, dict):
        raise UsageError("The input string is not a JSON object")
    if body.get("version", VERSION) != VERSION:
        raise UsageError(f"Not supported version field value {body['version']}")
    listed = body.get(field, [])
    if not isinstance(listed, list):
        raise UsageError(f"Field {field} is not a list")
    return listed


def _joined(items: Iterable[object]) -> str:
    return ",".join(map(str, items))


def _bracketed(items: Iterable[object]) -> str:
    return f"[{', '.join(map(str, items))}]"
