"""The checker finds each kind of bad history that is planted, and nothing in a good one."""

from __future__ import annotations

import pytest

from stratalog.storage.errors import CorruptMessageError
from tests.lab.history.checker import RULES, check, unseen
from tests.lab.history.history import (
    ABORT,
    ACK,
    COMMIT,
    FAIL,
    HIGH_WATERMARK,
    HOLDS,
    POLL,
    SEEK,
    SEND,
    STORED,
    HistoryEvent,
    parse_events,
)

GOOD = (
    HistoryEvent(1, "p1", SEND, value="a:1"),
    HistoryEvent(2, "p1", SEND, value="a:2"),
    HistoryEvent(3, "p2", SEND, value="b:1"),
    HistoryEvent(4, "p1", ACK, 0, 0, 3, "a:1"),
    HistoryEvent(5, "watch", HIGH_WATERMARK, 0, 1, 3),
    HistoryEvent(6, "c1", POLL, 0, 0, 3, "a:1"),
    HistoryEvent(7, "p1", FAIL, 0, value="a:2"),
    HistoryEvent(8, "p2", ACK, 1, 0, 1, "b:1"),
    HistoryEvent(9, "watch", HIGH_WATERMARK, 0, 2, 4),
    HistoryEvent(9, "watch", HIGH_WATERMARK, 1, 1, 1),
    HistoryEvent(10, "c1", POLL, 0, 1, 3, "a:2"),
    HistoryEvent(11, "c2", POLL, 1, 0, 1, "b:1"),
    *(
        HistoryEvent(20, replica, STORED, partition, offset, epoch, value)
        for replica in ("broker-1", "broker-2")
        for partition, offset, epoch, value in ((0, 0, 3, "a:1"), (0, 1, 3, "a:2"), (1, 0, 1, "b:1"))
    ),
)


def without(kind: str, value: str, client: str | None = None) -> tuple[HistoryEvent, ...]:
    return tuple(e for e in GOOD if (e.kind, e.value) != (kind, value) or client not in (None, e.client))


PLANTED: list[tuple[str, tuple[HistoryEvent, ...], set[str]]] = [
    ("a good history", GOOD, set()),
    ("an acknowledged record that no replica has", without(STORED, "b:1"), {"lost-write"}),
    ("an acknowledged record that one replica lacks", without(STORED, "b:1", "broker-2"), {"lost-write"}),
    ("a value at two offsets", (*GOOD, HistoryEvent(30, "log", POLL, 0, 2, 3, "a:2")), {"duplicate"}),
    ("a value in two partitions", (*GOOD, HistoryEvent(30, "log", POLL, 1, 1, 3, "b:1")), {"duplicate"}),
    (
        "a consumer that saw another value than the log has",
        (*without(POLL, "a:2"), HistoryEvent(0, "p3", SEND, value="c:1"), HistoryEvent(10, "c1", POLL, 0, 1, 3, "c:1")),
        {"inconsistent-offsets"},
    ),
    (
        "a replica with another value at an offset",
        (*GOOD, HistoryEvent(0, "p3", SEND, value="c:1"), HistoryEvent(21, "broker-3", STORED, 0, 1, 3, "c:1")),
        {"inconsistent-offsets", "lost-write"},
    ),
    ("a value that nobody sent", without(SEND, "b:1"), {"unsent-read"}),
    ("an offset polled twice", (*GOOD, HistoryEvent(12, "c1", POLL, 0, 1, 3, "a:2")), {"nonmonotonic-poll"}),
    ("an earlier offset polled later", (*GOOD, HistoryEvent(12, "c1", POLL, 0, 0, 3, "a:1")), {"nonmonotonic-poll"}),
    (
        "a gap between offsets, where nothing is known to be",
        (*GOOD, HistoryEvent(0, "p1", SEND, value="a:9"), HistoryEvent(12, "c1", POLL, 0, 3, 3, "a:9")),
        set(),
    ),
    (
        "a record left out by a poll",
        (
            *GOOD,
            *(HistoryEvent(0, "p1", SEND, value=value) for value in ("a:8", "a:9")),
            *(
                HistoryEvent(12, client, POLL, 0, offset, 3, value)
                for client, offset, value in (("c1", 3, "a:9"), ("c3", 2, "a:8"))
            ),
        ),
        {"poll-skip"},
    ),
    (
        "a high watermark that goes back",
        (*GOOD, HistoryEvent(12, "watch", HIGH_WATERMARK, 0, 1, 5)),
        {"high-watermark-went-back"},
    ),
    (
        "records of one key in the wrong order",
        (*GOOD, HistoryEvent(0, "p1", SEND, value="a:0"), HistoryEvent(30, "log", POLL, 0, 2, 3, "a:0")),
        {"out-of-order"},
    ),
    (
        "one key in two partitions",
        (*GOOD, HistoryEvent(0, "p1", SEND, value="a:3"), HistoryEvent(30, "log", POLL, 1, 1, 3, "a:3")),
        {"out-of-order"},
    ),
    (
        "an acknowledgement above the high watermark",
        (
            *(e for e in GOOD if (e.kind, e.partition, e.offset) != (HIGH_WATERMARK, 1, 1)),
            HistoryEvent(9, "watch", HIGH_WATERMARK, 1, 0, 1),
        ),
        {"beyond-high-watermark"},
    ),
]


