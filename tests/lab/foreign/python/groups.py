"""Groups: two members share a topic, one leaves, the other one continues where it ended; static members come back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tests.lab.foreign.checks import fresh
from tests.lab.foreign.python.clients import PythonClient, Reader, Seen, TopicPartition
from tests.lab.foreign.python.records import partitions_of, topic_of, value
from tests.lab.foreign.served import Served
from tests.waiting import wait_until

PARTITIONS, COUNT = 4, 200
CLASSIC = {"session.timeout.ms": 10_000, "heartbeat.interval.ms": 500}
MODERN = {"group.protocol": "consumer"}
WAIT_S = 60


def classic(client: PythonClient, assignor: str) -> dict[str, Any]:
    """Settings of a member of a classic group."""
    return {**CLASSIC, "partition.assignment.strategy": client.assignors[assignor]}


def write(client: PythonClient, served: Served, topic: str, begin: int) -> list[bytes]:
    """Write so many records to all partitions; their values."""
    values = [value(number) for number in range(begin, begin + COUNT)]
    with client.writer(served.bootstrap, {"acks": "all"}) as writer:
        for number, each in enumerate(values):
            writer.send(topic, each, number % PARTITIONS)
        writer.flush()
    return values


def poll_until(members: Sequence[Reader], is_so: Any, what: str) -> list[Seen]:
    """Poll every member, each in a thread of its own, until it is so; what they read."""
    seen: list[Seen] = []
    with ThreadPoolExecutor(len(members)) as threads:

        def turn() -> bool:
            for found in threads.map(lambda member: member.poll(), members):
                seen.extend(found)
            return bool(is_so(seen))

        wait_until(turn, what, WAIT_S)
    return seen


def is_shared(members: Sequence[Reader], partitions: Sequence[TopicPartition]) -> bool:
    """Each member has its share, and every partition has one owner."""
    shares = [each.assignment() for each in members]
    return sorted(p for share in shares for p in share) == list(partitions) and {len(share) for share in shares} == {
        len(partitions) // len(members)
    }


def share(
    client: PythonClient,
    served: Served,
    settings: Mapping[str, Any],
    *,
    is_eager: bool,
    repeats: bool = False,
) -> None:
    """One member, two, one again. `is_eager`: a rebalance revokes everything; else only what another one gets.

    repeats  the client may give a record twice after a rebalance, on Kafka's brokers, too
    """
    topic, group = topic_of(served, PARTITIONS), fresh("group")
    partitions = partitions_of(topic, PARTITIONS)
    settings = {"group.id": group, **settings}
    first = client.reader(served.bootstrap, settings)
    first.subscribe(topic)
    values = write(client, served, topic, 0)
    seen = poll_until([first], lambda seen: len(seen) >= COUNT, "one member reads all")
    assert sorted(each.value or b"" for each in seen) == sorted(values)
    first.commit()
    with client.reader(served.bootstrap, settings) as second:
        second.subscribe(topic)
        poll_until([first, second], lambda _: is_shared([first, second], partitions), "two members share")
        revoked = set().union(*first.revoked)
        assert revoked == (set(partitions) if is_eager else second.assignment()), first.revoked
        values = write(client, served, topic, COUNT)
        seen = poll_until([first, second], lambda seen: {*values} <= {each.value for each in seen}, "two read all")
        read = [each.value or b"" for each in seen]
        assert sorted({*read} if repeats else read) == sorted(values)
        first.commit()
        first.close()
        poll_until([second], lambda _: is_shared([second], partitions), "the one that stays has all")
        values = write(client, served, topic, 2 * COUNT)
        poll_until([second], lambda seen: {*values} <= {each.value for each in seen}, "all that is new")
        second.commit()
        assert [second.committed(each) for each in partitions] == [3 * COUNT // PARTITIONS] * PARTITIONS


def migrate(client: PythonClient, served: Served) -> None:
    """Members leave and others join, each with the other protocol than the one before: each record is read once."""
    topic, group = topic_of(served, PARTITIONS), fresh("group")
    partitions = partitions_of(topic, PARTITIONS)
    settings = [{"group.id": group, **each} for each in (classic(client, "range"), MODERN, MODERN)]
    written: list[bytes] = []
    read: list[bytes] = []

    def read_all(members: Sequence[Reader], what: str) -> None:
        written.extend(write(client, served, topic, len(written)))
        before = len(read)
        seen = poll_until(members, lambda seen: before + len(seen) >= len(written), what)
        read.extend(each.value or b"" for each in seen)

    last = client.reader(served.bootstrap, settings[0])
    last.subscribe(topic)
    for each in (*settings[1:], settings[0], settings[0]):
        read_all([last], "one member reads all")
        last.commit()
        following = client.reader(served.bootstrap, each)
        following.subscribe(topic)
        both = [last, following]
        poll_until(both, lambda _, both=both: is_shared(both, partitions), "two members share")
        read_all(both, "two members read all")
        for member in both:
            member.commit()
        last.close()
        last = following
        poll_until([last], lambda _, last=last: is_shared([last], partitions), "the one that stays has all")
    with last:
        assert sorted(read) == sorted(written)
        assert [last.committed(each) for each in partitions] == [len(written) // PARTITIONS] * PARTITIONS


def come_back(client: PythonClient, served: Served, settings: Mapping[str, Any]) -> None:
    """A static member that ends and starts again has its partitions again, and the other one keeps its own."""
    topic, group = topic_of(served, PARTITIONS), fresh("group")
    partitions = partitions_of(topic, PARTITIONS)
    own = [{"group.id": group, "group.instance.id": f"member-{number}", **settings} for number in (1, 2)]
    first, second = (client.reader(served.bootstrap, each) for each in own)
    with second:
        for each in (first, second):
            each.subscribe(topic)
        poll_until([first, second], lambda _: is_shared([first, second], partitions), "two members share")
        before, kept, revocations = first.assignment(), second.assignment(), list(second.revoked)
        first.close()
        with client.reader(served.bootstrap, own[0]) as again:
            again.subscribe(topic)
            poll_until([again, second], lambda _: again.assignment() == before, "the member is back")
            values = write(client, served, topic, 0)
            seen = poll_until([again, second], lambda seen: len(seen) >= COUNT, "both read")
            assert sorted(each.value or b"" for each in seen) == sorted(values)
            assert (second.assignment(), second.revoked) == (kept, revocations)
