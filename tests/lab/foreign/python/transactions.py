"""Transactions: records are read, processed and written with their offsets; some attempts are aborted."""

from __future__ import annotations

from contextlib import suppress

import pytest

from tests.lab.foreign.checks import fresh
from tests.lab.foreign.python.clients import PythonClient, Reader, Seen, Writer
from tests.lab.foreign.python.groups import CLASSIC, PARTITIONS, poll_until, write
from tests.lab.foreign.python.records import partitions_of, read, topic_of, value
from tests.lab.foreign.served import Served
from tests.waiting import wait_until

ABORT_EVERY = 3
WAIT_S = 60
COMMITTED = {"isolation.level": "read_committed"}


def read_process_write(client: PythonClient, served: Served, *, output: PythonClient | None = None) -> None:
    """Every input is in the output once for a read_committed reader; every third attempt was aborted.

    output  the client that reads the output, if another one
    """
    result = output or client
    source, out, group = topic_of(served, PARTITIONS), topic_of(served, PARTITIONS), fresh("group")
    partitions = partitions_of(source, PARTITIONS)
    values = write(client, served, source, 0)
    settings = {"group.id": group, **CLASSIC, **COMMITTED}
    done: dict[int, int] = dict.fromkeys(range(PARTITIONS), 0)
    aborted = 0
    with (
        client.writer(served.bootstrap, {"transactional.id": fresh("id")}) as writer,
        client.reader(served.bootstrap, settings) as reader,
    ):
        writer.init_transactions()
        reader.subscribe(source)
        attempt = 0
        while sum(done.values()) < len(values):
            seen = batch_of(reader, done)
            ends = {**done, **{each.partition: each.offset + 1 for each in seen}}
            attempt += 1
            writer.begin()
            for each in seen:
                writer.send(out, each.value or b"", each.partition)
            writer.flush()
            writer.send_offsets({(source, number): end for number, end in ends.items()}, reader, group)
            if attempt % ABORT_EVERY == 1:
                writer.abort()
                aborted += len(seen)
                for each in partitions:
                    reader.seek(each, done[each[1]])
            else:
                writer.commit()
                done = ends
        wait_until(lambda: [reader.committed(p) for p in partitions] == list(done.values()), "the offsets", WAIT_S)
    with result.reader(served.bootstrap, COMMITTED) as reader:
        reader.assign(partitions_of(out, PARTITIONS))
        assert sorted(each.value or b"" for each in read(reader, len(values))) == sorted(values)
    with result.reader(served.bootstrap, {"isolation.level": "read_uncommitted"}) as reader:
        reader.assign(partitions_of(out, PARTITIONS))
        assert len(read(reader, len(values) + aborted)) == len(values) + aborted


def batch_of(reader: Reader, done: dict[int, int]) -> list[Seen]:
    """New records, at most 20 a partition; the reader goes back to the end of those that are left out."""
    seen = poll_until([reader], lambda seen: any(each.offset >= done[each.partition] for each in seen), "records")
    new = [each for each in seen if done[each.partition] <= each.offset < done[each.partition] + 20]
    for number in {each.partition for each in seen}:
        end = max([done[number], *(each.offset + 1 for each in new if each.partition == number)])
        reader.seek((seen[0].topic, number), end)
    return new


def be_fenced(client: PythonClient, served: Served) -> None:
    """A producer whose transactional id another one took over cannot commit; what it wrote does not count."""
    topic, transactional_id = topic_of(served, 1), fresh("id")
    old = client.writer(served.bootstrap, {"transactional.id": transactional_id})
    old.init_transactions()
    old.begin()
    old.send(topic, value(1), 0)
    old.flush()
    with client.writer(served.bootstrap, {"transactional.id": transactional_id}) as new:
        new.init_transactions()
        with pytest.raises(Exception, match=client.fenced):
            commit_more(old, topic)
        new.begin()
        new.send(topic, value(3), 0)
        new.commit()
    with client.reader(served.bootstrap, COMMITTED) as reader:
        reader.assign([(topic, 0)])
        assert [each.value for each in read(reader, 1)] == [value(3)]
    with suppress(Exception):
        old.close()  # it may raise once more that it is fenced


def commit_more(writer: Writer, topic: str) -> None:
    """Write a record and commit; a fenced producer's error names that in its type or its text."""
    try:
        writer.send(topic, value(2), 0)
        writer.commit()
    except Exception as error:
        raise AssertionError(repr(error)) from error