@pytest.mark.parametrize(("events", "expected"), [row[1:] for row in PLANTED], ids=[row[0] for row in PLANTED])
def test_a_planted_fault_is_found_and_nothing_else(events: tuple[HistoryEvent, ...], expected: set[str]) -> None:
    assert {finding.rule for finding in check(events)} == expected


SENT = tuple(HistoryEvent(n, "p", SEND, value=f"v{n}", call=n) for n in range(4))


def ack(number: int, offset: int) -> HistoryEvent:
    return HistoryEvent(10, "p", ACK, 0, offset, value=f"v{number}", call=number)


def poll(number: int, offset: int, call: int = -1, client: str = "c") -> HistoryEvent:
    return HistoryEvent(20, client, POLL, 0, offset, value=f"v{number}", call=call)


def seek(offset: int, client: str = "c") -> HistoryEvent:
    return HistoryEvent(20, client, SEEK, 0, offset)


def txn(kind: str, name: str, value: str = "") -> HistoryEvent:
    return HistoryEvent(5, "p", kind, value=value, txn=name)


JEPSEN: list[tuple[str, tuple[HistoryEvent, ...], set[str]]] = [
    ("a reader went past an acknowledged record", (ack(0, 0), ack(1, 1), poll(0, 0), poll(2, 2)),
     {"lost-write", "poll-skip"}),
    ("a reader that began behind it", (ack(0, 0), ack(1, 1), poll(1, 1)), set()),
    ("a reader that went to the beginning and did not find it", (ack(0, 0), ack(1, 1), seek(0), poll(1, 1)),
     {"lost-write", "poll-skip"}),
    ("what nobody has reached yet", (ack(0, 0), ack(1, 1), poll(0, 0)), set()),
    ("another reader got it", (ack(0, 0), ack(1, 1), seek(0), poll(1, 1), poll(0, 0, client="d")), {"poll-skip"}),
    ("a record skipped inside one poll", (ack(0, 0), ack(1, 1), ack(2, 2), poll(0, 0, 7), poll(2, 2, 7),
     poll(1, 1, client="d")), {"int-poll-skip"}),
    ("offsets that go back inside one poll", (poll(1, 1, 7), poll(0, 0, 7)), {"int-nonmonotonic-poll"}),
    ("offsets that go back in the next poll", (poll(1, 1, 7), poll(0, 0, 8)), {"nonmonotonic-poll"}),
    ("an offset again in the next poll", (poll(1, 1, 7), poll(1, 1, 8)), {"nonmonotonic-poll"}),
    ("back after a seek", (poll(1, 1, 7), seek(0), poll(0, 0, 8)), set()),
    ("forward after a seek", (ack(1, 1), poll(0, 0, 7), seek(2), poll(2, 2, 8), poll(1, 1, client="d")), set()),
    ("a later send at an earlier offset", (ack(0, 1), ack(1, 0)), {"nonmonotonic-send"}),
    ("acknowledgements that arrive out of order", (ack(1, 1), ack(0, 0)), set()),
    ("a failed send that is there", (HistoryEvent(10, "p", FAIL, value="v0"), poll(0, 0)), set()),
    ("a refused send that is there", (HistoryEvent(10, "p", ABORT, value="v0"), poll(0, 0)), {"aborted-read"}),
    ("a replica without a partition that it holds", (ack(0, 0), HistoryEvent(30, "b1", HOLDS, 0, 0)), {"lost-write"}),
    ("a replica that does not hold the partition", (ack(0, 0), HistoryEvent(30, "b1", HOLDS, 1, 0)), set()),
    ("a replica whose log starts behind it", (ack(0, 0), HistoryEvent(30, "b1", HOLDS, 0, 1)), set()),
    (
        "the same offset of another topic",
        (ack(0, 0), HistoryEvent(20, "c", POLL, 0, 0, value="v1", topic="other")),
        set(),
    ),
]  # fmt: skip


