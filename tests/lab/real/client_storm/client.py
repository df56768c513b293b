"""A client of the storm with librdkafka, until a line comes on its standard input. I/O: sockets, a history's file.

    python -m tests.lab.real.client_storm.client producer|reader|copier <name> <bootstrap.servers> <history file>

It prints `ready` when it works, and at the end a line of JSON with what it counted. Configs are librdkafka's defaults
but for those that the work needs: acks=all and idempotence, groups and their protocol, auto.offset.reset=earliest,
transactional.id, and of a copier isolation.level and enable.auto.commit. A shorter session than the default of 45 s is
no help: librdkafka drops its member id when its session is over, and its group then waits for the session of that id.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from tests.lab.history.history import SEEK
from tests.lab.real.harness.history import ACK, FAIL, POLL, SEND, UNKNOWN, History

SOURCE, COPY = "storm", "copy"
PARTITIONS = 6
PAUSE_S = 0.05
FLUSH_S = 120
OUTSTANDING_MAX = 500
COPIED_MAX = 2_000
Counts = Counter[str]


class End:
    """Set by a line on the standard input."""

    def __init__(self) -> None:
        self._event = threading.Event()
        threading.Thread(target=self._wait, daemon=True).start()

    def _wait(self) -> None:
        sys.stdin.readline()
        self._event.set()

    def __bool__(self) -> bool:
        return self._event.is_set()


def producer(name: str, bootstrap: str, history: History, end: End, counts: Counts) -> None:
    """Idempotent, acks=all: a record to each partition every 50 ms, `<name>-<partition>:<number>`."""
    made = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "acks": "all"})
    number = 0
    while not end:
        number += 1
        for partition in range(PARTITIONS):
            _send(made, history, name, f"{name}-{partition}:{number}", partition, counts)
        _report(counts)
        made.poll(0)
        time.sleep(PAUSE_S)
        while len(made) > OUTSTANDING_MAX and not end:
            made.poll(0.05)
    counts["left"] = made.flush(FLUSH_S)


def _send(
    made: confluent_kafka.Producer, history: History, name: str, value: str, partition: int, counts: Counts
) -> None:
    history.add(name, SEND, value=value)

    def delivered(error: KafkaError | None, message: Message) -> None:
        counts["failed" if error else "acknowledged"] += 1
        if error:
            history.add(name, FAIL, value=f"{value} {error}")
        else:
            offset = message.offset()
            counts["without an offset"] += offset is None
            history.add(name, ACK, message.partition(), UNKNOWN if offset is None else offset, value=value)

    made.produce(SOURCE, value.encode(), partition=partition, on_delivery=delivered)


def reader(name: str, bootstrap: str, history: History, end: End, counts: Counts) -> None:
    """A member of the group before the last `-` of its name, which says `classic` or `consumer`; it commits."""
    group = name.rpartition("-")[0]
    made = _consumer(bootstrap, {"group.id": group, "group.protocol": group.split("-")[-1]})

    def assigned(_consumer: confluent_kafka.Consumer, partitions: list[TopicPartition]) -> None:
        for each in partitions:
            history.add(name, SEEK, each.partition)

    made.subscribe([SOURCE], on_assign=assigned)
    while not end:
        for message in made.consume(100, 0.2):
            if message.error():
                counts[str(message.error().name())] += 1
                continue
            counts["polled"] += 1
            epoch = message.leader_epoch()
            place = message.partition(), message.offset(), -1 if epoch is None else epoch
            history.add(name, POLL, *place, value=message.value().decode())
        _report(counts)
    made.close()


def _consumer(bootstrap: str, settings: Mapping[str, object]) -> confluent_kafka.Consumer:
    return confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "auto.offset.reset": "earliest", **settings})


def copier(name: str, bootstrap: str, _history: History, end: End, counts: Counts) -> None:
    """Copies every record of the source to the same partition of the copy, in transactions with its offsets."""
    settings = {"group.id": "copiers", "isolation.level": "read_committed", "enable.auto.commit": False}
    source = _consumer(bootstrap, settings)
    source.subscribe([SOURCE])
    target = _transactional(name, bootstrap)
    while not end:
        messages = [each for each in source.consume(COPIED_MAX, 0.2) if not each.error()]
        if messages:
            try:
                _copy(source, target, messages)
                counts["copied"] += len(messages)
                counts["transactions"] += 1
            except KafkaException as failure:
                error = failure.args[0]
                print(f"{time.monotonic():.1f} {error.name()} {error.str()}", file=sys.stderr, flush=True)
                counts[f"{'fatal' if error.fatal() else 'aborted'} {error.name()}"] += 1
                target = _after(failure, target, name, bootstrap, counts)
                _rewind(source)
        _report(counts)
    source.close()


def _after(
    failure: KafkaException, target: confluent_kafka.Producer, name: str, bootstrap: str, counts: Counts
) -> confluent_kafka.Producer:
    """As an application goes on after an error: the transaction is aborted; after a fatal one with a new producer."""
    if not failure.args[0].fatal():
        try:
            _retried(partial(target.abort_transaction, 30))
            return target
        except KafkaException as fatal:
            counts[f"fatal {fatal.args[0].name()}"] += 1
    return _transactional(name, bootstrap)


def _transactional(name: str, bootstrap: str) -> confluent_kafka.Producer:
    made = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "transactional.id": name})
    _retried(lambda: made.init_transactions(30))
    return made


def _copy(source: confluent_kafka.Consumer, target: confluent_kafka.Producer, messages: list[Message]) -> None:
    target.begin_transaction()
    ends = {each.partition(): each.offset() + 1 for each in messages}
    for each in messages:
        target.produce(COPY, each.value(), partition=each.partition())
    offsets = [TopicPartition(SOURCE, partition, end) for partition, end in ends.items()]
    group = source.consumer_group_metadata()
    _retried(lambda: target.send_offsets_to_transaction(offsets, group, 30))
    _retried(lambda: target.commit_transaction(30))


def _retried(call: Callable[[], None]) -> None:
    """As librdkafka asks: a retriable error of a transactional call is tried again."""
    while True:
        try:
            call()
            return
        except KafkaException as failure:
            print(f"{time.monotonic():.1f} again: {failure.args[0].str()}", file=sys.stderr, flush=True)
            if not failure.args[0].retriable() or failure.args[0].txn_requires_abort():
                raise
            time.sleep(0.1)


def _rewind(source: confluent_kafka.Consumer) -> None:
    """To the committed offsets: what was aborted is read again. Partitions that come later begin there anyway."""
    committed: list[TopicPartition] | None = None
    while committed is None:
        assignment = source.assignment()
        if not assignment:
            return
        try:
            committed = source.committed(assignment, 10)
        except KafkaException as failure:
            print(f"{time.monotonic():.1f} offsets: {failure.args[0].str()}", file=sys.stderr, flush=True)
            time.sleep(0.1)
    for each in committed:
        each.offset = each.offset if each.offset >= 0 else confluent_kafka.OFFSET_BEGINNING
        try:
            source.seek(each)
        except KafkaException:
            continue  # it was assigned to another member meanwhile


_shown = threading.Event()


def _report(_counts: Counts) -> None:
    if not _shown.is_set():
        _shown.set()
        print("ready", flush=True)


ROLES = {"producer": producer, "reader": reader, "copier": copier}


def main(role: str, name: str, bootstrap: str, history: str) -> None:
    counts: Counts = Counter()
    ROLES[role](name, bootstrap, History(Path(history)), End(), counts)
    print(json.dumps(counts), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
