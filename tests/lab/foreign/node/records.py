"""Nulls, several headers, a group after a restart, one aborted transaction: checks that the clients in Python lack."""

from __future__ import annotations

from typing import Any

from tests.lab.foreign.checks import fresh
from tests.lab.foreign.node.clients import NodeClient, NodeWriter
from tests.lab.foreign.python.groups import CLASSIC
from tests.lab.foreign.python.records import FIRST_MS, KEPT, read, topic_of, value
from tests.lab.foreign.served import Served

COUNT = 100
HEADERS = (("first", b"1"), ("second", b"\x00\xff"), ("third", b""))


def null_keys_and_values(client: NodeClient, served: Served) -> None:
    """A null key, a null value, both, an empty value; three headers, or none; each record's own timestamp."""
    topic = topic_of(served, 1, **KEPT)
    given: list[tuple[bytes | None, bytes | None]] = [
        (None, b"value"), (b"key", None), (None, None), (b"key", b""), (b"\xff\x00", b"\x00"),
    ]  # fmt: skip
    wanted: list[tuple[Any, ...]] = []
    with client.writer(served.bootstrap, {}) as writer, client.reader(served.bootstrap, {}) as reader:
        assert isinstance(writer, NodeWriter)
        for number, (key, content) in enumerate(given):
            headers = HEADERS if number % 2 else ()
            writer.send_record(topic, 0, key, content, FIRST_MS + 7 * number, headers)
            wanted.append((number, key, content, FIRST_MS + 7 * number, headers))
        writer.flush()
        reader.assign([(topic, 0)])
        found = read(reader, len(given))
    assert [(each.offset, each.key, each.value, each.timestamp_ms, each.headers) for each in found] == wanted


def go_on(client: NodeClient, served: Served) -> None:
    """A member commits in the middle and ends; its successor, in another process, reads what follows, and all of it."""
    topic, group = topic_of(served, 1), fresh("group")
    settings = {"group.id": group, **CLASSIC}
    with client.writer(served.bootstrap, {}) as writer:
        for number in range(COUNT):
            writer.send(topic, value(number), 0)
        writer.flush()
        with client.reader(served.bootstrap, settings) as reader:
            reader.subscribe(topic)
            assert [each.value for each in read(reader, COUNT)] == [value(number) for number in range(COUNT)]
            reader.commit()
            assert reader.committed((topic, 0)) == COUNT
        for number in range(COUNT, 2 * COUNT):
            writer.send(topic, value(number), 0)
        writer.flush()
    client.close()
    with client.reader(served.bootstrap, settings) as reader:
        reader.subscribe(topic)
        assert [each.value for each in read(reader, COUNT)] == [value(number) for number in range(COUNT, 2 * COUNT)]


def skip_an_aborted_transaction(client: NodeClient, served: Served) -> None:
    topic = topic_of(served, 1)
    with client.writer(served.bootstrap, {"transactional.id": fresh("id")}) as writer:
        writer.init_transactions()
        for number in range(3):
            writer.begin()
            writer.send(topic, value(number), 0)
            writer.flush()
            if number == 1:
                writer.abort()
            else:
                writer.commit()
    with client.reader(served.bootstrap, {"isolation.level": "read_committed"}) as reader:
        reader.assign([(topic, 0)])
        assert [each.value for each in read(reader, 2)] == [value(0), value(2)]
    with client.reader(served.bootstrap, {"isolation.level": "read_uncommitted"}) as reader:
        reader.assign([(topic, 0)])
        assert [each.value for each in read(reader, 3)] == [value(number) for number in range(3)]