@pytest.mark.parametrize(("events", "expected"), [row[1:] for row in JEPSEN], ids=[row[0] for row in JEPSEN])
def test_jepsens_anomalies_are_found_by_name(events: tuple[HistoryEvent, ...], expected: set[str]) -> None:
    assert {finding.rule for finding in check((*SENT, *events))} == expected


IN_T1 = (txn(SEND, "t1", "v0"), txn(SEND, "t1", "v1"))
TRANSACTIONS: list[tuple[str, tuple[HistoryEvent, ...], set[str]]] = [
    ("read after the commit", (*IN_T1, txn(COMMIT, "t1"), poll(0, 0)), set()),
    ("read before the commit", (*IN_T1, poll(0, 0), txn(COMMIT, "t1")), {"precommitted-read"}),
    ("read without a commit", (*IN_T1, poll(0, 0)), {"precommitted-read"}),
    ("read of an aborted one", (*IN_T1, txn(ABORT, "t1"), poll(0, 0)), {"aborted-read"}),
    ("an aborted record that readers passed over",
     (*IN_T1, txn(SEND, "", "v2"), ack(0, 0), ack(1, 1), ack(2, 2), txn(ABORT, "t1"), seek(0), poll(2, 2)), set()),
    ("sends out of order in a transaction", (*IN_T1, ack(0, 1), ack(1, 0), txn(COMMIT, "t1")),
     {"int-nonmonotonic-send"}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("events", "expected"), [row[1:] for row in TRANSACTIONS], ids=[row[0] for row in TRANSACTIONS]
)
def test_transactions(events: tuple[HistoryEvent, ...], expected: set[str]) -> None:
    assert {finding.rule for finding in check(events)} == expected


def test_only_the_wanted_rules_are_looked_at() -> None:
    events = (*SENT, ack(0, 1), ack(1, 0), poll(1, 1), poll(0, 0))
    assert {finding.rule for finding in check(events)} > {"nonmonotonic-send", "nonmonotonic-poll"}
    assert {finding.rule for finding in check(events, ["nonmonotonic-send"])} == {"nonmonotonic-send"}


def test_what_lies_above_all_polls_is_unseen_and_no_finding() -> None:
    events = (*SENT, ack(0, 0), ack(1, 1), poll(0, 0))
    assert [event.value for event in unseen(events)] == ["v1"]
    assert unseen((*SENT, ack(0, 0))) == [], "nobody polled"


def test_every_rule_says_what_it_looks_for() -> None:
    assert all(rule.__doc__ for rule in RULES.values())


def test_lines_of_before_are_read_and_a_torn_last_one_is_left_out() -> None:
    lines = [
        '[3,"p1","ack",0,7,2,"a:1"]\n',
        HistoryEvent(4, "c", POLL, 1, 2, 3, "x", "t", 5, "t1").to_line(),
        '[12,"p1","se',
    ]
    assert list(parse_events(lines)) == [
        HistoryEvent(3, "p1", ACK, 0, 7, 2, "a:1"),
        HistoryEvent(4, "c", POLL, 1, 2, 3, "x", "t", 5, "t1"),
    ]


@pytest.mark.parametrize(
    "line", ["{}", "[1]", "no json", '[1,"c","sneeze"]', '["1","c","send"]', '[1,"c","send",0,0,0,"v","t",1,"x",2]']
)
def test_a_line_that_is_no_event_is_refused(line: str) -> None:
    with pytest.raises(CorruptMessageError, match="not an event of a history"):
        list(parse_events([line + "\n"]))
